"""The functions that torch calls for an overload, written from its schema: they have a parameter for each argument.

Functions of any arguments would take 1 us more a call, of 5; see docs/measured.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from jitnorm.torch.gradients import Implementation, runs_next
from jitnorm.torch.schemas import Schema

Run = Callable[[str, "bool | None", tuple[Any, ...]], Any]
"""Runs the op, given `config`, `enable_pdl` and all other arguments, the outputs last."""

# Each of these takes 30 to 60 ns, the public equivalents several times that.
_TEXT = """
def run({parameters}):
    return _run(config, enable_pdl, ({arguments},))

def run_or_record(_keyset, {parameters}):
    if (
        _runs_next[_keyset.raw_repr()]
        and _forward_ad._current_level < 0
        and not (_is_grad_enabled() and ({requires_grad}))
    ):
        return _run(config, enable_pdl, ({arguments},))
    return _record(_keyset, {passed})
"""


def entry_points(
    schema: Schema, run: Run, record: Callable[[Implementation], Implementation], *, writes: bool
) -> tuple[Implementation, Implementation]:
    """Functions that torch calls for tensors of a device, and for autograd.

    Args:
        schema: the operator's.
        run: the implementation.
        record: makes what autograd's calls go on to where a gradient, a mode or a transform asks for them.
        writes: whether the overload writes the caller's outputs.
    """
    inputs = (*schema.required, *schema.numbers, *schema.optional)
    outputs = schema.outputs if writes else ()
    positional = [f"{name}=None" if name in schema.optional else name for name in inputs]
    keywords = [f"{name}=None" if name in schema.sometimes else name for name in outputs]
    tensors = [name for name in (*inputs, *outputs) if name not in schema.numbers]
    absent = schema.nullable.union(schema.optional, schema.sometimes)
    text = _TEXT.format(
        parameters=", ".join([*positional, "*", "config=''", "enable_pdl=None", *keywords]),
        arguments=", ".join([*inputs, *outputs]),
        requires_grad=" or ".join(
            f"{name} is not None and {name}.requires_grad" if name in absent else f"{name}.requires_grad"
            for name in tensors
        ),
        passed=", ".join([*inputs, *(f"{name}={name}" for name in ("config", "enable_pdl", *outputs))]),
    )
    scope: dict[str, Any] = {
        "_run": run,
        "_runs_next": runs_next,
        "_forward_ad": torch.autograd.forward_ad,
        "_is_grad_enabled": torch.is_grad_enabled,
    }
    exec(text, scope)
    scope["_record"] = record(scope["run"])
    return scope["run"], scope["run_or_record"]
