"""Operators under `torch.vmap`: one call for each element of the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def batched(name: str) -> Callable[..., Any]:
    """The rule of an operator for `torch.library.register_vmap`.

    Args:
        name: of the overload, such as ``jitnorm::rmsnorm``.
    """
    operator = torch.ops
    for part in name.replace("::", ".").split("."):
        operator = getattr(operator, part)

    def rule(info: Any, in_dims: tuple[int | None, ...], *given: Any, **options: Any) -> tuple[Any, Any]:
        batched = list(zip(given, in_dims, strict=True))
        calls = [
            operator(*(each if dim is None else _element(each, dim, i) for each, dim in batched), **options)
            for i in range(max(1, info.batch_size))  # a call with an empty batch gives the shapes
        ]
        if isinstance(calls[0], torch.Tensor):
            return _stacked(calls)[: info.batch_size], 0
        results = [_stacked(parts)[: info.batch_size] for parts in zip(*calls, strict=True)]
        return type(calls[0])(results), type(calls[0])([0] * len(results))

    return rule


def _element(tensor: torch.Tensor, dim: int, i: int) -> torch.Tensor:
    """An element of a batch; zeros if the batch is empty."""
    if tensor.shape[dim]:
        return tensor.select(dim, i)
    return tensor.new_zeros([size for place, size in enumerate(tensor.shape) if place != dim % tensor.ndim])


def _stacked(tensors: Any) -> torch.Tensor:
    """Stack tensors in a new first dimension; narrow ones as bytes, because few operators support their dtypes."""
    dtype = tensors[0].dtype
    if dtype.itemsize > 1:
        return torch.stack(tensors)
    return torch.stack([tensor.view(torch.uint8) for tensor in tensors]).view(dtype)
