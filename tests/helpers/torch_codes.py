"""Quantization by torch's own operations, as references for names of other libraries."""

from __future__ import annotations

import torch

FP8 = torch.float8_e4m3fn


def same(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether both have the same shape, dtype and bytes."""
    parts = [tensor.cpu().contiguous().view(-1).view(torch.uint8) for tensor in (found, expected)]
    return found.shape == expected.shape and found.dtype == expected.dtype and torch.equal(*parts)


def fp8_codes(y: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """E4M3 codes of values divided by scales, which saturate."""
    return (y.float() * (1 / scales)).clamp(-448, 448).to(FP8)


def group_scales(y: torch.Tensor, size: int, is_power: bool = False) -> torch.Tensor:
    """The scales of E4M3 of each group of a row, with an amax of at least 1e-10, as powers of two or not."""
    amax = y.float().unflatten(-1, (-1, size)).abs().amax(-1).clamp(min=1e-10)
    return torch.exp2(torch.ceil(torch.log2(amax.double() / 448))).float() if is_power else amax / 448


def group_codes(y: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """E4M3 codes of the groups of a row that have these scales."""
    return fp8_codes(y.unflatten(-1, (scales.shape[-1], -1)), scales.unsqueeze(-1)).flatten(-2)


def exponents(scales: torch.Tensor) -> torch.Tensor:
    """The bytes of powers of two in UE8M0."""
    return (torch.log2(scales) + 127).to(torch.uint8)


def swizzled(scales: torch.Tensor) -> torch.Tensor:
    """A matrix of scales in the 128x4 layout, flat, with zeros as padding."""
    rows, columns = scales.shape
    height, width = -(-rows // 128), -(-columns // 4)
    padded = torch.zeros(height * 128, width * 4, dtype=scales.dtype)
    padded[:rows, :columns] = scales.cpu()
    return padded.view(height, 4, 32, width, 4).permute(0, 3, 2, 1, 4).reshape(-1)
