"""The arguments of vLLM's functions, and how close their results are to torch's."""

from __future__ import annotations

import torch

ROWS, SIZE, EPS = 6, 256, 1e-5
FP8, INT8 = torch.float8_e4m3fn, torch.int8
X = torch.randn(ROWS, SIZE, generator=torch.Generator().manual_seed(1)).bfloat16()
RESIDUAL = torch.randn(ROWS, SIZE, generator=torch.Generator().manual_seed(2)).bfloat16()
WEIGHT = torch.linspace(0.5, 1.5, SIZE).bfloat16()
SCALE = torch.tensor([0.02])


def same(found: torch.Tensor, expected: torch.Tensor) -> bool:
    return found.shape == expected.shape and torch.equal(
        found.contiguous().view(torch.uint8), expected.contiguous().view(torch.uint8)
    )


def norm_by_steps(wide: torch.Tensor) -> torch.Tensor:
    """The norm of unrounded values, rounded at each step, by torch."""
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPS)).to(X.dtype) * WEIGHT


def fp8_codes(y: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return (y.float() * (1 / scale)).clamp(-448, 448).to(FP8)


def int8_codes(y: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return (y.float() * (1 / scale)).round().clamp(-128, 127).to(INT8)


def close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether few codes differ, and only slightly: each library sums squares in a different order."""
    far = (found.float() - expected.float()).abs() > 0.13 * expected.float().abs() + 1
    return not far.any() and (found.float() != expected.float()).float().mean() < 0.01
