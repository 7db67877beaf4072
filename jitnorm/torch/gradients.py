"""The gradients of operators, of ops whose record names a backward op."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from jitnorm.catalogue.op import Op


@dataclass(frozen=True)
class Gradient:
    """The arguments of `torch.library.register_autograd`.

    Attributes:
        backward: computes the gradients of the inputs from a context and the gradients of the outputs.
        setup_context: keeps in the context what that needs.
    """

    backward: Callable[..., Any]
    setup_context: Callable[..., None]


# By the names of the ops that are differentiated.
GRADIENTS: dict[str, Gradient] = {}


def register_gradient(op: Op, library: torch.library.Library) -> None:
    """Register how the operator of an op that has a backward op is differentiated."""
    found = GRADIENTS[op.name]
    name = f"jitnorm::{op.name}"
    torch.library.register_autograd(name, found.backward, setup_context=found.setup_context, lib=library)
