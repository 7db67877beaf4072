"""Finds RMSNorm, with or without a residual, as written in Transformers, vLLM, torch and Gemma."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from jitnorm.kernels.config_rules import MAX_HIDDEN_SIZE
from jitnorm.torch.fusion.nodes import (
    args_of,
    aten,
    cast_source,
    casts_of,
    fake,
    is_float32,
    is_last,
    is_tensor,
    same_shape,
)

_ADD = (aten.add.Tensor, aten.add.Scalar)
_DTYPES = (torch.float16, torch.bfloat16, torch.float32)


@dataclass(frozen=True)
class Norm:
    """A norm in a graph.

    Attributes:
        x: the input.
        residual: the residual added to it, or None.
        weight: shape (hidden_size,).
        eps: added to the mean of squares.
        unit_bias: whether 1 is added to the weight.
        product: the last product.
        results: the norm in the dtype of the input: the product itself, or conversions of it.
        sums: the sum in the dtype of the input, if there is a residual.
        root: the reciprocal root, which identifies the norm.
        rounds: intermediate values that the program rounds to 16 bits: ``sum``, ``normalized``.
    """

    x: Node
    residual: Node | None
    weight: Node
    eps: float
    unit_bias: bool
    product: Node
    results: tuple[Node, ...]
    sums: tuple[Node, ...]
    root: Node
    rounds: tuple[str, ...]

    @property
    def values(self) -> tuple[Node, ...]:
        """The nodes that may be quantized."""
        return (self.product, *self.results)

    @property
    def is_narrow(self) -> bool:
        """Whether its results have 16 bits."""
        return not is_float32(self.x)


def root_mean_square(root: Node) -> tuple[Node, float] | None:
    """The float32 rows whose root mean square a reciprocal root computes, and eps; None if it is anything else."""
    mean, *shift = args_of(root.args[0], *_ADD) or (None,)
    square, *reduced = args_of(mean, aten.mean.dim) or (None,)
    if len(shift) != 1 or not isinstance(shift[0], (int, float)) or len(reduced) != 2 or reduced[1] is not True:
        return None
    wide, exponent = args_of(square, aten.pow.Tensor_Scalar) or (None, None)
    if exponent != 2:
        wide, other = args_of(square, aten.mul.Tensor) or (None, None)
        if wide is not other:
            return None
    return (wide, float(shift[0])) if is_float32(wide) and is_last(reduced[0], wide) else None


def find_norm(root: Node) -> Norm | None:
    """The norm around a reciprocal root mean square, if an op computes it."""
    wide, eps = root_mean_square(root) or (None, 0.0)
    if wide is None:
        return None
    x, residual, sums, rounds = _input(wide)
    normalized = _only_user(root)
    if not _is_product(normalized, wide, root) or not _are_rows((x,) if residual is None else (x, residual)):
        return None
    dtype = fake(x).dtype
    # A float32 norm is multiplied as it is; a narrow one may be rounded first.
    rounded = None if dtype == torch.float32 else _only_user(normalized)
    if rounded is not None and cast_source(rounded, dtype) is normalized:
        normalized, rounds = rounded, (*rounds, "normalized")
    product = _only_user(normalized)
    factors = args_of(product, aten.mul.Tensor)
    if product is None or len(factors) != 2 or normalized not in factors:
        return None
    weight, unit_bias = _weight(factors[1] if factors[0] is normalized else factors[0], dtype)
    if weight is None or not _is_weight_of(weight, x):
        return None
    results = (product,) if fake(product).dtype == dtype else casts_of(product, dtype)
    return Norm(x, residual, weight, eps, unit_bias, product, results, sums, root, rounds)


def _input(wide: Node) -> tuple[Node, Node | None, tuple[Node, ...], tuple[str, ...]]:
    """The input and the residual that were widened to, or added in, float32; their sum's nodes; and its rounding."""
    narrow = next((source for dtype in _DTYPES[:2] if (source := _widened(wide, dtype)) is not None), None)
    total = wide if narrow is None else narrow
    terms = args_of(total, aten.add.Tensor)
    if len(terms) != 2 or not all(isinstance(term, Node) for term in terms):
        return total, None, (), ()
    for dtype in _DTYPES[:2] if narrow is None else ():
        sources = [_widened(term, dtype) for term in terms]
        if sources[0] is not None and sources[1] is not None:
            return sources[0], sources[1], casts_of(wide, dtype), ()
    if not all(_is_like(term, total) for term in terms):
        return total, None, (), ()
    return terms[0], terms[1], (total,), () if narrow is None else ("sum",)


def _widened(node: Any, dtype: torch.dtype) -> Node | None:
    """Node of `dtype` that another widens to float32, or None."""
    source = cast_source(node, torch.float32)
    return source if source is not None and is_tensor(source) and fake(source).dtype == dtype else None


def _weight(factor: Any, dtype: torch.dtype) -> tuple[Node | None, bool]:
    """The weight in a factor, and whether 1 is added to it."""
    if not isinstance(factor, Node):
        return None, False
    source, *one = args_of(factor, *_ADD) or (None,)
    is_biased = is_float32(factor) and one == [1] and isinstance(source, Node)
    weight = source if is_biased else factor
    narrow = _widened(weight, dtype)
    return weight if narrow is None else narrow, is_biased


def _is_weight_of(weight: Node, x: Node) -> bool:
    given, rows = fake(weight), fake(x)
    return (
        is_tensor(weight)
        and same_shape(given.shape, rows.shape[-1:])
        and given.dtype in (rows.dtype, torch.float32)
        and given.device == rows.device
        and (given.shape[0] == 1 or given.stride(0) == 1)
    )


def _are_rows(tensors: tuple[Node, ...]) -> bool:
    """Whether an op takes tensors as its input and residual."""
    first = fake(tensors[0])
    size = first.shape[-1] if first.ndim else None
    return (
        isinstance(size, int)
        and 1 <= size <= MAX_HIDDEN_SIZE
        and first.dtype in _DTYPES
        and first.device.type in ("cpu", "cuda")
        and all(_is_like(each, tensors[0]) and (size == 1 or fake(each).stride(-1) == 1) for each in tensors)
    )


def _is_like(one: Node, other: Node) -> bool:
    a, b = fake(one), fake(other)
    return is_tensor(one) and a.dtype == b.dtype and a.device == b.device and same_shape(a.shape, b.shape)


def _is_product(node: Node | None, *factors: Node) -> bool:
    return set(args_of(node, aten.mul.Tensor)) == set(factors)


def _only_user(node: Node) -> Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None
