"""Decoding: codes and scales back to values, for any `QuantSpec` and under FlashInfer's names."""

from __future__ import annotations

from math import prod
from typing import Any

from jitnorm.catalogue.decoders import (
    DEQUANTIZE,
    E2M1_AND_UFP8SF_SCALE_TO_FLOAT,
    MXFP4_DEQUANTIZE,
    MXFP8_DEQUANTIZE_HOST,
    decoded_spec,
    has_tensor_scale,
)
from jitnorm.catalogue.op import Op
from jitnorm.catalogue.sf_layout import SfLayout
from jitnorm.dispatch import Dispatcher, dispatcher_of
from jitnorm.interop import check_shaped, framework_of, kind_of
from jitnorm.interop.dynamo import replace_in_graphs
from jitnorm.kernels.quant_spec import CODE_BITS, QuantSpec
from jitnorm.ops.batched import is_scale_per_matrix, kind_of_batch
from jitnorm.ops.forms import Form, Known, converting
from jitnorm.quantized import QuantizedTensor

_FORM = Form("data scale global_scale row_scale tensor_scale out", "{out}")
_TO_FLOAT = Form("data scale tensor_scale", "{out}")


def dequantize(
    q: QuantizedTensor,
    *,
    dtype: str | None = None,
    out: Any = None,
    enable_pdl: bool | None = None,
    stream: Any = None,
) -> Any:
    """Decode: each code times the scale of its block, row or tensor, undoing a global scale; rounded once.

    docs/encodings.md defines every bit. A scale that is NaN makes all values of its block NaN.

    Args:
        q: a result of `quantize`, `norm_quantize`, `silu_and_mul_quantize` or `quantize_weight`, in any format and
            layout, also of a batch; rows that a mask excluded are decoded like the rest, to meaningless values.
        dtype: dtype of the values: ``bfloat16``, ``float16`` or ``float32``. None: that of `out`, or without `out`
            ``bfloat16``, or ``float32`` for NumPy and CuPy, which have no bfloat16 of their own.
        out: where to write, shape of `q`; rows at any stride, unless `q.axis` is 0. None allocates.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        `out`, in the shape of `q`.

    Raises:
        ValueError: a shape, dtype, device, stride or alignment that is not allowed.
        TypeError: `q` is not a QuantizedTensor, or holds something that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> from jitnorm import NVFP4, quantize
        >>> x = np.array([[0.5, -1, 1.5, -2, 3, -4, 6, 0] * 2], np.float32)
        >>> bool((dequantize(quantize(x, spec=NVFP4)) == x).all())
        True
    """
    if not isinstance(q, QuantizedTensor):
        raise TypeError(f"q: is {kind_of(q)}; expected a QuantizedTensor, which quantize returns")
    framework = framework_of(q.data, "data")
    if not framework.has_shape(q.data):
        check_shaped(q.data, "data")
    _check_shape(q)
    if dtype is None:
        dtype = framework.float_dtype if out is None else framework_of(out, "out").dtype_name(out)
    per_matrix = q.batched and is_scale_per_matrix(q.global_scale if q.spec.has_blocks else q.scale)
    scale = q.scale_unswizzled if q.spec.both_layouts else q.scale
    return _CALLS.call(
        q.data, scale, q.global_scale, q.row_scale, q.tensor_scale, out, stream, q.spec, enable_pdl, dtype, q.axis,
        q.batched, per_matrix,
    )  # fmt: skip


def dequantize_rows(data: Any, scale: Any, tensor_scale: Any, spec: QuantSpec, dtype: str) -> Any:
    """`dequantize` of codes and scales that are in no QuantizedTensor, which would take 3 us more.

    The tensor's scale may be of any dtype, device and dimensions, or a number.
    """
    return _ROWS.call(data, scale, None, None, tensor_scale, None, None, spec, None, dtype, -1, False, False)


