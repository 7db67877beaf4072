"""Registers the operators ``torch.ops.jitnorm``: each op of the catalogue as torch's tracers and compilers know it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from jitnorm.catalogue import OPS
from jitnorm.torch.batching import batched
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
            functional = _define(schema.functional, operator.functional, operator.fake)
            torch.library.register_vmap(functional, batched(functional), lib=_LIBRARY)
            written = _define(schema.out, operator.out, operator.fake_out)
            # Torch would warn where gradients are not recorded, which operators refuse themselves.
            for name in (functional, written):
                _LIBRARY.impl(name, torch.library.fallthrough_kernel, "Autograd")


def _define(schema: str, implementation: Callable[..., Any], fake: Callable[..., Any]) -> str:
    """Register one overload and return its qualified name."""
    _LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    name = schema.partition("(")[0]
    for device in _DEVICES:
        _LIBRARY.impl(name, implementation, device)
    qualified = f"jitnorm::{name}"
    torch.library.register_fake(qualified, fake, lib=_LIBRARY)
    return qualified
