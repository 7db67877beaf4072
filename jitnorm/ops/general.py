"""The general form of quantization, over QuantSpec: every combination, also those that have no name of their own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from jitnorm.dispatch import Dispatcher
from jitnorm.kernels.quant_spec import QuantSpec
from jitnorm.ops.run import run_named


@dataclass(frozen=True)
class QuantizedTensor:
    """What an encoding gives, complete: a consumer needs nothing else.

    Args:
        data: the codes: E2M1 two a byte, element 2i in the low nibble; FP8 one a byte.
        scale: the scales in the layout that `spec` names: of the blocks, of the rows (M,), or the given one.
        global_scale: the encode scale that was given, or None.
        row_scale: the decode scale of each row, float32 (M,), if `spec.global_scale` is ``row``, else None.
        scale_unswizzled: the scales in the linear layout, if `spec` asks for both layouts, else None.
        spec: how the values are encoded.
        shape: the logical shape, in values.
        axis: the dimension that blocks and codes run along: -1, or 0 for weights from `quantize_weight`.
    """

    data: Any
    scale: Any
    global_scale: Any
    row_scale: Any
    scale_unswizzled: Any
    spec: QuantSpec
    shape: tuple[int, ...]
    axis: int = -1


@cache
def _dispatcher(
    op: str, residual: bool, unit_bias: bool, keep_norm: bool, quant: QuantSpec, enable_pdl: bool | None
) -> Dispatcher:
    options: dict[str, Any] = {"op": op, "quant": quant}
    if op != "quantize":
        options |= {"residual": residual, "unit_bias": unit_bias, "keep_norm": keep_norm}
    return Dispatcher(enable_pdl, **options)


def norm_quantize(
    input: Any,
    weight: Any,
    *,
    spec: QuantSpec,
    residual: Any = None,
    global_scale: Any = None,
    scale: Any = None,
    eps: float = 1e-06,
    unit_bias: bool = False,
    y_out: Any = None,
    enable_pdl: bool | None = None,
    stream: Any = None,
) -> QuantizedTensor:
    """RMSNorm, then quantization of the unrounded result, in one pass: any input and any QuantSpec.

    Args:
        input: float16, bfloat16 or float32, shape (..., hidden_size); rows at any stride.
        weight: shape (hidden_size,), the input's dtype or float32.
        spec: how to encode, such as ``jitnorm.NVFP4.with_layout("128x4")`` or ``jitnorm.MXFP8``.
        residual: like the input, or None; added first, and becomes the sum, rounded to its dtype.
        global_scale: ``"row"`` for one that is found for each row; a float32 tensor of one element, the encode scale;
            None for none. Only with block scales in e4m3.
        scale: float32 tensor of one element, the divisor, if `spec.block_size` is ``tensor``.
        eps: added to the mean of squares.
        unit_bias: whether 1 is added to the weight, as Gemma does.
        y_out: where to write the norm itself, too, rounded to the input's dtype; None: nowhere.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU can.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        the codes and scales, allocated in the input's framework.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is no tensor of a known framework.

    Example:
        >>> import numpy as np
        >>> x, mxfp8 = np.ones((2, 64), np.float16), QuantSpec("e4m3", 32, "ue8m0")
        >>> q = norm_quantize(x, np.ones(64, np.float16), spec=mxfp8)
        >>> q.data.dtype.name, q.scale.shape
        ('float8_e4m3fn', (2, 2))
    """
    spec, given = with_global_scale(spec, global_scale)
    dispatcher = _dispatcher("rmsnorm", residual is not None, unit_bias, y_out is not None, spec, enable_pdl)
    tensors = {
        "input": input, "residual": residual, "weight": weight, "global_scale": given, "scale": scale,
        "residual_out": residual, "y_out": y_out,
    }  # fmt: skip
    return quantized(spec, run_named(dispatcher, tensors, (eps,), stream), tuple(input.shape))


def quantize(
    input: Any,
    *,
    spec: QuantSpec,
    global_scale: Any = None,
    scale: Any = None,
    enable_pdl: bool | None = None,
    stream: Any = None,
) -> QuantizedTensor:
    """Quantization alone: any input and any QuantSpec. The arguments are those of `norm_quantize`.

    Example:
        >>> import numpy as np
        >>> q = quantize(np.ones((2, 64), np.float16), spec=QuantSpec("e2m1", 16, "e4m3"), global_scale="row")
        >>> q.data.shape, q.row_scale.shape
        ((2, 32), (2,))
    """
    spec, given = with_global_scale(spec, global_scale)
    dispatcher = _dispatcher("quantize", False, False, False, spec, enable_pdl)
    tensors = {"input": input, "global_scale": given, "scale": scale}
    return quantized(spec, run_named(dispatcher, tensors, (), stream), tuple(input.shape))


def with_global_scale(spec: QuantSpec, global_scale: Any) -> tuple[QuantSpec, Any]:
    """The spec for what the caller gave as `global_scale`, and the tensor to pass, if any."""
    if isinstance(global_scale, str):
        return replace(spec, global_scale=global_scale), None
    return (spec if global_scale is None else replace(spec, global_scale="given")), global_scale


def quantized(spec: QuantSpec, made: dict[str, Any], shape: tuple[int, ...]) -> QuantizedTensor:
    """A call's tensors, by their names, as one."""
    row_scale = made.get("row_scale")
    if not spec.has_blocks:
        return QuantizedTensor(made["out"], made.get("scale", row_scale), None, None, None, spec, shape)
    return QuantizedTensor(
        data=made["y_fp4" if spec.element == "e2m1" else "out"],
        scale=made["block_scale"],
        global_scale=made.get("global_scale"),
        row_scale=row_scale,
        scale_unswizzled=made.get("block_scale_unswizzled"),
        spec=spec,
        shape=shape,
    )
