"""The types of a configuration's fields, which are checked because sources contain the values as they are."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from operator import index
from typing import Any, SupportsIndex

_KINDS: dict[object, type] = {"bool": bool, "int": int}
_ALLOWED = {bool: "True and False", int: "whole numbers"}


def settle_types(config: Any) -> None:
    """Convert other libraries' integers to Python's; raise ValueError unless numbers and booleans have exactly these
    types.

    True and 16.0 equal 1 and 16, but would give other sources. The texts among the fields are checked by their values.
    """
    described: Any = type(config)
    for name, kind in _typed_fields(described):
        value = getattr(config, name)
        if type(value) is kind:
            continue
        if kind is bool or isinstance(value, bool) or not isinstance(value, SupportsIndex):
            raise ValueError(f"{name}: is {value!r}; allowed are {_ALLOWED[kind]}")
        object.__setattr__(config, name, index(value))


@cache
def _typed_fields(described: type) -> tuple[tuple[str, type], ...]:
    return tuple((each.name, _KINDS[each.type]) for each in fields(described) if each.type in _KINDS)
