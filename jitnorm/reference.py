"""The numerics of jitnorm, bit for bit, in NumPy.

Every kernel, on every device, is compared with this module byte for byte. It is written from the
definition alone and shares no code with the kernels. All arithmetic is float32, rounded to nearest even,
with denormals; the only fused operation is the multiply-add of the row statistic. The payload and sign of
a float32 NaN are unspecified; every encoded NaN has one fixed code.

Example:
    >>> import numpy as np
    >>> x = np.array([[3.0, -4.0] * 8], np.float16)
    >>> y = rmsnorm_f32(x, np.ones(16, np.float16), eps=0.0)
    >>> codes, scales = quantize_fp4(y, block_size=16, scale_format="e4m3")
    >>> codes.shape, scales.tolist()
    ((1, 8), [[36]])
    >>> dequantize_fp4(codes, scales, block_size=16, scale_format="e4m3")[0, :2].tolist()
    [0.75, -1.125]
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import ml_dtypes
import numpy as np
from numpy.typing import DTypeLike, NDArray

CHUNK: int = 16
"""Consecutive elements of a row that one accumulator takes in, in order."""

ScaleFormat = Literal["e4m3", "ue8m0"]
ScaleRounding = Literal["up", "floor"]
ScaleLayout = Literal["linear", "128x4", "8x4"]

_GROUP = 32
_BLOCK_SIZES = (16, 32)
_FLOAT16 = np.dtype(np.float16)
_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
_FLOAT32 = np.dtype(np.float32)
_ONE = np.float32(1)
_FLT_MAX = np.finfo(np.float32).max
_ONE_SIXTH = np.uint32(0x3E2AAAAB).view(np.float32)

# Magnitudes in the order of their codes; the lowest bit of a code is the lowest bit of its mantissa.
_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
_E4M3 = np.array(
    [mantissa / 2**9 for mantissa in range(8)]
    + [(8 + mantissa) * 2.0 ** (exponent - 10) for exponent in range(1, 16) for mantissa in range(8)][:-1],
    np.float32,
)
_E4M3_MAX = _E4M3[-1]
_UE8M0_NAN = 0xFF
_UE8M0_MAX = 254


@np.errstate(all="ignore")
def sum_of_squares(h: NDArray[Any]) -> NDArray[np.float32]:
    """Sum the squares of each row along one fixed tree, a function of the row length alone.

    A chunk of ``CHUNK`` elements is accumulated in order by fused multiply-adds; 32 chunks form a group,
    combined by a butterfly; the groups, filled up to a power of two, are combined by a butterfly again.

    Args:
        h: (M, H) float32; float16 and bfloat16 are widened. H is at least 1.

    Returns:
        (M,) float32.

    Raises:
        TypeError: h has another dtype.
        ValueError: h is not 2-D or its rows are empty.
    """
    h = _float32(h, "h", ndim=2)
    rows, length = h.shape
    if length == 0:
        raise ValueError(f"h has shape {h.shape}; a row needs at least one element")
    groups = -(-length // (CHUNK * _GROUP))
    # fma(0, 0, acc) and acc + 0 are acc, as no partial sum is -0: zeros stand for whatever is missing.
    padded = np.zeros((rows, groups * _GROUP * CHUNK), np.float32)
    padded[:, :length] = h
    chunks = padded.reshape(rows, groups, _GROUP, CHUNK)
    accumulator = np.zeros((rows, groups, _GROUP), np.float32)
    for i in range(CHUNK):
        accumulator = _fma(chunks[..., i], chunks[..., i], accumulator)
    group_sums = np.zeros((rows, 1 << (groups - 1).bit_length()), np.float32)
    group_sums[:, :groups] = _butterfly_sum(accumulator)
    return _butterfly_sum(group_sums)


@np.errstate(all="ignore")
def rmsnorm_f32(
    x: NDArray[Any],
    weight: NDArray[Any],
    eps: float = 1e-6,
    *,
    residual: NDArray[Any] | None = None,
    weight_bias: float = 0.0,
) -> NDArray[np.float32]:
    """Normalize the rows of ``x + residual`` by their root mean square and apply the weight.

    With h = x + residual, unrounded: ``y = (h * rstd) * (weight + weight_bias)``, where
    ``rstd = 1 / sqrt(sum_of_squares(h) / H + eps)``.

    Args:
        x: (M, H) float16, bfloat16 or float32.
        weight: (H,) in the dtype of x, or float32.
        eps: Added to the mean square, rounded to float32.
        residual: (M, H) float16, bfloat16 or float32, added to x; None adds nothing.
        weight_bias: Added to the weight, rounded to float32. Zero means that no addition takes place, so a
            weight of -0 keeps its sign.

    Returns:
        y, (M, H) float32, not rounded to the dtype of x.

    Raises:
        TypeError: An array has a dtype that is not listed above.
        ValueError: An array has a shape that is not listed above.
    """
    h = _float32(x, "x", ndim=2)
    length = h.shape[1]
    if residual is not None:
        _require_shape(residual, h.shape, "residual")
        h = h + _float32(residual, "residual", ndim=2)
    if weight.dtype not in (x.dtype, _FLOAT32):
        raise TypeError(f"weight is {weight.dtype}; use the dtype of x, {x.dtype}, or float32")
    _require_shape(weight, (length,), "weight")
    scale = _float32(weight, "weight", ndim=1)
    if np.float32(weight_bias) != 0:
        scale = scale + np.float32(weight_bias)
    mean_square = sum_of_squares(h) / np.float32(length)
    rstd = _ONE / np.sqrt(mean_square + np.float32(eps))
    y: NDArray[np.float32] = (h * rstd[:, None]) * scale
    return y


@np.errstate(all="ignore")
def round_to(y: NDArray[Any], dtype: DTypeLike) -> NDArray[Any]:
    """Round float32 to a 16-bit output dtype, to nearest even, and write every NaN as 0x7FFF.

    Args:
        y: float32, any shape.
        dtype: float16 or bfloat16 (ml_dtypes).

    Raises:
        TypeError: dtype is another one, or y is not floating point.
    """
    dtype = np.dtype(dtype)
    if dtype not in (_FLOAT16, _BFLOAT16):
        raise TypeError(f"dtype is {dtype}; use float16 or bfloat16")
    y = _float32(y, "y")
    rounded = y.astype(dtype)
    bits = np.where(np.isnan(y), np.uint16(0x7FFF), rounded.view(np.uint16))
    return bits.view(dtype)


def encode_e2m1(v: NDArray[Any]) -> NDArray[np.uint8]:
    """Encode as E2M1, one code 0x0 to 0xF per element: to nearest even, saturating to 6, NaN as 0x7.

    Args:
        v: float32 (float16 and bfloat16 are widened), any shape. The sign of zero is kept.

    Raises:
        TypeError: v has another dtype.
    """
    return _encode(_float32(v, "v"), _E2M1, sign_bit=0x8)


def decode_e2m1(codes: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Decode E2M1 codes, uint8 with one per element, to float32.

    Raises:
        TypeError: codes has another dtype.
        IndexError: A code is above 0xF; packed codes must be split into their nibbles first.
    """
    return np.concatenate([_E2M1, -_E2M1])[_uint8(codes, "codes")]


