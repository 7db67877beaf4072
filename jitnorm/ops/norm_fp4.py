"""RMSNorm fused with FP4 quantization, with and without a residual."""

from __future__ import annotations

from typing import Any

from jitnorm.catalogue.encoding_norms import ADD_RMSNORM_FP4QUANT, RMSNORM_FP4QUANT
from jitnorm.catalogue.op import Op
from jitnorm.dispatch import Dispatcher, rounded_dispatcher
from jitnorm.ops.forms import Form, Known

_PARAMETERS = "input residual weight y_fp4 block_scale block_scale_unswizzled global_scale residual_out y_out eps"
_ONE_LAYOUT = Form(_PARAMETERS, "({y_fp4}, {block_scale})")
_BOTH_LAYOUTS = Form(_PARAMETERS, "({y_fp4}, {block_scale}, {block_scale_unswizzled})")


def rmsnorm_fp4quant(
    input: Any,
    weight: Any,
    y_fp4: Any = None,
    block_scale: Any = None,
    global_scale: Any = None,
    eps: float = 1e-06,
    block_size: int = 16,
    scale_format: str | None = None,
    is_sf_swizzled_layout: bool = False,
    enable_pdl: bool | None = None,
    *,
    output_both_sf_layouts: bool = False,
    block_scale_unswizzled: Any = None,
    rounding: str = "once",
    stream: Any = None,
) -> Any:
    """RMSNorm, then FP4 quantization of the unrounded result, in one pass over the input.

    Blocks of 16 with ``e4m3`` are NVFP4, blocks of 32 with ``ue8m0`` MXFP4; both crossed combinations exist, too.
    docs/numerics.md and docs/encodings.md define every bit. The same bytes come from every GPU and from the CPU.

    Args:
        input: float16, bfloat16 or float32, shape (..., hidden_size), up to 262144 elements per row, divisible by
            `block_size`; rows at any stride.
        weight: shape (hidden_size,), the input's dtype or float32.
        y_fp4: where to write the codes, two per byte, shape (..., hidden_size / 2): float4_e2m1fn_x2 or uint8; rows at
            any stride; None allocates.
        block_scale: where to write the scales, float8_e4m3fn (or uint8) or, for ``ue8m0``, uint8: linear (...,
            hidden_size / block_size), or, for M rows in all, swizzled and flat, (roundup(M, 128) * roundup(hidden_size
            / block_size, 4),), padded with zeros; contiguous; None allocates.
        global_scale: float32 tensor of one element on the input's device, the encode scale (448 * 6 / amax of the
            tensor), or None for 1; with ``ue8m0`` it must be None.
        eps: added to the mean of squares.
        block_size: values that share a scale, 16 or 32.
        scale_format: ``e4m3`` or ``ue8m0``; None: ``e4m3`` for block 16, ``ue8m0`` for block 32.
        is_sf_swizzled_layout: whether `block_scale` has the 128x4 layout for block-scaled MMA.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        output_both_sf_layouts: write the scales in both layouts, with the swizzled one in `block_scale`.
        block_scale_unswizzled: where to write the linear scales in that case; None allocates.
        rounding: as in `norm_quantize`.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        ``(y_fp4, block_scale)``, or ``(y_fp4, block_scale, block_scale_unswizzled)`` with both layouts.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> x = np.linspace(-1, 1, 128, dtype=np.float16).reshape(2, 64)
        >>> codes, scales = rmsnorm_fp4quant(x, np.ones(64, np.float16))
        >>> codes.shape, scales.shape, scales.dtype.name
        ((2, 32), (2, 4), 'float8_e4m3fn')
    """
    return _CALLS.call(
        input, None, weight, y_fp4, block_scale, block_scale_unswizzled, global_scale, None, None, eps, stream,
        RMSNORM_FP4QUANT, enable_pdl, rounding, block_size, scale_format, is_sf_swizzled_layout, output_both_sf_layouts,
    )  # fmt: skip


def add_rmsnorm_fp4quant(
    input: Any,
    residual: Any,
    weight: Any,
    y_fp4: Any = None,
    block_scale: Any = None,
    global_scale: Any = None,
    eps: float = 1e-06,
    block_size: int = 16,
    scale_format: str | None = None,
    is_sf_swizzled_layout: bool = False,
    output_both_sf_layouts: bool = False,
    block_scale_unswizzled: Any = None,
    enable_pdl: bool | None = None,
    y_out: Any = None,
    *,
    rounding: str = "once",
    stream: Any = None,
) -> Any:
    """Add the residual, then RMSNorm of the float32 sum, then FP4 quantization, in one pass.

    The input is unchanged. The residual, like the input and with rows at any stride, becomes the sum, rounded to its
    dtype. If given, `y_out` also receives the norm, rounded to the input's dtype. Everything else is as in
    `rmsnorm_fp4quant`.

    Returns:
        ``(y_fp4, block_scale)``, or ``(y_fp4, block_scale, block_scale_unswizzled)`` with both layouts.

    Example:
        >>> import numpy as np
        >>> x = np.linspace(-1, 1, 128, dtype=np.float16).reshape(2, 64)
        >>> residual = np.ones_like(x)
        >>> codes, scales = add_rmsnorm_fp4quant(x, residual, np.ones(64, np.float16))
        >>> float(residual[0, 0]), float(residual[-1, -1])
        (0.0, 2.0)
    """
    return _CALLS.call(
        input, residual, weight, y_fp4, block_scale, block_scale_unswizzled, global_scale, residual, y_out, eps, stream,
        ADD_RMSNORM_FP4QUANT, enable_pdl, rounding, block_size, scale_format, is_sf_swizzled_layout,
        output_both_sf_layouts,
    )  # fmt: skip


def calls_of_fp4(
    has_unswizzled: bool, has_global: bool, keeps_norm: bool, op: Op, enable_pdl: bool | None, rounding: str,
    block_size: int, scale_format: str | None, is_swizzled: bool, both: bool,
) -> tuple[Dispatcher, Form]:  # fmt: skip
    """The dispatcher of an op's calls with such options, and their form."""
    options = (block_size, scale_format, is_swizzled, both, has_global, keeps_norm)
    dispatcher = rounded_dispatcher(op, enable_pdl, rounding, *options)
    check_unswizzled(has_unswizzled, both)
    return dispatcher, _BOTH_LAYOUTS if both else _ONE_LAYOUT


FP4_ARGUMENTS = "input residual weight y_fp4 block_scale block_scale_unswizzled? global_scale? residual_out y_out? eps"
_CALLS = Known(calls_of_fp4, FP4_ARGUMENTS)


def check_unswizzled(is_given: bool, both: bool) -> None:
    """Raise ValueError if an output for linear scales is given, but both layouts are not requested."""
    if is_given and not both:
        raise ValueError(
            "block_scale_unswizzled: is given, but the scales are written in one layout; "
            "pass None or output_both_sf_layouts=True"
        )
