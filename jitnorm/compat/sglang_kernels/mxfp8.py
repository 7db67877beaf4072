"""SGLang's kernels of MXFP8."""

from __future__ import annotations

from typing import NamedTuple

import torch

import jitnorm
from jitnorm.compat.arguments import spec_of

MXFP8_SWIZZLED = spec_of("e4m3", 32, "ue8m0", "128x4")


class MXFP8Tensor(NamedTuple):
    """Codes and scales, as `to_mxfp8` returns them."""

    data: torch.Tensor
    scale: torch.Tensor


def to_mxfp8(x: torch.Tensor) -> MXFP8Tensor:
    """MXFP8 of rows: codes (..., hidden_size), and scales, uint8 (..., hidden_size / 32)."""
    q = jitnorm.quantize(x, spec=jitnorm.MXFP8)
    return MXFP8Tensor(q.data, q.scale)


def can_use_mxfp8_swizzled(x: torch.Tensor) -> bool:
    """Whether `mxfp8_quantize_swizzled` has such rows."""
    is_float = x.dtype in (torch.float16, torch.bfloat16, torch.float32)
    return x.ndim == 2 and is_float and x.stride(-1) == 1 and x.shape[-1] % 32 == 0


def mxfp8_quantize_swizzled(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """MXFP8 of a matrix: codes, and swizzled scales, uint8, flat."""
    if not can_use_mxfp8_swizzled(x):
        raise ValueError(
            f"x: is {x.dtype} {tuple(x.shape)}; expected (rows, k) in 16 or 32 bits, with k divisible by 32"
        )
    q = jitnorm.quantize(x, spec=MXFP8_SWIZZLED)
    return q.data, q.scale