def encode_e4m3(v: NDArray[Any]) -> NDArray[np.uint8]:
    """Encode as OCP E4M3 (e4m3fn): to nearest even, saturating to 448, every NaN as 0x7F.

    Args:
        v: float32 (float16 and bfloat16 are widened), any shape. The sign of zero is kept.

    Raises:
        TypeError: v has another dtype.
    """
    return _encode(_float32(v, "v"), _E4M3, sign_bit=0x80)


def decode_e4m3(codes: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Decode OCP E4M3 bytes, uint8, to float32; 0x7F and 0xFF are NaN.

    Raises:
        TypeError: codes has another dtype.
    """
    magnitudes = np.append(_E4M3, np.float32(np.nan))
    return np.concatenate([magnitudes, -magnitudes])[_uint8(codes, "codes")]


@np.errstate(all="ignore")
def quantize_fp4(
    y: NDArray[Any],
    *,
    block_size: int,
    scale_format: ScaleFormat,
    global_scale: float | None = None,
    scale_rounding: ScaleRounding = "up",
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Quantize blocks of a row to E2M1 with one scale a block.

    NVFP4 is block size 16 with "e4m3" scales, MXFP4 is 32 with "ue8m0".

    Args:
        y: (M, H) float32 (float16 and bfloat16 are widened); block_size divides H.
        block_size: 16 or 32.
        scale_format: "e4m3" or "ue8m0".
        global_scale: Encode scale of the tensor, rounded to float32, for "e4m3" only; None is 1.
        scale_rounding: "up" takes the power of two not below amax / 6; "floor" is the OCP rule
            floor(log2(amax)) - 2, for "ue8m0" only.

    Returns:
        The codes, (M, H / 2) uint8 with element 2i in the low nibble, and the scales, (M, H / block_size)
        uint8. A NaN in a block gives the scale 0x7F or 0xFF and the codes 0x7; a zero scale ("e4m3") or a
        block of zeros ("ue8m0") gives the codes 0x0.

    Raises:
        TypeError: y has another dtype.
        ValueError: An option is not allowed, or block_size does not divide H.
    """
    _require_options(block_size, scale_format, global_scale)
    _require_member(scale_rounding, get_args(ScaleRounding), "scale_rounding")
    if scale_format == "e4m3" and scale_rounding != "up":
        raise ValueError(f"scale_rounding is {scale_rounding!r}; e4m3 scales allow only 'up', the default")
    y = _float32(y, "y", ndim=2)
    rows, length = y.shape
    if length % block_size:
        raise ValueError(f"y has rows of {length} elements; their number must be a multiple of {block_size}")
    blocks = y.reshape(rows, length // block_size, block_size)
    amax = np.abs(blocks).max(axis=-1)
    if scale_format == "e4m3":
        scales, encode_scale = _e4m3_scales(amax, np.float32(1 if global_scale is None else global_scale))
        is_zero = (scales & 0x7F) == 0
    else:
        scales, encode_scale = _ue8m0_scales(amax, scale_rounding)
        is_zero = amax == 0
    codes = encode_e2m1(blocks * encode_scale[..., None])
    codes[is_zero] = 0
    codes = codes.reshape(rows, length)
    packed: NDArray[np.uint8] = codes[:, 0::2] | codes[:, 1::2] << np.uint8(4)
    return packed, scales


@np.errstate(all="ignore")
def dequantize_fp4(
    codes: NDArray[np.uint8],
    scales: NDArray[np.uint8],
    *,
    block_size: int,
    scale_format: ScaleFormat,
    global_scale: float | None = None,
) -> NDArray[np.float32]:
    """Decode what :func:`quantize_fp4` returns, with the same options.

    Args:
        codes: (M, H / 2) uint8, element 2i in the low nibble.
        scales: (M, H / block_size) uint8, in the linear layout.
        block_size: 16 or 32.
        scale_format: "e4m3" or "ue8m0".
        global_scale: Encode scale of the tensor, for "e4m3" only; None is 1.

    Returns:
        (M, H) float32; a block whose scale is NaN is NaN throughout. Under "ue8m0", values from 1.75 * 2^127
        on may have been rounded up to 2^128, which is infinite.

    Raises:
        TypeError: codes or scales is not uint8.
        ValueError: An option is not allowed, or the shapes do not fit.
    """
    _require_options(block_size, scale_format, global_scale)
    codes = _uint8(codes, "codes")
    rows, columns = _uint8(scales, "scales", ndim=2).shape
    _require_shape(codes, (rows, columns * block_size // 2), "codes")
    values = decode_e2m1(np.stack([codes & 0xF, codes >> 4], axis=-1)).reshape(rows, columns, block_size)
    if scale_format == "e4m3":
        divisor = np.float32(1 if global_scale is None else global_scale)
        values = values * decode_e4m3(scales)[..., None] / divisor
    else:
        powers = _power_of_two(scales.astype(np.int32) - 127)
        powers[scales == _UE8M0_NAN] = np.nan
        values = values * powers[..., None]
    return values.reshape(rows, columns * block_size)


def swizzle_scales(scales: NDArray[np.uint8], layout: ScaleLayout) -> NDArray[np.uint8]:
    """Lay out block scales for a consumer, with zeros as padding.

    Args:
        scales: (M, K) uint8, K block columns.
        layout: "linear", "128x4" or "8x4" (rows x block columns of a tile).

    Returns:
        (M, K) for "linear", else flat: both sides of (M, K) rounded up to whole tiles.

    Raises:
        TypeError: scales is not uint8.
        ValueError: layout is unknown or scales is not 2-D.
    """
    rows, columns = _uint8(scales, "scales", ndim=2).shape
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
    """
    flat = _uint8(flat, "flat")
    offsets, size = _scale_offsets(M, K, layout)
    if flat.size != size:
        raise ValueError(f"flat has {flat.size} bytes; ({M}, {K}) scales in layout {layout} take {size}")
    scales: NDArray[np.uint8] = flat.reshape(size)[offsets]
    return scales


def _fma(a: NDArray[np.float32], b: NDArray[np.float32], c: NDArray[np.float32]) -> NDArray[np.float32]:
    """Compute a * b + c with a single rounding."""
    product = a.astype(np.float64) * b  # exact: 48 bits
    addend = c.astype(np.float64)
    total = product + addend
    # Rounding twice, to float64 and to float32, goes wrong next to a tie. Rounding the sum to odd instead
    # keeps the information that something was lost, so the second rounding comes out as the only one.
    part = total - product
    error = (product - (total - part)) + (addend - part)
    is_even = (total.view(np.uint64) & 1) == 0
    nudge = np.isfinite(total) & (error != 0) & is_even
    odd = np.where(nudge, np.nextafter(total, np.copysign(np.inf, error)), total)
    return odd.astype(np.float32)


def _butterfly_sum(lanes: NDArray[np.float32]) -> NDArray[np.float32]:
    """Reduce the last axis, a power of two wide, by v[i] + v[i ^ k] for k = width / 2 down to 1."""
    k = lanes.shape[-1] // 2
    while k:
        # Addition commutes, so lanes i and i ^ k hold the same sum and the lower half is enough.
        lanes = lanes[..., :k] + lanes[..., k:]
        k //= 2
    total: NDArray[np.float32] = lanes[..., 0]
    return total


def _encode(v: NDArray[np.float32], values: NDArray[np.float32], sign_bit: int) -> NDArray[np.uint8]:
    """Return a sign bit over the index of the nearest value, even at a tie; NaN is all ones but the sign."""
    magnitude = np.abs(v)
    midpoints = (values[:-1] + values[1:]) / 2
    # The two searches differ at a tie alone, by one.
    low = np.searchsorted(midpoints, magnitude, side="left")
    high = np.searchsorted(midpoints, magnitude, side="right")
    codes = np.where(low % 2 == 0, low, high) + np.signbit(v) * sign_bit
    encoded: NDArray[np.uint8] = np.where(np.isnan(v), sign_bit - 1, codes).astype(np.uint8)
    return encoded


def _e4m3_scales(amax: NDArray[np.float32], global_scale: np.float32) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    scales = encode_e4m3(np.minimum(amax * (global_scale * _ONE_SIXTH), _E4M3_MAX))
    encode_scale = np.minimum(_ONE / (decode_e4m3(scales) * (_ONE / global_scale)), _FLT_MAX)
    return scales, encode_scale


def _ue8m0_scales(amax: NDArray[np.float32], rounding: ScaleRounding) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    if rounding == "up":
        bits = (amax * _ONE_SIXTH).view(np.uint32)
        exponent = _exponent_field(bits) + ((bits & 0x7FFFFF) != 0)
    else:
        exponent = _exponent_field(amax.view(np.uint32)) - 2
    exponent = np.clip(exponent, 0, _UE8M0_MAX)
    is_nan = np.isnan(amax)
    encode_scale = np.where(is_nan, np.float32(np.nan), _power_of_two(127 - exponent))
    # A block of zeros needs no case of its own here: both rules give it the exponent 0.
    return np.where(is_nan, _UE8M0_NAN, exponent).astype(np.uint8), encode_scale


def _exponent_field(bits: NDArray[np.uint32]) -> NDArray[np.int32]:
    return ((bits >> 23) & 0xFF).astype(np.int32)


def _power_of_two(exponent: NDArray[np.int32]) -> NDArray[np.float32]:
    return np.ldexp(np.ones(exponent.shape, np.float32), exponent)


def _scale_offsets(rows: int, columns: int, layout: ScaleLayout) -> tuple[NDArray[np.intp], int]:
    """Return the (rows, columns) offsets of the scales in a layout and its size in bytes."""
    _require_member(layout, get_args(ScaleLayout), "layout")
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


def _float32(array: NDArray[Any], name: str, ndim: int | None = None) -> NDArray[np.float32]:
    if array.dtype not in (_FLOAT16, _BFLOAT16, _FLOAT32):
        raise TypeError(f"{name} is {array.dtype}; use float16, bfloat16 (ml_dtypes) or float32")
    _require_ndim(array, ndim, name)
    return array.astype(np.float32)


def _uint8(array: NDArray[np.uint8], name: str, ndim: int | None = None) -> NDArray[np.uint8]:
    if array.dtype != np.uint8:
        raise TypeError(f"{name} is {array.dtype}; use uint8")
    _require_ndim(array, ndim, name)
    return array


def _require_ndim(array: NDArray[Any], ndim: int | None, name: str) -> None:
    if ndim is not None and array.ndim != ndim:
        raise ValueError(f"{name} has shape {array.shape}; it must be {ndim}-D")


def _require_shape(array: NDArray[Any], shape: tuple[int, ...], name: str) -> None:
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}; it must be {shape}")


def _require_member(value: object, allowed: tuple[object, ...], name: str) -> None:
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}; use one of {', '.join(map(repr, allowed))}")


def _require_options(block_size: int, scale_format: ScaleFormat, global_scale: float | None) -> None:
    _require_member(block_size, _BLOCK_SIZES, "block_size")
    _require_member(scale_format, get_args(ScaleFormat), "scale_format")
    if scale_format == "ue8m0" and global_scale is not None:
        raise ValueError(f"global_scale is {global_scale}; ue8m0 scales take none, so pass None")
