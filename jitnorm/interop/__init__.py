"""Interop: the frameworks whose tensors jitnorm takes, none of which it imports before the caller has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jitnorm.interop.base import Framework

_by_type: dict[type, Framework] = {}
# The types of tensors that go into a call as they are; and of arguments that do, where None stands for itself.
direct_tensors: set[type] = set()
direct_types: set[type] = {type(None)}
# Of arguments that are tried as they are: those, and arrays of which most are passable so.
tried_types: set[type] = {type(None)}
# Of those, what tells the stream that the caller is on.
current_streams: dict[type, Callable[[], int]] = {}


def framework_of(tensor: Any, name: str) -> Framework:
    """The framework that a tensor belongs to.

    Raises:
        TypeError: it is no tensor of a framework that jitnorm knows.
    """
    found = _by_type.get(type(tensor))
    if found is None:
        found = _by_type[type(tensor)] = _discover(tensor, name)
        if found.is_direct:
            direct_tensors.add(type(tensor))
            direct_types.add(type(tensor))
        if found.is_direct or found.is_often_direct:
            tried_types.add(type(tensor))
        if found.current_stream:
            current_streams[type(tensor)] = found.current_stream
    return found


def _discover(tensor: Any, name: str) -> Framework:
    modules = {base.__module__.partition(".")[0] for base in type(tensor).__mro__}
    if "torch" in modules:
        from jitnorm.interop.torch import Torch

        return Torch()
    if "numpy" in modules and type(tensor).__name__ != "MaskedArray":
        from jitnorm.interop.numpy import NumPy

        return NumPy()
    if modules & {"jax", "jaxlib"}:
        from jitnorm.interop.jax import Jax

        return Jax()
    if "cupy" in modules:
        from jitnorm.interop.cupy import CuPy

        return CuPy()
    if "tvm_ffi" in modules:
        from jitnorm.interop.tvm import TvmFfi

        return TvmFfi()
    raise TypeError(
        f"{name}: is a {type(tensor).__module__}.{type(tensor).__qualname__}; "
        "expected a tensor of torch, NumPy (without a mask), JAX, CuPy or tvm_ffi"
    )
