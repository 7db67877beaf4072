"""The scales given to vLLM's static quantization: their shapes, and the parts of a matrix that they are for."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

_ALL = "all"


def block_size_of(input: torch.Tensor, scale: torch.Tensor, group_shape: Sequence[int] | None) -> int | str:
    """The `block_size` of a QuantSpec for FP8 with these scales.

    Args:
        input: shape (..., N), with M rows.
        scale: one element; or (M / r, N / c), or flat if r or c is all, for blocks of r rows and c columns.
        group_shape: r and c, where -1 stands for all; None if a 2-D scale implies them.

    Raises:
        ValueError: they do not match, or there is no kernel for such blocks.
    """
    if scale.numel() == 1:
        return "tensor"
    columns = input.shape[-1]
    sizes = math.prod(input.shape[:-1]), columns
    shape = _given(sizes, group_shape) if group_shape is not None else _inferred(sizes, scale)
    expected = tuple(size // part for size, part in zip(sizes, shape, strict=True))
    if tuple(scale.shape) != expected and not (scale.ndim == 1 and len(scale) == math.prod(expected) == max(expected)):
        raise ValueError(f"scale: shape is {tuple(scale.shape)}, expected {expected}, that of groups {shape}")
    rows, columns = (_ALL if part == size else part for size, part in zip(sizes, shape, strict=True))
    if columns != _ALL and int(columns) % 16 and (rows, columns) != (_ALL, 1):
        raise ValueError(f"scale: is of groups {shape}; their columns are all, a multiple of 16 or, of all rows, one")
    return _named(rows, columns)


def _given(sizes: tuple[int, int], group_shape: Sequence[int]) -> tuple[int, int]:
    if len(group_shape) != 2:
        raise ValueError(f"group_shape: is {list(group_shape)!r}; expected rows and columns")
    rows, columns = (size if part == -1 else part for size, part in zip(sizes, group_shape, strict=True))
    if rows < 1 or columns < 1 or sizes[0] % rows or sizes[1] % columns:
        raise ValueError(f"group_shape: is {list(group_shape)!r}, which does not divide {sizes}")
    return rows, columns


def _inferred(sizes: tuple[int, int], scale: torch.Tensor) -> tuple[int, int]:
    if scale.ndim != 2:
        raise ValueError(f"group_shape: is None, but a scale with {scale.ndim} dimensions does not say it; pass it")
    if any(part < 1 or size % part for size, part in zip(sizes, scale.shape, strict=True)):
        raise ValueError(f"scale: shape is {tuple(scale.shape)}, which does not divide {sizes}")
    return sizes[0] // scale.shape[0], sizes[1] // scale.shape[1]


def _named(rows: int | str, columns: int | str) -> int | str:
    if rows == 1 and columns == _ALL:
        return "row"
    if rows == _ALL and columns == 1:
        return "column"
    if rows == 1 and columns in (16, 32, 48, 64, 96, 128, 256):
        return int(columns)
    return f"{rows}x{columns}"
