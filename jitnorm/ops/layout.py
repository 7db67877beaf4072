"""Rearrangements of weights and scales for the GEMMs that read them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jitnorm.catalogue.moves import BLOCK_SCALE_INTERLEAVE, SHUFFLE_MATRIX_A
from jitnorm.dispatch import Dispatcher, dispatcher_of
from jitnorm.interop.form import Step
from jitnorm.kernels.quant_spec import require_one_of
from jitnorm.ops.forms import Form, Known, Shape
from jitnorm.ops.run import Tensor

_INTERLEAVE, _SHUFFLE = Form("unswizzled_sf out", "{out}"), Form("input_tensor", "{out}")


def block_scale_interleave(unswizzled_sf: Tensor, *, out: Tensor | None = None, stream: Any = None) -> Tensor:
    """Linear block scales to the 128x4 layout, padded with zeros to whole tiles.

    Args:
        unswizzled_sf: shape (rows, columns), or (matrices, rows, columns), each matrix padded separately: uint8, an
            8-bit float, or bfloat16, float16, float32; rows at any stride.
        out: where to write, flat, (matrices * roundup(rows, 128) * roundup(columns, 4),), of the same dtype;
            contiguous. None allocates.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        `out`; uint8 if the framework cannot give the dtype of the scales.

    Raises:
        ValueError: a shape, dtype, device or stride that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> scales = np.arange(8, dtype=np.uint8).reshape(2, 4)
        >>> swizzled = block_scale_interleave(scales)
        >>> swizzled.shape, swizzled[:4].tolist(), swizzled[16:20].tolist()
        ((512,), [0, 1, 2, 3], [4, 5, 6, 7])
    """
    made: Tensor = _INTERLEAVE_CALLS.call(unswizzled_sf, out, stream)
    return made


def _interleave_calls(scales: Shape) -> tuple[Dispatcher, Form]:
    _check_dims("unswizzled_sf", scales, (2, 3))
    return dispatcher_of(BLOCK_SCALE_INTERLEAVE, None, len(scales) == 3), _INTERLEAVE


_INTERLEAVE_CALLS = Known(_interleave_calls, "unswizzled_sf@0 out")


def shuffle_matrix_a(input_tensor: Tensor, epilogue_tile_m: int, *, stream: Any = None) -> Tensor:
    """Permute the rows of a weight as the epilogue of a GEMM stores them (TensorRT-LLM's `shuffleMatrixA`).

    In each block of 16 rows, or of 32 if `epilogue_tile_m` is a multiple of 128, row d of the result is row
    ``(d % 8) * (block / 8) + d // 8`` of the input.

    Args:
        input_tensor: shape (rows, columns), rows a multiple of the block, columns at most 262144: uint8, an FP4 or
            8-bit float, or bfloat16, float16, float32; rows at any stride.
        epilogue_tile_m: rows of an epilogue tile.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        a contiguous tensor like the input; uint8 if the framework cannot give its dtype.

    Raises:
        ValueError: a shape, dtype, device or stride that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> shuffle_matrix_a(np.arange(16, dtype=np.uint8).reshape(16, 1), 64)[:, 0].tolist()
        [0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15]
    """
    made: Tensor = _SHUFFLE_CALLS.call(input_tensor, stream, epilogue_tile_m)
    return made


def _shuffle_calls(matrix: Shape, epilogue_tile_m: int) -> tuple[Dispatcher, Form]:
    if not isinstance(epilogue_tile_m, int):
        raise TypeError(f"epilogue_tile_m: is {epilogue_tile_m!r}; expected a whole number, such as 128")
    block = 32 if epilogue_tile_m % 128 == 0 else 16
    _check_dims("input_tensor", matrix, (2,))
    _check_rows(matrix, block)
    return dispatcher_of(SHUFFLE_MATRIX_A, None, block), _SHUFFLE


_SHUFFLE_CALLS = Known(_shuffle_calls, "input_tensor@2")


def shuffle_matrix_sf_a(
    input_tensor: Tensor, epilogue_tile_m: int, num_elts_per_sf: int = 16, *, stream: Any = None
) -> Tensor:  # fmt: skip
    """`shuffle_matrix_a` of linear block scales, then `block_scale_interleave`.

    Args:
        input_tensor: linear block scales, shape (rows, columns), rows a multiple of 128; dtypes and strides as there.
        epilogue_tile_m: rows of an epilogue tile.
        num_elts_per_sf: values that share a scale, 16 or 32; the result does not depend on it.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        the scales in the 128x4 layout, flat.

    Raises:
        ValueError: a shape, dtype, device, stride or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> shuffle_matrix_sf_a(np.zeros((128, 6), np.uint8), 128).shape
        (1024,)
    """
    made: Tensor = _SHUFFLE_SF_CALLS.call(input_tensor, stream, epilogue_tile_m, num_elts_per_sf)
    return made


def _shuffle_sf_calls(matrix: Shape, epilogue_tile_m: int, count: int) -> tuple[Dispatcher, Form]:
    require_one_of("num_elts_per_sf", count, (16, 32))
    _check_dims("input_tensor", matrix, (2,))
    _check_rows(matrix, 128)
    shuffle, form = _shuffle_calls(matrix, epilogue_tile_m)
    interleave = dispatcher_of(BLOCK_SCALE_INTERLEAVE, None, False)
    steps = Step(shuffle, {"out": "shuffled"}), Step(interleave, {"unswizzled_sf": "shuffled"})
    return shuffle, replace(form, steps=steps)


_SHUFFLE_SF_CALLS = Known(_shuffle_sf_calls, "input_tensor@2")


def _check_dims(name: str, shape: Shape, allowed: tuple[int, ...]) -> None:
    if len(shape) not in allowed:
        raise ValueError(f"{name}: has {len(shape)} dimensions; expected {' or '.join(map(str, allowed))}")


def _check_rows(shape: Shape, multiple: int) -> None:
    rows = shape[0] or 0
    if rows % multiple:
        raise ValueError(f"input_tensor: has {rows} rows; expected a multiple of {multiple}, so pad it")
