"""Interop: the frameworks whose tensors jitnorm takes, none of which it imports before the caller has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Any

from jitnorm.interop.base import Framework

# Which class, in which file, speaks for the tensors of a library.
_CLASSES = {
    "torch": ("torch", "Torch"),
    "numpy": ("numpy", "NumPy"),
    "jax": ("jax", "Jax"),
    "jaxlib": ("jax", "Jax"),
    "cupy": ("cupy", "CuPy"),
    "tvm_ffi": ("tvm", "TvmFfi"),
}
_by_type: dict[type, Framework] = {}
# The frameworks of tensors that are tried as they are.
tried: dict[type, Framework] = {}
# Of tensors that moreover need no conversion and bring their stream: what says whether they can go into a call now.
direct: dict[type, Callable[[tuple[Any, ...], Sequence[Any]], bool]] = {}


def framework_of(tensor: Any, name: str) -> Framework:
    """The framework that a tensor belongs to.

    Raises:
        TypeError: it is no tensor of a framework that jitnorm knows.
    """
    kind = type(tensor)
    found = _by_type.get(kind)
    if found is None:
        found = _by_type[kind] = _discover(tensor, name)
        if found.is_plain(kind) and (found.is_direct or found.is_often_direct):
            found.types.add(kind)
            tried[kind] = found
            if found.is_direct:
                direct[kind] = found.admits
    return found


def _discover(tensor: Any, name: str) -> Framework:
    modules = {base.__module__.partition(".")[0] for base in type(tensor).__mro__}
    for library, (file, kind) in _CLASSES.items():
        if library in modules and _framework(file, kind).owns(tensor):
            return _framework(file, kind)
    raise TypeError(
        f"{name}: is a {type(tensor).__module__}.{type(tensor).__qualname__}; "
        "expected a tensor of torch, NumPy (without a mask), JAX, CuPy or tvm_ffi"
    )


@cache
def _framework(file: str, kind: str) -> Framework:
    framework: Framework = getattr(import_module(f"jitnorm.interop.{file}"), kind)()
    return framework


def check_passable(tensor: Any, name: str, is_output: bool = False) -> Framework:
    """The framework of a tensor that kernels can read or, as an output, write.

    Raises:
        TypeError: it is no tensor, or one that cannot be passed.
    """
    framework = framework_of(tensor, name)
    refusal = framework.refusal(tensor, is_output)
    if refusal:
        raise TypeError(f"{name}: {refusal}")
    return framework


def check_shaped(tensor: Any, name: str) -> Framework:
    """`check_passable` for ops that look at a shape before their call is made, perhaps by the framework itself."""
    framework = framework_of(tensor, name)
    return framework if framework.makes_calls else check_passable(tensor, name)
