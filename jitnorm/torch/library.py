"""Registers the operators ``torch.ops.jitnorm``: each op of the catalogue as torch's tracers and compilers know it."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from jitnorm.catalogue import OPS
from jitnorm.torch.batching import batched
from jitnorm.torch.gradients import Implementation, OperatorGradient, autograd_kernel, operator_gradient
from jitnorm.torch.operator import Operator
from jitnorm.torch.schemas import schemas_of

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
                functional = _define(schema.functional, operator.functional, operator.fake, gradient)
                torch.library.register_vmap(functional, batched(functional), lib=_LIBRARY)
            _define(schema.out, operator.out, operator.fake_out, None)


def _define(
    schema: str, implementation: Implementation, fake: Implementation, gradient: OperatorGradient | None
) -> str:
    """Register one overload and return its qualified name."""
    _LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    name = schema.partition("(")[0]
    for device in _DEVICES:
        _LIBRARY.impl(name, implementation, device)
    qualified = f"jitnorm::{name}"
    torch.library.register_fake(qualified, fake, lib=_LIBRARY)
    _LIBRARY.impl(name, autograd_kernel(_overload(name), implementation, gradient), "Autograd", with_keyset=True)
    return qualified


def _overload(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.jitnorm, packet), overload or "default")
