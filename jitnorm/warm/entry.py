"""Entries, each an op with its caller's choices, and the expansion of lists of choices into entries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from jitnorm.catalogue import op_of
from jitnorm.catalogue.launches import choices_of
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.spelling import did_you_mean
from jitnorm.kernels.target import Target
from jitnorm.warm.expand import configs_of


@dataclass(frozen=True)
class Entry:
    """An op and one value for each choice that is not omitted.

    Attributes:
        op: its name; see `jitnorm.catalogue.OPS`.
        choices: pairs of a choice and its value.
    """

    op: str
    choices: tuple[tuple[str, Any], ...]

    def configs(self, target: Target) -> list[KernelConfig]:
        """The configurations of its calls on a target; ValueError, which names the op, if something is not allowed."""
        try:
            return configs_of(self.op, dict(self.choices), target)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{self.op}: {error}") from None


def multiply(ops: str | Iterable[str], choices: Mapping[str, Any]) -> list[Entry]:
    """An entry for each op and each combination of values.

    Args:
        ops: a name, or several.
        choices: for each choice a value, or a list of values.

    Raises:
        ValueError: an op or a choice is not known, or a value has a type that it cannot have.

    Example:
        >>> [dict(e.choices)["hidden_size"] for e in multiply("rmsnorm", {"hidden_size": [1024, 2048]})]
        [1024, 2048]
    """
    names = [ops] if isinstance(ops, str) else list(ops)
    values = [list(value) if isinstance(value, (list, tuple)) else [value] for value in choices.values()]
    for name in names:
        allowed = choices_of(op_of(name))
        for choice in choices:
            if choice not in allowed:
                meant = did_you_mean(choice, allowed)
                raise ValueError(f"{name}: has no choice {choice!r}; it has {', '.join(allowed)}{meant}")
    return [
        Entry(name, tuple(zip(choices, combination, strict=True))) for name in names for combination in product(*values)
    ]


def read_value(choice: str, text: str) -> Any:
    """Read a value from a command line: a number, ``true``, ``false``, or else text.

    Example:
        >>> read_value("hidden_size", "4096"), read_value("residual", "true"), read_value("quant", "nvfp4")
        (4096, True, 'nvfp4')
    """
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return int(text)
    except ValueError:
        return text