def _calls(
    has_global: bool, has_row: bool, has_tensor: bool, quant: QuantSpec, enable_pdl: bool | None, dtype: str,
    axis: int, batched: bool, per_matrix: bool,
) -> tuple[Dispatcher, Form]:  # fmt: skip
    """The dispatcher that decodes such quantized tensors, and its form; ValueError if one of them has no use."""
    batch = kind_of_batch(decoded_spec(quant), batched, False, per_matrix)
    options = (decoded_spec(quant), dtype, axis, has_tensor_scale(quant), batch)
    dispatcher = dispatcher_of(DEQUANTIZE, enable_pdl, *options)
    given = {"global_scale": has_global, "row_scale": has_row, "tensor_scale": has_tensor}
    for name, is_given in given.items():
        if is_given and name not in dispatcher.names:
            raise ValueError(f"{name}: is given, but the other options leave no use for it; pass None")
    return dispatcher, _FORM


def _as_scalar(scale: Any, data: Any) -> Any:
    framework = framework_of(data, "data")
    found = framework.as_scale(scale, data)
    if (count := prod(found.shape)) != 1:
        raise ValueError(f"global_scale: has {count} elements; pass one, that of the tensor")
    return framework.reshaped(found, (1,))


_ARGUMENTS = "data scale global_scale? row_scale? tensor_scale? out"
_CALLS, _ROWS = Known(_calls, _ARGUMENTS), Known(converting(_calls, {"tensor_scale": _as_scalar}), _ARGUMENTS)


def _check_shape(q: QuantizedTensor) -> None:
    shape, values = q.data.shape, 8 // CODE_BITS[q.spec.element]
    if values == 1 and shape == q.shape:  # comparing lists takes 0.3 us
        return
    shape = list(shape)
    if shape:
        shape[q.axis] *= values
    if tuple(shape) != tuple(q.shape):
        held = f"its data, {tuple(q.data.shape)}, holds {tuple(shape)}"
        raise ValueError(f"q: its shape is {tuple(q.shape)}, but {held}; pass a result of quantize")


def e2m1_and_ufp8sf_scale_to_float(
    e2m1_tensor: Any,
    ufp8_scale_tensor: Any,
    global_scale_tensor: Any = None,
    sf_vec_size: int = 16,
    ufp8_type: int = 1,
    is_sf_swizzled_layout: bool = True,
    is_sf_8x4_layout: bool = False,
    *,
    enable_pdl: bool | None = None,
    stream: Any = None,
) -> Any:
    """Decode FP4 to float32: ``code * scale * global_scale_tensor``, or ``code * scale`` with scales in UE8M0.

    The result is on the device of the codes; FlashInfer's is always on the CPU.

    Args:
        e2m1_tensor: codes, two per byte, shape (..., hidden_size / 2): float4_e2m1fn_x2 or uint8; rows at any stride.
        ufp8_scale_tensor: block scales of any shape with the right number of elements: uint8, or their own dtype.
        global_scale_tensor: float32 tensor of one element, which *multiplies*: the inverse of the encode scale that
            `rmsnorm_fp4quant` takes. None for 1. Ignored with UE8M0, as in FlashInfer: such scales have no global one.
        sf_vec_size: values that share a scale, 16 or 32.
        ufp8_type: format of the scales: 1 for E4M3, 0 for UE8M0.
        is_sf_swizzled_layout: whether the scales are swizzled (128x4) instead of linear.
        is_sf_8x4_layout: whether the swizzled layout is 8x4.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        float32, shape (..., hidden_size), in the framework of `e2m1_tensor`.

    Raises:
        ValueError: a shape, dtype, device, stride or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> codes, scales = np.full((1, 8), 0x42, np.uint8), np.full((1, 1), 0x40, np.uint8)
        >>> e2m1_and_ufp8sf_scale_to_float(codes, scales, is_sf_swizzled_layout=False)[0, :2].tolist()
        [2.0, 4.0]
    """
    factor = global_scale_tensor if ufp8_type == 1 else None
    return _TO_FLOAT_CALLS.call(
        e2m1_tensor, ufp8_scale_tensor, factor, stream, E2M1_AND_UFP8SF_SCALE_TO_FLOAT, enable_pdl, sf_vec_size,
        ufp8_type, is_sf_swizzled_layout, is_sf_8x4_layout,
    )  # fmt: skip


