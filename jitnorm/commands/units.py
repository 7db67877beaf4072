"""Quantities as people read them."""

from __future__ import annotations

_AGES = ((86400, "d"), (3600, "h"), (60, "min"))
_SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
SHORT_KEY = 12  # characters of a cache key that tell entries apart


def duration(seconds: float) -> str:
    """A measured time.

    Example:
        >>> duration(1.234), duration(0.01234), duration(0.00123)
        ('1.23 s', '12 ms', '1.2 ms')
    """
    milliseconds = seconds * 1e3
    if milliseconds >= 1000:
        return f"{seconds:.2f} s"
    return f"{milliseconds:.0f} ms" if milliseconds >= 10 else f"{milliseconds:.1f} ms"


def age(seconds: float) -> str:
    """How long ago something was, in the largest unit that it fills.

    Example:
        >>> age(5), age(200), age(90000)
        ('5 s', '3 min', '1 d')
    """
    for length, unit in _AGES:
        if seconds >= length:
            return f"{seconds // length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def size(count: int) -> str:
    """A number of bytes, in the largest unit that it fills.

    Example:
        >>> size(512), size(15104), size(3 << 20)
        ('512 B', '14.8 KiB', '3.0 MiB')
    """
    for length, unit in _SIZES:
        if count >= length:
            return f"{count / length:.1f} {unit}"
    return f"{count} B"
