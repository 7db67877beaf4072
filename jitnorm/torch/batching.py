"""Operators under `torch.vmap`: one call for each element of the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def batched(name: str) -> Callable[..., Any]:
    """The rule of an operator that `torch.library.register_vmap` takes.

    Args:
        name: of the overload, such as ``jitnorm::rmsnorm``.
    """
    operator = torch.ops
    for part in name.replace("::", ".").split("."):
        operator = getattr(operator, part)

    def rule(info: Any, in_dims: tuple[int | None, ...], *given: Any, **options: Any) -> tuple[Any, Any]:
        calls = [
            operator(
                *(each if dim is None else each.select(dim, i) for each, dim in zip(given, in_dims, strict=True)),
                **options,
            )
            for i in range(info.batch_size)
        ]
        if isinstance(calls[0], torch.Tensor):
            return _stacked(calls), 0
        results = [_stacked(parts) for parts in zip(*calls, strict=True)]
        return type(calls[0])(results), type(calls[0])([0] * len(results))

    return rule


def _stacked(tensors: Any) -> torch.Tensor:
    """The tensors in a new first dimension; narrow ones as bytes, because few operators know their dtypes."""
    dtype = tensors[0].dtype
    if dtype.itemsize > 1:
        return torch.stack(tensors)
    return torch.stack([tensor.view(torch.uint8) for tensor in tensors]).view(dtype)
