"""Implementations of operators for tensors that no kernel accepts; torch's own errors would not name the argument."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from jitnorm.interop import framework_of

# The first key is for all backends without an implementation, such as those of sparse, quantized and MKL-DNN tensors
# and other devices. It does not cover nested tensors, and torch would materialize zero tensors.
KEYS = ("CompositeExplicitAutograd", "NestedTensorCPU", "NestedTensorCUDA", "ZeroTensor")
# Views with changed signs, which torch resolves before a call and, where it knows the result, restores after it.
VIEW_KEYS = ("Negative", "Conjugate")
# Subclasses of torch that need a rule for each operator.
_IN_PARTS = frozenset(("DTensor", "NestedTensor"))
_TORCH: Any = framework_of(torch.empty(0), "")


def are_in_parts(tensors: tuple[Any, ...]) -> bool:
    """Whether an argument of a call is one of torch's own tensors that consist of other tensors."""
    return any(type(tensor).__name__ in _IN_PARTS for tensor in tensors)


def refusing(names: Sequence[str]) -> Callable[..., Any]:
    """A function that raises the error of a call with such a tensor; `names` are those of positional arguments."""

    def refuse(*given: Any, **named: Any) -> Any:
        for name, value in (*zip(names, given, strict=False), *named.items()):
            if isinstance(value, torch.Tensor) and (reason := _TORCH.layout_refusal(value)):
                raise TypeError(f"{name}: {reason}")
        raise TypeError(f"{names[0]}: is a kind of torch tensor that no kernel accepts; pass plain tensors")

    return refuse


def resolving(operator: Any) -> Callable[..., Any]:
    """A function that makes a call that writes: views with changed signs are copied as inputs, rejected as outputs."""

    def resolve(*given: Any, **options: Any) -> Any:
        for name, value in options.items():
            if isinstance(value, torch.Tensor) and (value.is_neg() or value.is_conj()):
                raise TypeError(f"{name}: {_TORCH.refusal(value, is_output=True)}")
        return operator(*map(_resolved, given), **options)

    return resolve


def _resolved(value: Any) -> Any:
    return value.resolve_neg().resolve_conj() if isinstance(value, torch.Tensor) else value
