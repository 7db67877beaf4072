"""Seven tokens of two requests, and where they belong in a paged cache."""

from __future__ import annotations

import torch

PAGES, PAGE = 6, 4
# The requests' pages are 5 and 1, and 3. Token 2 is padding, and token 5 past its request's pages.
INDICES, INDPTR = torch.tensor([5, 1, 3]).int(), torch.tensor([0, 2, 3]).int()
REQUESTS, PLACES = torch.tensor([0, 0, -1, 1, 1, 1, 0]).int(), torch.tensor([3, 4, 0, 0, 2, 5, 7]).int()
# The page and the place in it of each inserted token.
FOUND = {0: (5, 3), 1: (1, 0), 3: (3, 0), 4: (3, 2), 6: (1, 3)}
SLOTS = torch.tensor([FOUND[i][0] * PAGE + FOUND[i][1] if i in FOUND else -1 for i in range(7)])


def filled(*shape: int, dtype: torch.dtype = torch.float8_e4m3fn) -> torch.Tensor:
    """Bytes that no insertion writes everywhere."""
    return torch.full(shape, 99, dtype=torch.uint8).view(dtype)


def has_tokens(cache: torch.Tensor, values: torch.Tensor) -> bool:
    """Whether a cache, (pages, page size, ...), that was `filled` has the values, as bytes, of the tokens alone."""
    expected = torch.full(cache.shape, 99, dtype=torch.uint8)
    for token, (page, place) in FOUND.items():
        expected[page, place] = values[token]
    return torch.equal(cache.view(torch.uint8), expected)
