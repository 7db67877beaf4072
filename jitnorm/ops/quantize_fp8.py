"""MXFP8 quantization alone, as FlashInfer has it."""

from __future__ import annotations

from typing import Any

from jitnorm.dispatch import Allocated, Dispatcher, per_options
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.numerics import round_up
from jitnorm.kernels.quant_spec import MXFP8, require_one_of
from jitnorm.kernels.row_ops import padded_rows
from jitnorm.ops.run import run
from jitnorm.ops.sf_layout import layout_name


@per_options
def _dispatcher(is_swizzled: bool, alignment: int, enable_pdl: bool | None, backend: str, sf_layout: Any) -> Dispatcher:
    require_one_of("backend", backend, ("cuda", "cute-dsl"))
    layout = "128x4" if is_swizzled else "linear"
    quant = MXFP8.with_layout(layout if sf_layout is None else layout_name("sf_swizzle_layout", sf_layout))
    return Dispatcher(enable_pdl, allocations=_flat_scales, op="quantize", quant=quant, alignment=alignment)


def _flat_scales(config: KernelConfig) -> Allocated:
    columns = config.encoded_size // config.block_size
    swizzled = config.quant is not None and config.quant.is_swizzled
    return {"block_scale": ((["*", padded_rows(config), round_up(columns, 4) if swizzled else columns],), "uint8")}


def mxfp8_quantize(
    input: Any,
    is_sf_swizzled_layout: bool = True,
    alignment: int = 32,
    enable_pdl: bool | None = None,
    backend: str = "cuda",
    sf_swizzle_layout: Any = None,
    *,
    stream: Any = None,
) -> tuple[Any, Any]:
    """MXFP8 quantization: blocks of 32 E4M3 codes with scales in UE8M0.

    docs/numerics.md defines every bit. The same bytes come from every GPU and from the CPU.

    Args:
        input: float16, bfloat16, float32 or float8_e4m3fn, shape (..., K), up to 262144 elements a row, divisible by
            32; rows at any stride.
        is_sf_swizzled_layout: whether the scales have the 128x4 layout that block-scaled MMA reads.
        alignment: what K is rounded up to, a multiple of 32; codes and scales of the columns added are zero.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU can.
        backend: ``cuda`` or ``cute-dsl``, which are the same kernel here.
        sf_swizzle_layout: an `SfLayout`, or FlashInfer's, in place of `is_sf_swizzled_layout`; or None.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        ``(codes, scales)``: float8_e4m3fn (..., roundup(K, alignment)), and uint8, flat, in the layout asked for, with
        zeros as padding.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is no tensor of a known framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> codes, scales = mxfp8_quantize(np.ones((2, 96), np.float16), False, alignment=128)
        >>> codes.shape, scales.tolist()
        ((2, 128), [119, 119, 119, 0, 119, 119, 119, 0])
    """
    dispatcher = _dispatcher(is_sf_swizzled_layout, alignment, enable_pdl, backend, sf_swizzle_layout)
    _, codes, scales = run(dispatcher, (input, None, None), (), stream, allocates=True)
    return codes, scales
