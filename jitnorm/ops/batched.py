"""Quantization of batches of matrices, with the scales of each padded separately, with and without a mask."""

from __future__ import annotations

from math import prod
from typing import Any

from jitnorm.catalogue.four_over_six import recipe_of
from jitnorm.catalogue.op import Op
from jitnorm.catalogue.quantizers import (
    MXFP8_GROUPED_QUANTIZE,
    NVFP4_BATCHED_QUANTIZE,
    SCALED_FP4_GROUPED_QUANTIZE,
    SILU_AND_MUL_SCALED_NVFP4_EXPERTS_QUANTIZE,
)
from jitnorm.dispatch import Dispatcher, dispatcher_of, per_options, rounded_dispatcher
from jitnorm.interop import framework_of
from jitnorm.interop.record import View
from jitnorm.kernels.numerics import ceil_div
from jitnorm.kernels.quant_spec import QuantSpec, require_one_of
from jitnorm.ops.forms import Form, Kind, Known, Shape


def _matrices_last(codes: Any, _: Any) -> Any:
    """A view of codes of a batch with the matrices last."""
    return framework_of(codes, "codes").permuted(codes, tuple(codes.shape), (1, 2, 0))


def _tiles(columns: int) -> View:
    """Makes a view of 128x4 scales by the dimensions of their tiles, each of so many of the input's columns."""

    def view(scales: Any, a: Any) -> Any:
        tiles = (a.shape[0], ceil_div(a.shape[1], 128), ceil_div(a.shape[2], columns), 32, 4, 4)
        return framework_of(scales, "scales").permuted(scales, tiles, (3, 4, 1, 5, 2, 0))

    return view


_BATCHED = Form("input mask global_scale", "({y_fp4}, {block_scale})")
_NVFP4, _GATED_NVFP4 = (
    Form("input mask global_scale", "({y_fp4}, {block_scale})", views={"y_fp4": _matrices_last, "block_scale": scales})
    for scales in (_tiles(64), _tiles(128))
)
_MXFP8 = Form("input mask", "({out}, {block_scale})", views={"out": _matrices_last, "block_scale": _tiles(128)})


@per_options
def kind_of_batch(quant: QuantSpec, batched: bool, masked: bool, per_matrix: bool) -> tuple[bool, bool, bool]:
    """How a batch is encoded: `batched`, `masked` and `scale_per_matrix` of KernelConfig.

    Args:
        quant: the encoding.
        batched: whether the first dimension counts matrices.
        masked: whether there is a mask.
        per_matrix: whether a given scale has an element for each matrix.

    Raises:
        ValueError: a mask is given without a batch, or counts rows of a tensor whose scale is computed.
    """
    require_one_of("batched", batched, (True, False))
    if masked and not batched:
        raise ValueError("mask: is given, but batched is False; pass None or batched=True")
    if masked and quant.needs_tensor_amax:
        raise ValueError(
            "mask: is given, but a computed scale of the tensor counts all rows; pass None, or give the scale"
        )
    return batched, masked, quant.needs_given_scale and per_matrix


def is_scale_per_matrix(scale: Any) -> bool:
    """Whether a given scale has one element per matrix."""
    return scale is not None and prod(getattr(scale, "shape", ())) != 1  # asking each extent would take 0.3 us


def is_per_matrix(scale: Kind) -> bool:
    """Whether a given scale of a shape has one element per matrix or expert."""
    return isinstance(scale, tuple) and any(extent != 1 for extent in scale)


