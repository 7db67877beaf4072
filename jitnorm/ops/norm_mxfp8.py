"""RMSNorm fused with MXFP8 quantization, with and without a residual."""

from __future__ import annotations

from typing import Any

from jitnorm.catalogue.encoding_norms import ADD_RMSNORM_MXFP8QUANT, RMSNORM_MXFP8QUANT
from jitnorm.catalogue.op import Op
from jitnorm.dispatch import Dispatcher, rounded_dispatcher
from jitnorm.ops.forms import Form, Known
from jitnorm.ops.norm_fp4 import check_unswizzled

_PARAMETERS = "input residual weight out block_scale block_scale_unswizzled residual_out y_out eps"
_ONE_LAYOUT = Form(_PARAMETERS, "({out}, {block_scale})")
_BOTH_LAYOUTS = Form(_PARAMETERS, "({out}, {block_scale}, {block_scale_unswizzled})")


def rmsnorm_mxfp8quant(
    input: Any,
    weight: Any,
    y_fp8: Any = None,
    block_scale: Any = None,
    eps: float = 1e-06,
    is_sf_swizzled_layout: bool = False,
    enable_pdl: bool | None = None,
    *,
    output_both_sf_layouts: bool = False,
    block_scale_unswizzled: Any = None,
    rounding: str = "once",
    stream: Any = None,
) -> Any:
    """RMSNorm, then MXFP8 quantization of the unrounded result, in one pass over the input.

    The counterpart of `rmsnorm_fp4quant` for E4M3 codes in blocks of 32 with UE8M0 scales.

    Args:
        input: float16, bfloat16 or float32, shape (..., hidden_size), up to 262144 elements per row, divisible by 32;
            rows at any stride.
        weight: shape (hidden_size,), the input's dtype or float32.
        y_fp8: where to write the codes, shape of the input, float8_e4m3fn or uint8; rows at any stride; None allocates.
        block_scale: where to write the scales, uint8: linear (..., hidden_size / 32), or swizzled, padded with zeros,
            with roundup(M, 128) * roundup(hidden_size / 32, 4) elements for M rows in all; contiguous; None allocates,
            flat if swizzled.
        eps: added to the mean of squares.
        is_sf_swizzled_layout: whether `block_scale` has the 128x4 layout for block-scaled MMA.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        output_both_sf_layouts: write the scales in both layouts, with the swizzled one in `block_scale`.
        block_scale_unswizzled: where to write the linear scales in that case; None allocates.
        rounding: as in `norm_quantize`.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        ``(y_fp8, block_scale)``, or ``(y_fp8, block_scale, block_scale_unswizzled)`` with both layouts.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> x = np.linspace(-1, 1, 128, dtype=np.float16).reshape(2, 64)
        >>> codes, scales = rmsnorm_mxfp8quant(x, np.ones(64, np.float16))
        >>> codes.shape, codes.dtype.name, scales.shape
        ((2, 64), 'float8_e4m3fn', (2, 2))
    """
    return _CALLS.call(
        input, None, weight, y_fp8, block_scale, block_scale_unswizzled, None, None, eps, stream, RMSNORM_MXFP8QUANT,
        enable_pdl, rounding, is_sf_swizzled_layout, output_both_sf_layouts,
    )  # fmt: skip


def add_rmsnorm_mxfp8quant(
    input: Any,
    residual: Any,
    weight: Any,
    y_fp8: Any = None,
    block_scale: Any = None,
    eps: float = 1e-06,
    is_sf_swizzled_layout: bool = False,
    output_both_sf_layouts: bool = False,
    block_scale_unswizzled: Any = None,
    enable_pdl: bool | None = None,
    y_out: Any = None,
    *,
    rounding: str = "once",
    stream: Any = None,
) -> Any:
    """Add the residual, then RMSNorm of the float32 sum, then MXFP8 quantization, in one pass.

    The input is unchanged. The residual, like the input and with rows at any stride, becomes the sum, rounded to its
    dtype. If given, `y_out` also receives the norm, rounded to the input's dtype. Everything else is as in
    `rmsnorm_mxfp8quant`.

    Returns:
        ``(y_fp8, block_scale)``, or ``(y_fp8, block_scale, block_scale_unswizzled)`` with both layouts.

    Example:
        >>> import numpy as np
        >>> x = np.linspace(-1, 1, 128, dtype=np.float16).reshape(2, 64)
        >>> residual = np.ones_like(x)
        >>> codes, scales = add_rmsnorm_mxfp8quant(x, residual, np.ones(64, np.float16))
        >>> float(residual[0, 0]), float(residual[-1, -1])
        (0.0, 2.0)
    """
    return _CALLS.call(
        input, residual, weight, y_fp8, block_scale, block_scale_unswizzled, residual, y_out, eps, stream,
        ADD_RMSNORM_MXFP8QUANT, enable_pdl, rounding, is_sf_swizzled_layout, output_both_sf_layouts,
    )  # fmt: skip


def _calls(
    has_unswizzled: bool, keeps_norm: bool, op: Op, enable_pdl: bool | None, rounding: str, is_swizzled: bool,
    both: bool,
) -> tuple[Dispatcher, Form]:  # fmt: skip
    """The dispatcher of an op's calls with such options, and their form."""
    dispatcher = rounded_dispatcher(op, enable_pdl, rounding, is_swizzled, both, keeps_norm)
    check_unswizzled(has_unswizzled, both)
    return dispatcher, _BOTH_LAYOUTS if both else _ONE_LAYOUT


_CALLS = Known(_calls, "input residual weight y_fp8 block_scale block_scale_unswizzled? residual_out y_out? eps")
