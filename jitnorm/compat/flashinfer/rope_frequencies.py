"""FlashInfer's rotations by frequencies, from which the kernel computes cosines and sines.

Queries and keys are (tokens, heads, head_dim). `rotary_dim` says how many elements of a head are rotated, None all of
them; `interleave` whether the elements of a pair are neighbours; `rope_scale` divides frequencies, ``rope_theta ** (-2
* j / rotary_dim)`` for pair j. With `indptr`, segment i has the tokens from ``indptr[i]`` to ``indptr[i + 1]``, the
first of which is at position ``offsets[i]``; tokens of no segment are not rotated.
"""

from __future__ import annotations

import torch

from jitnorm.compat.rope import llama_frequencies, turn

Pair = tuple[torch.Tensor, torch.Tensor]
"""Of queries and keys."""
Smoothing = tuple[float, float, float]


def apply_rope(
    q: torch.Tensor, k: torch.Tensor, indptr: torch.Tensor, offsets: torch.Tensor, rotary_dim: int | None = None,
    interleave: bool = False, rope_scale: float = 1, rope_theta: float = 1e4,
) -> Pair:  # fmt: skip
    """Rotate queries and keys of segments."""
    return _turned(q, k, _positions(q, indptr, offsets), rotary_dim, interleave, rope_scale, rope_theta)


def apply_rope_inplace(
    q: torch.Tensor, k: torch.Tensor, indptr: torch.Tensor, offsets: torch.Tensor, rotary_dim: int | None = None,
    interleave: bool = False, rope_scale: float = 1, rope_theta: float = 1e4,
) -> None:  # fmt: skip
    """`apply_rope` in place."""
    _turned(q, k, _positions(q, indptr, offsets), rotary_dim, interleave, rope_scale, rope_theta, outputs=(q, k))


def apply_rope_pos_ids(
    q: torch.Tensor, k: torch.Tensor, pos_ids: torch.Tensor, rotary_dim: int | None = None, interleave: bool = False,
    rope_scale: float = 1, rope_theta: float = 1e4,
) -> Pair:  # fmt: skip
    """Rotate queries and keys by their positions, (tokens,)."""
    return _turned(q, k, pos_ids, rotary_dim, interleave, rope_scale, rope_theta)


def apply_rope_pos_ids_inplace(
    q: torch.Tensor, k: torch.Tensor, pos_ids: torch.Tensor, rotary_dim: int | None = None, interleave: bool = False,
    rope_scale: float = 1, rope_theta: float = 1e4,
) -> None:  # fmt: skip
    """`apply_rope_pos_ids` in place."""
    _turned(q, k, pos_ids, rotary_dim, interleave, rope_scale, rope_theta, outputs=(q, k))


def apply_llama31_rope(
    q: torch.Tensor, k: torch.Tensor, indptr: torch.Tensor, offsets: torch.Tensor, rotary_dim: int | None = None,
    interleave: bool = False, rope_scale: float = 8, rope_theta: float = 5e5, low_freq_factor: float = 1,
    high_freq_factor: float = 4, old_context_len: int = 8192,
) -> Pair:  # fmt: skip
    """`apply_rope` with Llama 3.1's frequencies: only low ones are divided by `rope_scale`."""
    return _turned(
        q, k, _positions(q, indptr, offsets), rotary_dim, interleave, rope_scale, rope_theta,
        (low_freq_factor, high_freq_factor, old_context_len),
    )  # fmt: skip


def apply_llama31_rope_inplace(
    q: torch.Tensor, k: torch.Tensor, indptr: torch.Tensor, offsets: torch.Tensor, rotary_dim: int | None = None,
    interleave: bool = False, rope_scale: float = 8, rope_theta: float = 5e5, low_freq_factor: float = 1,
    high_freq_factor: float = 4, old_context_len: int = 8192,
) -> None:  # fmt: skip
    """`apply_llama31_rope` in place."""
    _turned(
        q, k, _positions(q, indptr, offsets), rotary_dim, interleave, rope_scale, rope_theta,
        (low_freq_factor, high_freq_factor, old_context_len), (q, k),
    )  # fmt: skip


def apply_llama31_rope_pos_ids(
    q: torch.Tensor, k: torch.Tensor, pos_ids: torch.Tensor, rotary_dim: int | None = None, interleave: bool = False,
    rope_scale: float = 8, rope_theta: float = 5e5, low_freq_factor: float = 1, high_freq_factor: float = 4,
    old_context_len: int = 8192,
) -> Pair:  # fmt: skip
    """`apply_rope_pos_ids` with Llama 3.1's frequencies."""
    smoothing = low_freq_factor, high_freq_factor, old_context_len
    return _turned(q, k, pos_ids, rotary_dim, interleave, rope_scale, rope_theta, smoothing)


def apply_llama31_rope_pos_ids_inplace(
    q: torch.Tensor, k: torch.Tensor, pos_ids: torch.Tensor, rotary_dim: int | None = None, interleave: bool = False,
    rope_scale: float = 8, rope_theta: float = 5e5, low_freq_factor: float = 1, high_freq_factor: float = 4,
    old_context_len: int = 8192,
) -> None:  # fmt: skip
    """`apply_llama31_rope_pos_ids` in place."""
    smoothing = low_freq_factor, high_freq_factor, old_context_len
    _turned(q, k, pos_ids, rotary_dim, interleave, rope_scale, rope_theta, smoothing, (q, k))


def _positions(q: torch.Tensor, indptr: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """The position of each token; 0, which rotates by no angle, for tokens of no segment."""
    if len(indptr) != len(offsets) + 1:
        raise ValueError(
            f"indptr: has {len(indptr)} elements; expected one more than offsets, which has {len(offsets)}"
        )
    tokens = torch.arange(len(q), device=q.device)
    starts, last = indptr.long(), len(offsets) - 1
    if last < 0:
        return torch.zeros_like(tokens)
    segments = torch.searchsorted(starts[1:], tokens, right=True).clamp(max=last)
    found = tokens - starts[segments] + offsets.long()[segments]
    return torch.where((tokens >= starts[0]) & (tokens < starts[-1]), found, 0)


def _turned(
    q: torch.Tensor, k: torch.Tensor, positions: torch.Tensor, rotary_dim: int | None, interleave: bool,
    rope_scale: float, rope_theta: float, smoothing: Smoothing | None = None, outputs: Pair | None = None,
) -> Pair:  # fmt: skip
    if q.ndim != 3 or k.ndim != 3 or positions.shape != q.shape[:1]:
        raise ValueError(
            f"q, k, pos_ids: shapes are {tuple(q.shape)}, {tuple(k.shape)}, {tuple(positions.shape)}; expected (tokens,"
            " heads, head_dim) twice and (tokens,)"
        )
    size = q.shape[-1]
    rotary_dim = size if rotary_dim is None else rotary_dim
    if rotary_dim % 2 or not 0 < rotary_dim <= size:
        raise ValueError(f"rotary_dim: is {rotary_dim}; allowed are even numbers from 2 to head_dim {size}")
    table = llama_frequencies(q.device, rotary_dim, rope_theta, rope_scale, smoothing)
    outputs = outputs or (torch.empty_like(q), torch.empty_like(k))
    turn(q, k, size, table, not interleave, positions.contiguous(), outputs)
    return outputs
