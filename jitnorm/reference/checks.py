"""Argument checks shared by the functions of the reference."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

FLOAT16 = np.dtype(np.float16)
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOAT32 = np.dtype(np.float32)
E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)


def as_float32(array: NDArray[Any], name: str, ndim: int | None = None) -> NDArray[np.float32]:
    """Widen float16, bfloat16 and E4M3; reject other dtypes and numbers of dimensions."""
    if array.dtype not in (FLOAT16, BFLOAT16, FLOAT32, E4M3):
        raise TypeError(f"{name} is {array.dtype}; use float16, float32, or bfloat16 or float8_e4m3fn of ml_dtypes")
    _require_ndim(array, ndim, name)
    return array.astype(np.float32)


def as_blocks(y: NDArray[Any], block_size: int) -> NDArray[np.float32]:
    """Split the rows of y, (M, H), into (M, H / block_size, block_size) float32."""
    y = as_float32(y, "y", ndim=2)
    rows, length = y.shape
    if length % block_size:
        raise ValueError(f"y has rows of {length} elements; their number must be a multiple of {block_size}")
    return y.reshape(rows, length // block_size, block_size)


def as_rows(array: NDArray[Any], name: str) -> NDArray[np.float32]:
    """Widen (M, H) to float32, and reject empty rows."""
    rows = as_float32(array, name, ndim=2)
    if rows.shape[1] == 0:
        raise ValueError(f"{name} has shape {rows.shape}; a row needs at least one element")
    return rows


def as_uint8(array: NDArray[np.uint8], name: str, ndim: int | None = None) -> NDArray[np.uint8]:
    """Reject dtypes other than uint8 and other numbers of dimensions."""
    if array.dtype != np.uint8:
        raise TypeError(f"{name} is {array.dtype}; use uint8")
    _require_ndim(array, ndim, name)
    return array


def require_shape(array: NDArray[Any], shape: tuple[int, ...], name: str) -> None:
    """Reject an array of another shape."""
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}; it must be {shape}")


def require_member(value: object, allowed: tuple[object, ...], name: str) -> None:
    """Reject a value that is not one of the allowed ones."""
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}; use one of {', '.join(map(repr, allowed))}")


def _require_ndim(array: NDArray[Any], ndim: int | None, name: str) -> None:
    if ndim is not None and array.ndim != ndim:
        raise ValueError(f"{name} has shape {array.shape}; it must be {ndim}-D")
