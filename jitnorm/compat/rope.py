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
    """The cosines and sines of each position, one float32 row each, times a factor.

    Args:
        positions: integers, (tokens,).
        rotary_size: as in `yarn_frequencies`, like `base`, `factor`, `low` and `high`.
        base: likewise.
        factor: likewise.
        low: likewise.
        high: likewise.
        scale: factor for cosines and sines.
    """
    turns = torch.outer(positions, _yarn(positions.device, rotary_size, base, factor, low, high))
    return (torch.cat([turns.cos(), turns.sin()], -1) * scale).float()


@remembered(64)
def yarn_frequencies(
    device: torch.device, rotary_size: int, base: float, factor: float, low: float, high: float
) -> torch.Tensor:
    """The frequencies of RoPE or, unless `factor` is 1, YaRN, as a table for `jitnorm.rope`.

    Args:
        device: where to put the table.
        rotary_size: number of rotated elements.
        base: base of the frequencies, ``base ** (-2 * j / rotary_size)`` for pair j.
        factor: what YaRN divides low frequencies by.
        low: the first pair for which YaRN blends in divided frequencies.
        high: the first pair from which all frequencies are divided.
    """
    return _table_of(_yarn(device, rotary_size, base, factor, low, high))


@remembered(64)
def llama_frequencies(
    device: torch.device, rotary_size: int, base: float, factor: float, smoothing: tuple[float, float, float] | None
) -> torch.Tensor:
    """The frequencies of Llama, as a table for `jitnorm.rope`.

    Args:
        device: where to put the table.
        rotary_size: number of rotated elements.
        base: base of the frequencies, ``base ** (-2 * j / rotary_size)`` for pair j.
        factor: what frequencies are divided by.
        smoothing: of Llama 3.1, the factors of low and of high frequencies and the original context length: high
            frequencies are not divided, and those in between are blended. None: all are divided.
    """
    frequencies = _rope(device, rotary_size, base)
    divided = frequencies / factor
    if smoothing is not None:
        low, high, length = smoothing
        kept = ((frequencies * length / (2 * math.pi) - low) / (high - low)).clamp(0, 1)
        divided = divided * (1 - kept) + frequencies * kept
    return _table_of(divided)


def _pairs(device: torch.device, rotary_size: int) -> torch.Tensor:
    return torch.arange(rotary_size // 2, dtype=torch.float64, device=device)


def _rope(device: torch.device, rotary_size: int, base: float) -> torch.Tensor:
    """Radians per position of each pair, in float64."""
    frequencies: torch.Tensor = base ** (_pairs(device, rotary_size) * (-2 / rotary_size))
    return frequencies


@remembered(64)
def _yarn(device: torch.device, rotary_size: int, base: float, factor: float, low: float, high: float) -> torch.Tensor:
    frequencies = _rope(device, rotary_size, base)
    if factor == 1:
        return frequencies
    divided = ((_pairs(device, rotary_size) - low) / (high - low if abs(high - low) > 1e-6 else 0.001)).clamp(0, 1)
    return frequencies * (1 - divided) + frequencies / factor * divided


def _table_of(frequencies: torch.Tensor) -> torch.Tensor:
    """Radians per position in 2^-64 turns, as a row of high words, then low ones."""
    turns = frequencies / (2 * math.pi)
    words = ((turns - turns.round()) * 2.0**63).long() << 1
    return torch.cat([words >> 32, words & 0xFFFFFFFF]).to(torch.int32).unsqueeze(0)
