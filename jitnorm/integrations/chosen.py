"""Parses the variable that selects which of an engine's functions a plugin replaces."""

from __future__ import annotations

from collections.abc import Iterable


def chosen(variable: str, value: str, allowed: Iterable[str]) -> list[str]:
    """The names in a value: ``all``, or names separated by commas; none if it is empty.

    Raises:
        ValueError: one of them is not allowed.

    >>> chosen("VARIABLE", "b, a", ["a", "b", "c"])
    ['b', 'a']
    """
    known = list(allowed)
    names = known if value == "all" else [name.strip() for name in value.split(",") if name.strip()]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"{variable}: has {unknown[0]!r}; allowed are all, or names among {', '.join(known)}")
    return names
