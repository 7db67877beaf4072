"""The layouts in which consumers read the scales."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from jitnorm.reference.checks import FLOAT32, as_float32, as_uint8, require_member, require_shape

ScaleLayout = Literal["linear", "128x4", "8x4"]

_TMA_ALIGNED_ROWS = 4  # TMA strides are multiples of 16 bytes


def swizzle_scales(scales: NDArray[np.uint8], layout: ScaleLayout) -> NDArray[np.uint8]:
    """Lay out block scales for a consumer, padded with zeros.

    Args:
        scales: (M, K) uint8, K block columns.
        layout: "linear", "128x4" or "8x4" (rows x block columns of a tile).

    Returns:
        (M, K) for "linear", else flat: both sides of (M, K) rounded up to whole tiles.

    Raises:
        TypeError: scales is not uint8.
        ValueError: layout is unknown or scales is not 2-D.

    Example:
        >>> swizzle_scales(np.arange(8, dtype=np.uint8).reshape(2, 4), "8x4")[:8].tolist()
        [0, 1, 2, 3, 4, 5, 6, 7]
    """
    rows, columns = as_uint8(scales, "scales", ndim=2).shape
    offsets, size = _scale_offsets(rows, columns, layout)
    flat = np.zeros(size, np.uint8)
    flat[offsets] = scales
    return flat.reshape(scales.shape) if layout == "linear" else flat


def unswizzle_scales(
    flat: NDArray[np.uint8],
    M: int,  # noqa: N803 - the interface names the dimensions as the documentation does
    K: int,  # noqa: N803
    layout: ScaleLayout,
) -> NDArray[np.uint8]:
    """Return the (M, K) scales that :func:`swizzle_scales` laid out.

    Raises:
        TypeError: flat is not uint8.
        ValueError: layout is unknown or flat has a size that does not fit.

    Example:
        >>> scales = np.arange(8, dtype=np.uint8).reshape(2, 4)
        >>> unswizzle_scales(swizzle_scales(scales, "128x4"), 2, 4, "128x4").tolist()
        [[0, 1, 2, 3], [4, 5, 6, 7]]
    """
    flat = as_uint8(flat, "flat")
    offsets, size = _scale_offsets(M, K, layout)
    if flat.size != size:
        raise ValueError(f"flat has {flat.size} bytes; ({M}, {K}) scales in layout {layout} take {size}")
    scales: NDArray[np.uint8] = flat.reshape(size)[offsets]
    return scales


def column_major_scales(scales: NDArray[np.float32], tma_aligned: bool) -> NDArray[np.float32]:
    """Lay out float32 group scales column by column, padded with zeros.

    Args:
        scales: (M, G) float32, G groups per row.
        tma_aligned: Whether the size of a column is M rounded up to a multiple of 4 elements, as the strides of a
            TMA load are multiples of 16 bytes, or just M.

    Returns:
        Flat float32: the scale of row m and group g lies at g times the size of a column, plus m.

    Raises:
        TypeError: scales is not float32.
        ValueError: scales is not 2-D.

    Example:
        >>> column_major_scales(np.array([[1, 2], [3, 4]], np.float32), tma_aligned=True).tolist()
        [1.0, 3.0, 0.0, 0.0, 2.0, 4.0, 0.0, 0.0]
    """
    if scales.dtype != FLOAT32:
        raise TypeError(f"scales is {scales.dtype}; use float32")
    rows, groups = as_float32(scales, "scales", ndim=2).shape
    column_size = -(-rows // _TMA_ALIGNED_ROWS) * _TMA_ALIGNED_ROWS if tma_aligned else rows
    columns = np.zeros((groups, column_size), np.float32)
    columns[:, :rows] = scales.T
    return columns.ravel()


def packed_scales(scales: NDArray[np.float32]) -> NDArray[np.int32]:
    """Lay out powers of two as bytes, UE8M0, four columns to an integer, the integers column by column.

    Args:
        scales: (M, G) float32, normal powers of two or NaN.

    Returns:
        Flat int32: the integer of row m and groups 4j to 4j + 3, the first in its lowest byte, lies at j times M,
        rounded up to a multiple of 4, plus m. The padding of rows and columns is zero.

    Raises:
        TypeError: scales is not float32.
        ValueError: scales is not 2-D.

    Example:
        >>> [hex(word) for word in packed_scales(np.array([[1, 2, 0.5, 1, 4]], np.float32))[[0, 4]]]
        ['0x7f7e807f', '0x81']
    """
    if scales.dtype != FLOAT32:
        raise TypeError(f"scales is {scales.dtype}; use float32")
    rows, groups = as_float32(scales, "scales", ndim=2).shape
    padded = np.zeros((-(-rows // _TMA_ALIGNED_ROWS) * _TMA_ALIGNED_ROWS, -(-groups // 4), 4), np.uint8)
    exponents = (scales.view(np.uint32) >> np.uint32(23)).astype(np.uint8)
    padded.reshape(len(padded), padded.shape[1] * 4)[:rows, :groups] = exponents
    words: NDArray[np.int32] = padded.view("<i4")[:, :, 0].T
    return words.ravel()


def spread_scales(
    scales: NDArray[np.float32], shape: tuple[int, ...], block_rows: int, block_columns: int
) -> NDArray[np.float32]:
    """Return the scale of each element of a matrix of that shape, from those of its blocks.

    Args:
        scales: (ceil(M / block_rows), ceil(H / block_columns)) float32.
        shape: (M, H).
        block_rows: rows of a block.
        block_columns: columns of a block.

    Raises:
        ValueError: the shapes do not fit.

    Example:
        >>> spread_scales(np.array([[1, 2]], np.float32), (2, 4), 2, 2).tolist()
        [[1.0, 1.0, 2.0, 2.0], [1.0, 1.0, 2.0, 2.0]]
    """
    rows, columns = shape
    require_shape(scales, (-(-rows // block_rows), -(-columns // block_columns)), "scales")
    return scales.repeat(block_rows, axis=0).repeat(block_columns, axis=1)[:rows, :columns]


def _scale_offsets(rows: int, columns: int, layout: ScaleLayout) -> tuple[NDArray[np.intp], int]:
    """Return the (rows, columns) offsets of the scales in a layout and its size in bytes."""
    require_member(layout, get_args(ScaleLayout), "layout")
    m = np.arange(rows)[:, None]
    k = np.arange(columns)[None, :]
    column_tiles = -(-columns // 4)
    if layout == "linear":
        return m * columns + k, rows * columns
    if layout == "128x4":
        tile = (m // 128) * column_tiles + k // 4
        return tile * 512 + (m % 32) * 16 + (m % 128) // 32 * 4 + k % 4, -(-rows // 128) * column_tiles * 512
    tile = (m // 8) * column_tiles + k // 4
    return tile * 32 + (m % 8) * 4 + k % 4, -(-rows // 8) * column_tiles * 32