def mxfp4_dequantize(
    a_fp4: Any, a_sf: Any, sfLayout: Any = SfLayout.layout_128x4,  # noqa: N803 - FlashInfer's name
    *, enable_pdl: bool | None = None, stream: Any = None,
) -> Any:  # fmt: skip
    """Decode MXFP4 to float32.

    Args:
        a_fp4: codes, two per byte, shape (..., hidden_size / 2): float4_e2m1fn_x2 or uint8; rows at any stride.
        a_sf: block scales in UE8M0, of any shape with the right number of elements.
        sfLayout: the scales' layout, an `SfLayout` or FlashInfer's.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        float32, shape (..., hidden_size), on the device of `a_fp4`.

    Raises:
        ValueError: a shape, dtype, device, stride or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> codes, scales = np.full((1, 16), 0x42, np.uint8), np.full((1, 1), 128, np.uint8)
        >>> mxfp4_dequantize(codes, scales, SfLayout.layout_linear)[0, :2].tolist()
        [2.0, 4.0]
    """
    return _TO_FLOAT_CALLS.call(a_fp4, a_sf, None, stream, MXFP4_DEQUANTIZE, enable_pdl, sfLayout)


def mxfp8_dequantize_host(
    input: Any, scale_tensor: Any, is_sf_swizzled_layout: bool = True, sf_swizzle_layout: Any = None,
    *, enable_pdl: bool | None = None, stream: Any = None,
) -> Any:  # fmt: skip
    """Decode MXFP8 to float32, on the device of the codes, despite the name.

    Args:
        input: E4M3 codes, shape (..., hidden_size): float8_e4m3fn or uint8; rows at any stride.
        scale_tensor: block scales in UE8M0, of any shape with the right number of elements.
        is_sf_swizzled_layout: whether the scales are in the 128x4 layout instead of linear.
        sf_swizzle_layout: the scales' layout, an `SfLayout` or FlashInfer's; None: as `is_sf_swizzled_layout` says.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        float32, shape (..., hidden_size), on the device of `input`.

    Raises:
        ValueError: a shape, dtype, device, stride or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> codes, scales = np.full((1, 32), 0x38, np.uint8), np.full((1, 1), 128, np.uint8)
        >>> mxfp8_dequantize_host(codes, scales, is_sf_swizzled_layout=False)[0, :2].tolist()
        [2.0, 2.0]
    """
    return _TO_FLOAT_CALLS.call(
        input, scale_tensor, None, stream, MXFP8_DEQUANTIZE_HOST, enable_pdl, is_sf_swizzled_layout, sf_swizzle_layout
    )


def _to_float_calls(has_factor: bool, op: Op, enable_pdl: bool | None, *options: Any) -> tuple[Dispatcher, Form]:
    if op is E2M1_AND_UFP8SF_SCALE_TO_FLOAT:
        options = (*options, has_factor)
    return dispatcher_of(op, enable_pdl, *options), _TO_FLOAT


def to_float(op: Op, data: Any, scale: Any, tensor_scale: Any, *options: Any) -> Any:
    """The result of one of these ops, given its options: torch's scales may be on other devices than the codes."""
    return _MOVED.call(data, scale, tensor_scale, None, op, None, *options)


def _moved(scale: Any, data: Any) -> Any:
    return framework_of(scale, "scale").moved(scale, data.device)


_TO_FLOAT_ARGUMENTS = "data scale tensor_scale?"
_TO_FLOAT_CALLS = Known(_to_float_calls, _TO_FLOAT_ARGUMENTS)
_MOVED = Known(converting(_to_float_calls, {"scale": _moved, "tensor_scale": _moved}), _TO_FLOAT_ARGUMENTS)
replace_in_graphs((dequantize_rows, to_float))
