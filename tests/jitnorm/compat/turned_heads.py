"""Rotated heads in plain torch."""

from __future__ import annotations

import torch


def angles(positions: torch.Tensor, frequencies: torch.Tensor) -> torch.Tensor:
    """Cosines, then sines, of each position, (tokens, rotary size), float32."""
    turns = positions.double()[:, None] * frequencies.double()
    return torch.cat([turns.cos(), turns.sin()], -1).float()


def turned(x: torch.Tensor, rows: torch.Tensor, is_neox: bool) -> torch.Tensor:
    """Heads, (tokens, heads, size), rotated by the row of each token, unrounded in float32.

    float64 holds each first product, so that its sum with the second, in float32, is a fused one.
    """
    size = rows.shape[-1]
    cos, sin = (half.double()[:, None] for half in rows.chunk(2, -1))
    part, rest = x.double().split([size, x.shape[-1] - size], -1)
    first, second = part.chunk(2, -1) if is_neox else (part[..., ::2], part[..., 1::2])
    both = first * cos - (second * sin).float().double(), second * cos + (first * sin).float().double()
    found = torch.cat(both, -1) if is_neox else torch.stack(both, -1).flatten(-2)
    return torch.cat([found, rest], -1).float()


def codes(values: torch.Tensor, factor: float, dtype: torch.dtype = torch.float8_e4m3fn) -> torch.Tensor:
    """FP8 of values times a factor, saturating, as bytes."""
    largest = torch.finfo(dtype).max
    return (values.float() * factor).clamp(-largest, largest).to(dtype).view(torch.uint8)
