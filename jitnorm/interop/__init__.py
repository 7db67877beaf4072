"""Interop with array frameworks, none of which jitnorm imports before the caller has."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any

from jitnorm.forks import no_fork
from jitnorm.interop.base import Framework

# The file and class that handle the tensors of each library.
_CLASSES = {
    "torch": ("torch", "Torch"),
    "numpy": ("numpy", "NumPy"),
    "jax": ("jax", "Jax"),
    "jaxlib": ("jax", "Jax"),
    "cupy": ("cupy", "CuPy"),
    "tvm_ffi": ("tvm", "TvmFfi"),
}
_by_type: dict[type, Framework] = {}
# Frameworks whose tensors are first passed without conversion.
tried: dict[type, Framework] = {}
# Those of them that generate functions.
generating: dict[type, Framework] = {}
# How DLPack describes their tensors, for the launcher.
exchanges: dict[type, Any] = {}


def framework_of(tensor: Any, name: str) -> Framework:
    """Find the framework that a tensor belongs to.

    Raises:
        TypeError: it is not a tensor of a supported framework.
    """
    kind = type(tensor)
    found = _by_type.get(kind)
    if found is None:
        found = _by_type[kind] = _discover(tensor, name)
        if found.is_plain(kind) and (found.is_direct or found.is_often_direct):
            found.types.add(kind)
            tried[kind] = found
            if found.generates:
                generating[kind] = found
                exchanges[kind] = kind.__dlpack_c_exchange_api__
    return found


def _discover(tensor: Any, name: str) -> Framework:
    modules = {base.__module__.partition(".")[0] for base in type(tensor).__mro__}
    for library, (file, kind) in _CLASSES.items():
        if library in modules and _framework(file, kind).owns(tensor):
            return _framework(file, kind)
    raise TypeError(
        f"{name}: is {kind_of(tensor)}; expected a tensor of torch, NumPy (without a mask), JAX, CuPy or tvm_ffi"
    )


def kind_of(value: object) -> str:
    """The kind of a value, in words: ``None``, ``a list``, ``a numpy.ndarray``."""
    if value is None:
        return "None"
    module, name = type(value).__module__, type(value).__qualname__
    text = name if module == "builtins" else f"{module}.{name}"
    return f"{'an' if text[0] in 'aeiou' else 'a'} {text}"


def _framework(file: str, kind: str) -> Framework:
    with no_fork():  # also keeps threads from creating several: tensors of two would not go together
        return _created(file, kind)


@cache
def _created(file: str, kind: str) -> Framework:
    framework: Framework = getattr(import_module(f"jitnorm.interop.{file}"), kind)()
    return framework


def check_passable(tensor: Any, name: str, is_output: bool = False) -> Framework:
    """Find the framework of a tensor, and check that kernels can read it or, as an output, write it.

    Raises:
        TypeError: it is not a tensor, or cannot be passed.
    """
    framework = framework_of(tensor, name)
    refusal = framework.refusal(tensor, is_output)
    if refusal:
        raise TypeError(f"{name}: {refusal}")
    return framework


def check_shaped(tensor: Any, name: str) -> Framework:
    """`check_passable` for ops that read a shape before the call.

    It takes 3 us for torch, so tensors with a shape are left to the call, as are those for which the framework makes
    the calls.
    """
    framework = framework_of(tensor, name)
    if framework.has_shape(tensor) or framework.makes_calls_of((tensor,)):
        return framework
    return check_passable(tensor, name)


def check_gradient(tensor: Any, name: str, is_output: bool = False) -> None:
    """Raise TypeError if a tensor requires a gradient that the call would not record."""
    reason = framework_of(tensor, name).gradient_refusal(tensor, is_output)
    if reason:
        raise TypeError(f"{name}: {reason}")


def check_given(names: Sequence[str], tensors: Sequence[Any], outputs: Sequence[int]) -> None:
    """`check_tensors` for the caller's tensors, which must all be of one framework, except for those of TVM-FFI.

    Raises:
        TypeError: one cannot be passed, or is of a different framework than an earlier one.
    """
    check_tensors(names, tensors, outputs)
    first: tuple[str, Any] | None = None
    for name, tensor in zip(names, tensors, strict=True):
        if tensor is None or framework_of(tensor, name).goes_with_any:
            continue
        if first is None:
            first = name, tensor
        elif framework_of(tensor, name) is not framework_of(first[1], first[0]):
            raise TypeError(
                f"{name}: is {kind_of(tensor)}, but {first[0]} {kind_of(first[1])}; pass tensors of one "
                "framework (its from_dlpack shares memory)"
            )


def check_tensors(names: Sequence[str], tensors: Sequence[Any], outputs: Sequence[int]) -> None:
    """`check_passable` for the tensors of a call, those that are not None.

    Args:
        names: the tensors' names.
        tensors: the tensors.
        outputs: the positions of those that are written.
    """
    for position, (name, tensor) in enumerate(zip(_names_of_inputs(names, tensors), tensors, strict=True)):
        if tensor is not None:
            check_passable(tensor, name, position in outputs)


def _names_of_inputs(names: Sequence[str], tensors: Sequence[Any]) -> list[str]:
    """The names, but of a tensor that is written in place that of the input which it also is."""
    known: dict[int, str] = {}
    return [
        name if tensor is None else known.setdefault(id(tensor), name)
        for name, tensor in zip(names, tensors, strict=True)
    ]


def converted_tensors(names: Sequence[str], tensors: Sequence[Any], outputs: Sequence[int]) -> list[Any]:
    """Convert tensors to arguments of a call after `check_tensors`, including outputs created by a caller's mode.

    Raises:
        TypeError: one cannot be passed.
    """
    check_tensors(names, tensors, outputs)
    return [
        None if tensor is None else _converted(tensor, name, position in outputs)
        for position, (name, tensor) in enumerate(zip(_names_of_inputs(names, tensors), tensors, strict=True))
    ]


def _converted(tensor: Any, name: str, is_output: bool) -> Any:
    try:
        return framework_of(tensor, name).argument(name, tensor, is_output)
    except (BufferError, RuntimeError) as error:
        raise TypeError(f"{name}: cannot be passed by DLPack: {error}") from error