def nvfp4_batched_quantize(
    a: Any,
    a_global_sf: Any,
    sf_vec_size: int = 16,
    nvfp4_4over6: Any = None,
    *,
    enable_pdl: bool | None = None,
    stream: Any = None,
) -> tuple[Any, Any]:
    """NVFP4 quantization of a batch of matrices, with the 128x4 scales of each padded separately.

    Each matrix gets the same bytes as on its own. `jitnorm.quantize` with ``batched=True`` does the same for every
    format and layout.

    Args:
        a: float16, bfloat16, float32 or, as in `fp4_quantize`, float8_e4m3fn, shape (B, M, K), K divisible by
            `sf_vec_size`; rows at any stride.
        a_global_sf: float32 tensor on the device of `a`, the encode scale (448 * 6 / amax): one element for all, or
            shape (B,), one for each matrix; None for 1.
        sf_vec_size: values that share a scale, 16 or 32.
        nvfp4_4over6: None, or as in `fp4_quantize`.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        ``(codes, scales)``, both uint8: (B, M, K / 2), and (B, roundup(M, 128) * roundup(K / sf_vec_size, 4)), padded
        with zeros.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> codes, scales = nvfp4_batched_quantize(np.ones((3, 2, 64), np.float16), np.ones(1, np.float32))
        >>> codes.shape, scales.shape, codes.dtype.name, scales.dtype.name
        ((3, 2, 32), (3, 512), 'uint8', 'uint8')
    """
    made: tuple[Any, Any] = _CALLS.call(
        a, None, a_global_sf, stream, NVFP4_BATCHED_QUANTIZE, enable_pdl, "once", sf_vec_size, recipe_of(nvfp4_4over6)
    )
    return made


def scaled_fp4_grouped_quantize(
    a: Any,
    mask: Any,
    a_global_sf: Any,
    nvfp4_4over6: Any = None,
    *,
    enable_pdl: bool | None = None,
    stream: Any = None,
) -> tuple[Any, Any]:
    """NVFP4 quantization of the first ``mask[b]`` rows of each matrix b, as the input of a masked grouped GEMM.

    Nothing is written for the other rows, neither codes nor scales: there the outputs are uninitialized memory.

    Args:
        a: float16, bfloat16, float32 or, as in `fp4_quantize`, float8_e4m3fn, shape (B, M, K), K divisible by 16;
            rows at any stride.
        mask: int32, shape (B,), how many rows each matrix has; counts below 0 are 0, above M they are M.
        a_global_sf: float32 tensor on the device of `a`, the encode scale (448 * 6 / amax): one element for all, or
            shape (B,), one for each matrix; None for 1.
        nvfp4_4over6: None, or as in `fp4_quantize`.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        ``(codes, scales)``: uint8 of shape (M, K / 2, B), and float8_e4m3fn of shape (32, 4, ceil(M / 128), 4, ceil(K /
        64), B), the dimensions of each matrix's 128x4 layout; in memory B comes first. (JAX has no strides: there the
        order in memory is that of the shapes.)

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> a, mask = np.ones((3, 200, 64), np.float16), np.array([0, 7, 200], np.int32)
        >>> codes, scales = scaled_fp4_grouped_quantize(a, mask, np.ones(1, np.float32))
        >>> codes.shape, scales.shape
        ((200, 32, 3), (32, 4, 2, 4, 1, 3))
    """
    made: tuple[Any, Any] = _MASKED_CALLS.call(
        a, mask, a_global_sf, stream, SCALED_FP4_GROUPED_QUANTIZE, enable_pdl, "once", 16, recipe_of(nvfp4_4over6)
    )
    return made


def silu_and_mul_scaled_nvfp4_experts_quantize(
    a: Any,
    mask: Any,
    a_global_sf: Any,
    nvfp4_4over6: Any = None,
    *,
    rounding: str = "once",
    enable_pdl: bool | None = None,
    stream: Any = None,
) -> tuple[Any, Any]:
    """SwiGLU, ``silu(gate) * value``, then what `scaled_fp4_grouped_quantize` does, in one pass.

    Arguments, results and errors are the same, except for `a`, whose shape is (B, M, 2 * K), with K gates and then K
    values in each row. `rounding` is as in `silu_and_mul_quantize`; FlashInfer uses ``output``.

    Example:
        >>> import numpy as np
        >>> a, mask = np.ones((3, 200, 128), np.float16), np.array([0, 7, 200], np.int32)
        >>> codes, scales = silu_and_mul_scaled_nvfp4_experts_quantize(a, mask, np.ones(1, np.float32))
        >>> codes.shape, scales.shape
        ((200, 32, 3), (32, 4, 2, 4, 1, 3))
    """
    made: tuple[Any, Any] = _MASKED_CALLS.call(
        a, mask, a_global_sf, stream, SILU_AND_MUL_SCALED_NVFP4_EXPERTS_QUANTIZE, enable_pdl, rounding, 16,
        recipe_of(nvfp4_4over6),
    )  # fmt: skip
    return made


