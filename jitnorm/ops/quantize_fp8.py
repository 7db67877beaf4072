"""MXFP8 quantization alone, as in FlashInfer."""

from __future__ import annotations

from typing import Any

from jitnorm.catalogue.quantizers import MXFP8_QUANTIZE
from jitnorm.dispatch import Dispatcher, dispatcher_of
from jitnorm.ops.forms import Form, Known

_FORM = Form("input", "({out}, {block_scale})")


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
    """MXFP8 quantization: blocks of 32 E4M3 codes with scales in UE8M0, the power of two at or above ``amax / 448``.

    docs/encodings.md defines every bit. The same bytes come from every GPU and from the CPU. The format is that of the
    Open Compute Project, "OCP Microscaling Formats (MX) Specification" (2023).

    Args:
        input: float16, bfloat16, float32 or float8_e4m3fn, shape (..., K), up to 262144 elements per row, divisible by
            32; rows at any stride.
        is_sf_swizzled_layout: whether the scales have the 128x4 layout for block-scaled MMA.
        alignment: K is rounded up to a multiple of it, itself a multiple or a divisor of 32; codes and scales of the
            added columns are zero.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        backend: ``cuda`` or ``cute-dsl``, which are the same kernel here.
        sf_swizzle_layout: an `SfLayout` or FlashInfer's, in place of `is_sf_swizzled_layout`; or None.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        ``(codes, scales)``: float8_e4m3fn (..., roundup(K, alignment)), and uint8, flat, in the requested layout,
        padded with zeros.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> codes, scales = mxfp8_quantize(np.ones((2, 96), np.float16), False, alignment=128)
        >>> codes.shape, scales.tolist()
        ((2, 128), [119, 119, 119, 0, 119, 119, 119, 0])
    """
    options = (enable_pdl, is_sf_swizzled_layout, alignment, backend, sf_swizzle_layout)
    made: tuple[Any, Any] = _CALLS.call(input, stream, *options)
    return made


def _calls(*options: Any) -> tuple[Dispatcher, Form]:
    """The dispatcher of calls with such options, and their form."""
    return dispatcher_of(MXFP8_QUANTIZE, *options), _FORM


_CALLS = Known(_calls, "input")
