"""Stand-ins for names that a peer has and jitnorm lacks."""

from __future__ import annotations

from typing import Any


class NotHereError(NotImplementedError):
    """A function of the peer that jitnorm does not have."""


class _Members(type):
    """Classes that have any member, such as those of enumerations."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return not_here(f"{cls.__qualname__}.{name}")


class _NotHere(metaclass=_Members):
    """A name that a module does not have: a class, so that it can stand in annotations, too."""

    def __new__(cls, *args: Any, **keywords: Any) -> Any:
        raise NotHereError(cls.__qualname__)


def not_here(name: str) -> Any:
    """A class by that name, whose calls raise NotHereError."""
    return _Members(name.rpartition(".")[2], (_NotHere,), {"__qualname__": name})
