"""Registers the operators ``torch.ops.jitnorm``: each op of the catalogue as torch's tracers and compilers know it."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import torch

from jitnorm.catalogue import OPS
from jitnorm.torch.batching import batched
from jitnorm.torch.entry_points import EntryPoints
from jitnorm.torch.gradients import OperatorGradient, autograd_kernel, operator_gradient
from jitnorm.torch.operator import Operator
from jitnorm.torch.schemas import Schema, schemas_of

_LIBRARY = torch.library.Library("jitnorm", "FRAGMENT")
_DEVICES = ("CPU", "CUDA")


@cache
def register() -> None:
    """Register all operators, once: 0.1 s."""
    for op in OPS.values():
        if op.is_composed:
            continue
        for schema in schemas_of(op).values():
            operator = Operator(op, schema)
            if not schema.updated:  # before the other, which calls without an overload's name would find, too
                gradient = operator_gradient(op, schema)
                functional = _define(schema, schema.functional, operator, gradient)
                torch.library.register_vmap(functional, batched(functional), lib=_LIBRARY)
            _define(schema, schema.out, operator, None)


def _define(schema: Schema, text: str, operator: Operator, gradient: OperatorGradient | None) -> str:
    """Register one overload, of that text, and return its qualified name."""
    writes = text == schema.out
    run, fake = (operator.write, operator.fake_write) if writes else (operator.make, operator.fake)
    _LIBRARY.define(text, tags=(torch.Tag.pt2_compliant_tag,))
    name = text.partition("(")[0]
    overload, functions = _overload(name), EntryPoints(schema, writes=writes)
    if operator.ways is not None:
        overload._op = functions.direct(operator.ways, overload._op)
    on_device, on_autograd = functions.of_dispatcher(run, partial(autograd_kernel, overload, gradient=gradient))
    for device in _DEVICES:
        _LIBRARY.impl(name, on_device, device)
    qualified = f"jitnorm::{name}"
    torch.library.register_fake(qualified, fake, lib=_LIBRARY)
    _LIBRARY.impl(name, on_autograd, "Autograd", with_keyset=True)
    return qualified


def _overload(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.jitnorm, packet), overload or "default")
