"""Registers the operators ``torch.ops.jitnorm``, one per op of the catalogue, for torch's tracers and compilers."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import torch

from jitnorm.catalogue import OPS
from jitnorm.torch import ranks, refusals
from jitnorm.torch.batching import batched
from jitnorm.torch.entry_points import EntryPoints
from jitnorm.torch.gradients import OperatorGradient, autograd_kernel, operator_gradient
from jitnorm.torch.operator import Operator
from jitnorm.torch.schemas import schemas_of

_LIBRARY = torch.library.Library("jitnorm", "FRAGMENT")
_DEVICES = ("CPU", "CUDA")


@cache
def register() -> None:
    """Register all operators, once; takes 0.1 s."""
    for op in OPS.values():
        if op.is_composed:
            continue
        operators = [Operator(op, schema) for schema in schemas_of(op).values()]
        for operator in operators:
            schema = operator.schema
            if not schema.updated:  # before the other overload, which calls without an overload's name would also find
                gradient = operator_gradient(op, schema)
                functional = _define(operator, schema.functional, gradient)
                torch.library.register_vmap(functional, batched(functional), lib=_LIBRARY)
            _define(operator, schema.out, None)
        packet = getattr(torch.ops.jitnorm, op.name)
        _call_directly(packet, operators[0], writes=bool(operators[0].schema.updated))
        torch.jit._builtins._register_builtin(packet.op, f"jitnorm::{op.name}")  # TorchScript finds it by this
    ranks.define(_LIBRARY)


def _define(operator: Operator, text: str, gradient: OperatorGradient | None) -> str:
    """Register one overload with this schema, and return its qualified name."""
    schema = operator.schema
    writes = text == schema.out
    run, fake = (operator.write, operator.fake_write) if writes else (operator.make, operator.fake)
    _LIBRARY.define(text, tags=(torch.Tag.pt2_compliant_tag,))
    name = text.partition("(")[0]
    overload = _overload(name)
    _call_directly(overload, operator, writes=writes)
    record = partial(autograd_kernel, overload, gradient=gradient)
    on_device, on_autograd = EntryPoints(schema, writes=writes).of_dispatcher(run, record)
    for device in _DEVICES:
        _LIBRARY.impl(name, on_device, device)
    qualified = f"jitnorm::{name}"
    torch.library.register_fake(qualified, fake, lib=_LIBRARY)
    _LIBRARY.impl(name, on_autograd, "Autograd", with_keyset=True)
    inputs = (*schema.required, *schema.numbers, *schema.optional)
    for key in refusals.KEYS:
        _LIBRARY.impl(name, refusals.refusing(inputs), key)
    for key in refusals.VIEW_KEYS if writes else ():
        _LIBRARY.impl(name, refusals.resolving(overload), key)
    return qualified


def _call_directly(called: Any, operator: Operator, *, writes: bool) -> None:
    """Make calls of an overload, or without an overload's name, start in a function of `EntryPoints.direct`."""
    fast_paths = operator.fast_paths_to_write if writes else operator.fast_paths
    if fast_paths is not None:
        run_parts = operator.write_parts if writes else operator.make_parts
        called._op = EntryPoints(operator.schema, writes=writes).direct(fast_paths, run_parts, called._op)


def _overload(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.jitnorm, packet), overload or "default")
