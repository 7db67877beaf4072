"""Writes tokens into paged caches. torch does it, without waiting for the host to learn which tokens have a place."""

from __future__ import annotations

import torch
from torch.nn.functional import pad


def slots_of(
    batch_indices: torch.Tensor,
    positions: torch.Tensor,
    kv_indices: torch.Tensor,
    kv_indptr: torch.Tensor,
    page_size: int,
) -> torch.Tensor:
    """The slot of each token, ``page * page_size + offset``; -1 for tokens without a request or a page.

    Args:
        batch_indices: the request of each token, (tokens,); negative for none.
        positions: of each token in its request, (tokens,).
        kv_indices: the pages of all requests, one request after another.
        kv_indptr: where the pages of each request begin in `kv_indices`, (requests + 1,).
        page_size: tokens of a page.
    """
    of_request = kv_indptr.long()[batch_indices.long().clamp(0, len(kv_indptr) - 1)]
    at = of_request + positions.long() // page_size
    is_there = (batch_indices >= 0) & (at < len(kv_indices))
    pages = pad(kv_indices.long(), (0, 1), value=-1)[torch.where(is_there, at, len(kv_indices))]
    return torch.where(pages < 0, -1, pages * page_size + positions.long() % page_size)


def insert(slots: torch.Tensor, *parts: tuple[str, torch.Tensor, torch.Tensor]) -> None:
    """Write the values of each token into its slot; tokens whose slot is negative or past the cache are skipped.

    Args:
        slots: integers, (tokens,).
        parts: for each of several caches, its name, the cache, (pages, page size, ...), at any strides, and the values,
            (tokens, ...), of its dtype.

    Raises:
        ValueError: values do not fit into their cache, or are fewer than the slots; then nothing is written into any.
    """
    for name, cache, values in parts:
        if cache.dtype != values.dtype or cache.shape[2:] != values.shape[1:]:
            raise ValueError(
                f"{name}: is {cache.dtype} of shape {tuple(cache.shape)}; expected {values.dtype}, "
                f"(pages, page size, {', '.join(map(str, values.shape[1:]))})"
            )
        if len(values) < len(slots):
            raise ValueError(
                f"{name}: gets {len(values)} tokens, but there are {len(slots)} slots; pass as many tokens"
            )
    for _, cache, values in parts:
        _insert(cache, slots, values)


def _insert(cache: torch.Tensor, slots: torch.Tensor, values: torch.Tensor) -> None:
    if not cache.numel() or not len(slots):
        return
    # As bytes, because narrow dtypes support few operations.
    cache, values = (each.view(torch.uint8) if each.element_size() == 1 else each for each in (cache, values))
    page_size, last = cache.shape[1], cache.shape[0] * cache.shape[1] - 1
    is_there = (slots >= 0) & (slots <= last)
    # Tokens without a slot repeat the first token with one; if there is none, they write what is there.
    source = torch.where(is_there, torch.arange(len(slots), device=slots.device), is_there.int().argmax())
    slots = slots[source].long().clamp(0, last)
    at = slots // page_size, slots % page_size
    cache[at] = torch.where(is_there.any(), values[source], cache[at])


def tokens_first(cache: torch.Tensor, kv_layout: str) -> torch.Tensor:
    """A cache of (pages, page size, heads, ...) as a view of one in that layout."""
    return cache if is_tokens_first(kv_layout) else cache.transpose(1, 2)


def is_tokens_first(kv_layout: str) -> bool:
    """Whether the layout is NHD; ValueError if it is not HND, either."""
    if kv_layout not in ("NHD", "HND"):
        raise ValueError(f"kv_layout: is {kv_layout!r}; allowed are 'NHD' and 'HND'")
    return kv_layout == "NHD"


def gathered(
    cache: torch.Tensor,
    block_table: torch.Tensor,
    starts: torch.Tensor,
    count: int,
    seq_starts: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The tokens of all requests, one request after another, and whether each was found.

    Args:
        cache: (pages, page size, ...).
        block_table: the pages of each request, (requests, most pages).
        starts: where the tokens of each request begin among the gathered ones, and where those of the last one end,
            (requests + 1,).
        count: the number of tokens to gather.
        seq_starts: the position in its request of the first token to gather, (requests,); None for 0.

    Returns:
        (count, ...), and (count,); tokens that were not found are others.
    """
    if 0 in (*cache.shape[:2], *block_table.shape):
        return cache.new_empty((count, *cache.shape[2:])), torch.zeros(count, dtype=torch.bool, device=cache.device)
    tokens, starts, requests = torch.arange(count, device=cache.device), starts.long(), len(starts) - 1
    request = (torch.searchsorted(starts, tokens, right=True) - 1).clamp(0, requests - 1)
    at = tokens - starts[request]
    if seq_starts is not None:
        at = at + seq_starts.long()[request]
    column = at // cache.shape[1]
    is_there = (tokens >= starts[0]) & (tokens < starts[-1]) & (column < block_table.shape[1])
    pages = block_table[request, column.clamp(0, block_table.shape[1] - 1)].long()
    is_there &= (pages >= 0) & (pages < len(cache))
    return cache[torch.where(is_there, pages, 0), at % cache.shape[1]], is_there
