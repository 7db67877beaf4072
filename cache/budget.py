"""The disk space budget of the cache folder."""

from __future__ import annotations

import os
import re

from jitnorm.cache.errors import CacheError

BUDGET_VARIABLE = "JITNORM_CACHE_MAX_BYTES"
_DEFAULT = "4G"
_SUFFIXES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"([0-9]{1,18})([KMGT]?)")


def byte_budget() -> int | None:
    """Return ``JITNORM_CACHE_MAX_BYTES``, by default 4 GiB; None means no limit.

    Raises:
        CacheError: the value is not a size.
    """
    text = os.environ.get(BUDGET_VARIABLE) or _DEFAULT
    try:
        return parse_size(text)
    except ValueError as error:
        raise CacheError(f"{BUDGET_VARIABLE} is {error}: unset it for {_DEFAULT}") from error


def parse_size(text: str) -> int | None:
    """Parse a number of bytes, optionally with the suffix K, M, G or T (powers of 1024); "0" and "none" mean no limit.

    Raises:
        ValueError: ``text`` is not a size.

    Example:
        >>> parse_size("512"), parse_size("2K"), parse_size("none")
        (512, 2048, None)
    """
    if text.lower() == "none":
        return None
    found = _SIZE.fullmatch(text.upper())
    if found is None:
        raise ValueError(f"{text!r}; allowed are bytes, with or without a suffix of K, M, G or T, 0 or 'none'")
    return int(found[1]) * _SUFFIXES[found[2]] or None
