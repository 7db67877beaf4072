"""The functions of an overload, generated from its schema, with a parameter for each argument.

Functions with variable arguments would add 1 us to a call's 5; see docs/host.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from jitnorm.interop.base import FastPath
from jitnorm.torch.gradients import Implementation, runs_next
from jitnorm.torch.refusals import are_in_parts
from jitnorm.torch.schemas import Schema

Run = Callable[[str, "bool | None", tuple[Any, ...]], Any]
"""Runs the op, given `config`, `enable_pdl` and all other arguments, the outputs last."""

# Each of these takes 30 to 60 ns, its public equivalent several times that.
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
# Makes calls directly that torch's dispatcher would only pass on, in 3 us.
_DIRECT = """
def direct({parameters}, **others):
    if not (others or {lacks}_is_profiled() or _has_torch_function({tensors})):
        named = {{{named}}}
        if _fast_paths[config, enable_pdl](named, None):
            return {returned}
    if not (others or _plain.issuperset(map(type, ({tensors},)))) and _are_in_parts(({tensors},)):
        return _run_parts(config, enable_pdl, ({arguments},))
    return _dispatch({passed}, **others)
"""


class EntryPoints:
    """The functions of an overload.

    Args:
        schema: the operator's schema.
        writes: whether the overload writes the caller's outputs.
    """

    def __init__(self, schema: Schema, *, writes: bool) -> None:
        self._schema, self._writes = schema, writes
        self._inputs = (*schema.required, *schema.numbers, *schema.optional)
        self._outputs = schema.outputs if writes else ()
        self._tensors = [name for name in (*self._inputs, *self._outputs) if name not in schema.numbers]
        positional = [f"{name}=None" if name in schema.optional else name for name in self._inputs]
        keywords = [f"{name}=None" if name in schema.sometimes else name for name in self._outputs]
        self._parameters = ", ".join([*positional, "*", "config=''", "enable_pdl=None", *keywords])
        options = [f"{name}={name}" for name in ("config", "enable_pdl", *self._outputs)]
        self._passed = ", ".join([*self._inputs, *options])

    def of_dispatcher(
        self, run: Run, record: Callable[[Implementation], Implementation]
    ) -> tuple[Implementation, Implementation]:
        """The functions that torch's dispatcher calls: for tensors of a device, and for autograd.

        Args:
            run: the implementation.
            record: makes the calls that a gradient, a mode or a transform must see.
        """
        text = _TEXT.format(
            parameters=self._parameters,
            arguments=", ".join([*self._inputs, *self._outputs]),
            requires_grad=" or ".join(f"{name} is not None and {name}.requires_grad" for name in self._tensors),
            passed=self._passed,
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

    def direct(
        self, fast_paths: Mapping[tuple[str, bool | None], FastPath], run_parts: Run, dispatch: Implementation
    ) -> Implementation:
        """The function in which a call from Python starts: of the overload, or without an overload's name.

        Args:
            fast_paths: the fast paths of calls, by `config` and `enable_pdl`.
            run_parts: makes calls of tensors that consist of others, such as DTensors.
            dispatch: torch's own function, for all other calls; it may have other keywords, too.
        """
        schema = self._schema
        returned = ", ".join(f"named['{name}']" for name in schema.outputs)
        if schema.sometimes:
            returned = f"[each for each in ({returned},) if each is not None]"
        text = _DIRECT.format(
            parameters=self._parameters,
            lacks="".join(f"{name} is None or " for name in self._outputs if name not in schema.sometimes),
            tensors=", ".join(self._tensors),
            arguments=", ".join([*self._inputs, *self._outputs]),
            named=", ".join(
                f"'{name}': {name if self._writes or name not in schema.outputs else None}"
                for name in (*self._inputs, *schema.outputs)
            ),
            returned="None" if self._writes else returned,
            passed=self._passed,
        )
        scope: dict[str, Any] = {
            "_is_profiled": torch.autograd._profiler_enabled,
            "_has_torch_function": torch._C._has_torch_function_variadic,
            "_fast_paths": fast_paths,
            "_plain": {torch.Tensor, torch.nn.Parameter, type(None)},
            "_are_in_parts": are_in_parts,
            "_run_parts": run_parts,
            "_dispatch": dispatch,
        }
        exec(text, scope)
        made: Implementation = scope["direct"]
        made.__name__ = made.__qualname__ = f"jitnorm::{schema.name}"  # in errors
        made.__module__ = dispatch.__module__
        return made
