"""A constant of a source: its type, its name and its value, as C++ spells them."""

from __future__ import annotations

Constant = tuple[str, str, str]
"""Type, name, value."""


def integer(name: str, value: int) -> Constant:
    """An ``int``.

    Example:
        >>> integer("kThreads", 128)
        ('int', 'kThreads', '128')
    """
    return "int", name, str(value)


def boolean(name: str, value: bool) -> Constant:
    """A ``bool``."""
    return "bool", name, str(value).lower()


def floating(name: str, value: str) -> Constant:
    """A ``float``, whose value is given as text."""
    return "float", name, value


def choice(enumeration: str, name: str, value: str) -> Constant:
    """An enumerator."""
    return enumeration, name, f"{enumeration}::{value}"
