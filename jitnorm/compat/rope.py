"""Rotation of heads for other libraries' functions, and the angles that they rotate by."""

from __future__ import annotations

import math

import torch

import jitnorm
from jitnorm.compat.constants import remembered


def turn(
    query: torch.Tensor, key: torch.Tensor | None, head_size: int, cos_sin_cache: torch.Tensor, is_neox: bool,
    positions: torch.Tensor, outputs: tuple[torch.Tensor, torch.Tensor | None], first: int = 0,
) -> None:  # fmt: skip
    """Write rotated queries and keys.

    Args:
        query: (..., heads * head_size) or (..., heads, head_size).
        key: likewise; None for no keys.
        head_size: elements of a head.
        cos_sin_cache: cosines and sines by position.
        is_neox: as of `jitnorm.rope`.
        positions: of each token.
        outputs: where to write both.
        first: the first rotated element of a head; those before and after the rotated ones are not written to
            `outputs`.
    """
    size = cos_sin_cache.shape[-1] if first else head_size

    def heads_of(x: torch.Tensor) -> torch.Tensor:
        heads = x if x.ndim == positions.ndim + 2 else x.unflatten(-1, (-1, head_size))
        return heads[..., first : first + size]

    q, q_out = heads_of(query), heads_of(outputs[0])
    k, k_out = (q[..., :0, :], q_out[..., :0, :]) if key is None else (heads_of(key), heads_of(outputs[1]))
    jitnorm.rope(q, k, cos_sin_cache, positions, is_neox, q_out, k_out)


def yarn_angles(
    positions: torch.Tensor, rotary_size: int, base: float, factor: float, low: float, high: float, scale: float
) -> torch.Tensor:
    """The cosines and sines of each position, one float32 row each, for RoPE or, unless `factor` is 1, YaRN.

    Args:
        positions: integers, (tokens,).
        rotary_size: number of rotated elements.
        base: base of the frequencies, ``base ** (-2 * j / rotary_size)`` for pair j.
        factor: what YaRN divides low frequencies by.
        low: the first pair for which YaRN blends in divided frequencies.
        high: the first pair from which all frequencies are divided.
        scale: factor for cosines and sines.
    """
    frequencies = _yarn_frequencies(positions.device, rotary_size, base, factor, low, high)
    turns = torch.outer(positions, frequencies)  # in float32
    angles = torch.cat([turns.cos(), turns.sin()], -1)
    return angles if scale == 1 else angles * scale


@remembered(64)
def _yarn_frequencies(
    device: torch.device, rotary_size: int, base: float, factor: float, low: float, high: float
) -> torch.Tensor:
    pairs = torch.arange(rotary_size // 2, dtype=torch.float32, device=device)
    frequencies: torch.Tensor = base ** (pairs * (-2 / rotary_size))
    if factor == 1:
        return frequencies
    divided = ((pairs - low) / (high - low if abs(high - low) > 1e-6 else 0.001)).clamp(0, 1)
    return frequencies * (1 - divided) + frequencies / factor * divided


def llama_angles(
    positions: torch.Tensor, rotary_size: int, base: float, factor: float,
    smoothing: tuple[float, float, float] | None = None,
) -> torch.Tensor:  # fmt: skip
    """The cosines and sines of each position, one row each: computed in float64, then rounded to float32.

    Args:
        positions: integers, (tokens,).
        rotary_size: number of rotated elements.
        base: base of the frequencies, ``base ** (-2 * j / rotary_size)`` for pair j.
        factor: what frequencies are divided by.
        smoothing: of Llama 3.1, the factors of low and of high frequencies and the original context length: high
            frequencies are not divided, and those in between are blended. None: all are divided.
    """
    pairs = torch.arange(rotary_size // 2, dtype=torch.float64, device=positions.device)
    frequencies = base ** (pairs * (-2 / rotary_size))
    divided = frequencies / factor
    if smoothing is not None:
        low, high, length = smoothing
        kept = ((frequencies * length / (2 * math.pi) - low) / (high - low)).clamp(0, 1)
        divided = divided * (1 - kept) + frequencies * kept
    turns = positions.to(torch.float64)[:, None] * divided
    return torch.cat([turns.cos(), turns.sin()], -1).float()