def mxfp8_grouped_quantize(
    a: Any, mask: Any, backend: str = "cutile", *, enable_pdl: bool | None = None, stream: Any = None
) -> tuple[Any, Any]:
    """MXFP8 quantization of the first ``mask[b]`` rows of each matrix b, as the input of a masked grouped GEMM.

    Nothing is written for the other rows, neither codes nor scales: there the outputs are uninitialized memory.

    Args:
        a: float16, bfloat16, float32 or float8_e4m3fn, shape (B, M, K), K divisible by 32; rows at any stride.
        mask: int32, shape (B,), how many rows each matrix has; counts below 0 are 0, above M they are M.
        backend: ``cutile`` or ``cake``, which are the same kernel here.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        ``(codes, scales)``: float8_e4m3fn of shape (M, roundup(K, 128), B), with zeros in the added columns, and uint8
        of shape (32, 4, ceil(M / 128), 4, ceil(K / 128), B), as in `scaled_fp4_grouped_quantize`.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> codes, scales = mxfp8_grouped_quantize(np.ones((3, 200, 96), np.float16), np.array([0, 7, 200], np.int32))
        >>> codes.shape, scales.shape
        ((200, 128, 3), (32, 4, 2, 4, 1, 3))
    """
    made: tuple[Any, Any] = _MXFP8_CALLS.call(a, mask, stream, enable_pdl, backend)
    return made


def _check_batch(a: Shape) -> None:
    if len(a) != 3:
        raise ValueError(f"a: has {len(a)} dimensions; expected (B, M, K)")


def _calls(
    a: Shape, global_scale: Kind, op: Op, enable_pdl: bool | None, rounding: str, block_size: int,
    recipe: Any,
) -> tuple[Dispatcher, Form]:  # fmt: skip
    _check_batch(a)
    options = (block_size, recipe, global_scale is not False, is_per_matrix(global_scale))
    return rounded_dispatcher(op, enable_pdl, rounding, *options), _FORMS[op]


def _check_mask(has_mask: bool) -> None:
    if not has_mask:
        raise TypeError("mask: is None; expected a tensor that counts the rows of each matrix")


def _masked_calls(a: Shape, has_mask: bool, global_scale: Kind, *options: Any) -> tuple[Dispatcher, Form]:
    _check_mask(has_mask)
    return _calls(a, global_scale, *options)


def _mxfp8_calls(a: Shape, has_mask: bool, enable_pdl: bool | None, backend: str) -> tuple[Dispatcher, Form]:
    _check_batch(a)
    _check_mask(has_mask)
    return dispatcher_of(MXFP8_GROUPED_QUANTIZE, enable_pdl, backend), _MXFP8


_FORMS = {
    NVFP4_BATCHED_QUANTIZE: _BATCHED,
    SCALED_FP4_GROUPED_QUANTIZE: _NVFP4,
    SILU_AND_MUL_SCALED_NVFP4_EXPERTS_QUANTIZE: _GATED_NVFP4,
}
_CALLS = Known(_calls, "a@0 mask a_global_sf?@8")
_MASKED_CALLS = Known(_masked_calls, "a@0 mask? a_global_sf?@8")
_MXFP8_CALLS = Known(_mxfp8_calls, "a@0 mask?")
