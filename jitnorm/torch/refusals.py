"""Kernels of operators for tensors that no kernel of jitnorm takes: torch's own errors would not name the argument."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from jitnorm.interop import framework_of

# For all backends without a kernel of their own, among them sparse, quantized and MKL-DNN tensors and other devices;
# torch leaves nested tensors out there, and puts zeros that take no space in place of zero tensors.
KEYS = ("CompositeExplicitAutograd", "NestedTensorCPU", "NestedTensorCUDA", "ZeroTensor")
# Views whose signs torch changes before it calls a kernel, and after it where it knows the result.
VIEW_KEYS = ("Negative", "Conjugate")
# Torch's subclasses that have a rule for each operator which they take.
_IN_PARTS = frozenset(("DTensor", "NestedTensor"))
_TORCH: Any = framework_of(torch.empty(0), "")


def are_in_parts(tensors: tuple[Any, ...]) -> bool:
    """Whether one of a call's arguments consists of other tensors by one of torch's own classes."""
    return any(type(tensor).__name__ in _IN_PARTS for tensor in tensors)


def refusing(names: Sequence[str]) -> Callable[..., Any]:
    """A function that raises the error of a call with such a tensor; `names` are those of positional arguments."""

    def refuse(*given: Any, **named: Any) -> Any:
        for name, value in (*zip(names, given, strict=False), *named.items()):
            if isinstance(value, torch.Tensor) and (reason := _TORCH.layout_refusal(value)):
                raise TypeError(f"{name}: {reason}")
        raise TypeError(f"{names[0]}: is in a form of torch's that no kernel takes; pass plain tensors")

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
