"""Values in the text form of a KernelConfig."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .formats import read_format
from .quant_spec import QuantSpec, require_one_of, to_text
from .spelling import did_you_mean


def read_values(text: str, types: Mapping[str, str]) -> dict[str, Any]:
    """Read values of the form ``field=value``, separated by commas.

    Args:
        text: the text to read.
        types: the annotated types of the allowed fields, by name.

    Raises:
        ValueError: what cannot be read.
    """
    values: dict[str, Any] = {}
    for item in filter(None, text.split(",")):
        name, equals, value = item.partition("=")
        if not equals or name not in types or name in values:
            raise ValueError(
                f"config: cannot read {item!r}; write field=value once for any of {', '.join(types)}"
                f"{did_you_mean(name, types.keys() - values)}"
            )
        values[name] = _READERS[types[name]](name, value)
    return values


def options_text(options: Mapping[str, Any]) -> str:
    """Write fields as `read_values` reads them."""
    return ",".join(f"{name}={to_text(value)}" for name, value in options.items())


def _read_int(name: str, text: str) -> int:
    # -1 is the only negative number with a meaning: the last axis, or as many columns of gates as there are.
    if text != "-1" and not text.isdecimal():
        raise ValueError(f"config: {name} is {text!r}, which is not a whole number")
    return int(text)


def _read_bool(name: str, text: str) -> bool:
    require_one_of(f"config: {name}", text, ("true", "false"))
    return text == "true"


def _read_str(name: str, text: str) -> str:
    return text


def _read_quant(name: str, text: str) -> QuantSpec | None:
    return None if text == "none" else read_format(text)


_READERS: Mapping[str, Callable[[str, str], Any]] = {
    "int": _read_int,
    "bool": _read_bool,
    "str": _read_str,
    "QuantSpec | None": _read_quant,
}
