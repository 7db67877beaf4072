"""Rejects arguments that a JAX program cannot hold, by the caller's names for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jitnorm.interop import framework_of

if TYPE_CHECKING:
    from jitnorm.dispatch import Dispatcher

IMMUTABLE = "is written, but JAX arrays are immutable; leave an output None"


def check_written(dispatcher: Dispatcher, tensors: Sequence[Any]) -> None:
    """Raise TypeError if a call, with its outputs among the tensors, writes a JAX array."""
    known: dict[int, str] = {}
    for position, (own_name, tensor) in enumerate(zip(dispatcher.names, tensors, strict=True)):
        name = known.setdefault(id(tensor), own_name)  # a tensor that is written in place has its input's name
        if position in dispatcher.positions and isinstance(tensor, jax.Array):
            form = _functional_form(dispatcher.options)
            raise TypeError(f"{name}: {IMMUTABLE}{form and f', or call jitnorm.{form}, which returns all outputs'}")


def _functional_form(fields: Mapping[str, Any]) -> str:
    """The op that returns what an op with such fields writes; empty if the latter can allocate it, too."""
    if fields.get("paged"):
        return "qk_rmsnorm_rope" if fields["op"] == "rmsnorm" else "rope"
    if fields.get("op") != "rmsnorm":
        return ""
    if fields.get("quant"):
        return "add_norm_quantize" if fields.get("residual") else "norm_quantize"
    if not fields.get("residual"):
        return ""
    return "gemma_add_rmsnorm" if fields.get("unit_bias") else "add_rmsnorm"


def check_numbers(dispatcher: Dispatcher, scalars: Sequence[Any]) -> None:
    """Raise TypeError if one of the op's numbers is an array."""
    for name, number in zip(dispatcher.arguments[dispatcher.tensor_count :], scalars, strict=True):
        if isinstance(number, jax.core.Tracer):
            raise TypeError(
                f"{name}: is traced by JAX, but kernels take it as a number; make it static, "
                f"as by jax.jit(..., static_argnames={name!r})"
            )
        if isinstance(number, jax.Array):
            raise TypeError(f"{name}: is a JAX array; expected a number, such as float({name})")


def constants(dispatcher: Dispatcher, inputs: Sequence[Any]) -> list[Any]:
    """The inputs of a traced call as JAX arrays; those of NumPy become constants of the program.

    Raises:
        TypeError: one is of another framework, or has a dtype that JAX would convert.
    """
    names = [name for i, name in enumerate(dispatcher.names) if i not in dispatcher.positions]
    return [_constant(name, tensor) for name, tensor in zip(names, inputs, strict=True)]


def _constant(name: str, tensor: Any) -> Any:
    if isinstance(tensor, jax.Array):
        return tensor
    framework_of(tensor, name)  # rejects anything that is not a tensor
    if type(tensor) is not np.ndarray:
        kind = f"{type(tensor).__module__}.{type(tensor).__qualname__}"
        raise TypeError(
            f"{name}: is a {kind}, which cannot be part of a program that JAX traces; pass jax.numpy.asarray({name})"
        )
    constant = jax.numpy.asarray(tensor)
    if constant.dtype != tensor.dtype:
        raise TypeError(f"{name}: is {tensor.dtype}, which JAX would convert to {constant.dtype}; convert it first")
    return constant
