"""RMSNorm fused with FP4 quantization, with and without a residual."""

from __future__ import annotations

from functools import cache
from typing import Any

from jitnorm.dispatch import Dispatcher
from jitnorm.interop import direct
from jitnorm.kernels.quant_spec import QuantSpec
from jitnorm.ops.run import run


@cache
def _dispatcher(
    residual: bool,
    keep_norm: bool,
    block_size: int,
    scale_format: str | None,
    swizzled: bool,
    both: bool,
    has_global_scale: bool,
    enable_pdl: bool | None,
) -> Dispatcher:
    default_format = "e4m3" if block_size == 16 else "ue8m0"
    layout = "linear+128x4" if both else "128x4" if swizzled else "linear"
    global_scale = "given" if has_global_scale else "none"
    quant = QuantSpec("e2m1", block_size, scale_format or default_format, layout, global_scale)
    return Dispatcher(enable_pdl, op="rmsnorm", residual=residual, keep_norm=keep_norm, quant=quant)


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
    stream: Any = None,
) -> Any:
    """RMSNorm, then FP4 quantization of the unrounded result, in one pass over the input.

    Block 16 with ``e4m3`` is NVFP4, block 32 with ``ue8m0`` is MXFP4; both crossed combinations exist too.
    docs/numerics.md defines every bit. The same bytes come from every GPU and from the CPU.

    Args:
        input: float16, bfloat16 or float32, shape (..., hidden_size), up to 262144 elements a row, divisible by
            `block_size`; rows at any stride.
        weight: shape (hidden_size,), the input's dtype or float32.
        y_fp4: where to write the codes, two a byte, shape (..., hidden_size / 2): float4_e2m1fn_x2 or uint8; rows at
            any stride; None allocates.
        block_scale: where to write the scales, float8_e4m3fn (or uint8) or, for ``ue8m0``, uint8: linear
            (..., hidden_size / block_size), or swizzled and flat, (roundup(M, 128) * roundup(columns, 4),), padding
            zero; contiguous; None allocates.
        global_scale: float32 tensor of one element on the input's device, the encode scale (448 * 6 / amax of the
            tensor), or None for 1; with ``ue8m0`` it must be None.
        eps: added to the mean of squares.
        block_size: values that share a scale, 16 or 32.
        scale_format: ``e4m3`` or ``ue8m0``; None: ``e4m3`` for block 16, ``ue8m0`` for block 32.
        is_sf_swizzled_layout: whether `block_scale` has the 128x4 layout that block-scaled MMA reads.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU can.
        output_both_sf_layouts: write the scales in both layouts, `block_scale` being the swizzled one.
        block_scale_unswizzled: where to write the linear scales then; None allocates.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        ``(y_fp4, block_scale)``, or ``(y_fp4, block_scale, block_scale_unswizzled)`` with both layouts.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is no tensor of a known framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> x = np.linspace(-1, 1, 128, dtype=np.float16).reshape(2, 64)
        >>> codes, scales = rmsnorm_fp4quant(x, np.ones(64, np.float16))
        >>> codes.shape, scales.shape, scales.dtype.name
        ((2, 32), (2, 4), 'float8_e4m3fn')
    """
    dispatcher = _dispatcher(
        False, False, block_size, scale_format, is_sf_swizzled_layout, output_both_sf_layouts,
        global_scale is not None, enable_pdl,
    )  # fmt: skip
    admits = direct.get(type(input))
    if (
        stream is None and global_scale is None and block_scale_unswizzled is None and not output_both_sf_layouts
        and admits is not None and direct.get(type(weight)) is admits
        and direct.get(type(y_fp4)) is admits and direct.get(type(block_scale)) is admits
    ):  # fmt: skip
        # The usual call goes straight to the launcher; see docs/measured.md.
        try:
            if (
                admits((input, weight, y_fp4, block_scale), (y_fp4, block_scale))
                and dispatcher.launch(input, weight, y_fp4, block_scale, eps) is None
            ):
                return y_fp4, block_scale
        except (RuntimeError, TypeError, ValueError):
            pass  # nothing has run; the long way raises it again, in the caller's words
    scales, allocates = scale_outputs(block_scale, output_both_sf_layouts, block_scale_unswizzled)
    given = () if global_scale is None else (global_scale,)
    made = run(dispatcher, (input, weight, y_fp4, *scales, *given), (eps,), stream, allocates or y_fp4 is None)
    return made[2:5] if output_both_sf_layouts else made[2:4]


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
    stream: Any = None,
) -> Any:
    """Add the residual, then RMSNorm of the float32 sum, then FP4 quantization, in one pass.

    The input stays as it is. The residual, like the input and with rows at any stride, becomes the sum, rounded to its
    dtype. `y_out` receives the norm itself, too, rounded to the input's dtype. All else is as in `rmsnorm_fp4quant`.

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
    dispatcher = _dispatcher(
        True, y_out is not None, block_size, scale_format, is_sf_swizzled_layout, output_both_sf_layouts,
        global_scale is not None, enable_pdl,
    )  # fmt: skip
    scales, allocates = scale_outputs(block_scale, output_both_sf_layouts, block_scale_unswizzled)
    given = () if global_scale is None else (global_scale,)
    kept = () if y_out is None else (y_out,)
    tensors = (input, residual, weight, y_fp4, *scales, *given, residual, *kept)
    made = run(dispatcher, tensors, (eps,), stream, allocates or y_fp4 is None)
    return made[3:6] if output_both_sf_layouts else made[3:5]


def scale_outputs(block_scale: Any, both: bool, unswizzled: Any) -> tuple[tuple[Any, ...], bool]:
    """The tensors that receive scales, and whether one of them is None."""
    if both:
        return (block_scale, unswizzled), block_scale is None or unswizzled is None
    if unswizzled is not None:
        raise ValueError(
            "block_scale_unswizzled: is given, but the scales are written in one layout; "
            "pass None or output_both_sf_layouts=True"
        )
    return (block_scale,), block_scale is None
