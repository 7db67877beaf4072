"""The kernels' arithmetic on the host: every bit pattern of every format, against tables and ml_dtypes."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from host_program import call_over, load_with_headers, pointer
from inputs import make_input
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.quant_spec import INT8_TOKEN, MXFP4, NVFP4
from numpy.typing import NDArray

from jitnorm.reference import encode_e2m1, encode_e4m3, encode_e5m2, encode_int8, quantize_fp4, sum_of_squares

INFINITY_BITS = 0x7F800000
BFLOAT16_OVERFLOW = (2 - 2**-8) * 2.0**127  # half a step above the largest
SPECIAL = np.array(
    [0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1e-45, -1e-45, 1e-38, 3.4e38, 6, 448, 2688, 1 / 6], np.float32
)

# A check walks the magnitudes in order: from first[c] to before first[c + 1] all must give code c, with either
# sign.
CONVERSIONS = """
static UInt32 to_bfloat16(float x) { BFloat16 r; round_to(x, r); return r.bits; }
static UInt32 to_float16(float x) { Float16 r; round_to(x, r); return r.bits; }
static inline UInt32 encode_e2m1(float x) { const float y[8] = {x}; return encode_word<Element::kE2M1>(y, 1.0f) & 15u; }

#define CHECK(encode) \\
extern "C" Int64 check_##encode(const UInt32* first, int codes, UInt32 sign_bit, UInt32 nan) { \\
  Int64 wrong = 0; \\
  for (int code = 0; code <= codes; ++code) { \\
    const UInt32 begin = first[code], end = code == codes ? 0x80000000u : first[code + 1]; \\
    const UInt32 plus = code == codes ? nan : code, minus = code == codes ? nan : code | sign_bit; \\
    int bad = 0; \\
    for (UInt32 bits = begin; bits < end; ++bits) { \\
      bad += (encode(float_of(bits)) != plus) + (encode(float_of(bits | 0x80000000u)) != minus); \\
    } \\
    wrong += bad; \\
  } \\
  return wrong; \\
}
CHECK(encode_e2m1)
CHECK(encode_e4m3)
CHECK(encode_e5m2)
CHECK(to_bfloat16)
CHECK(to_float16)

extern "C" void widen_bfloat16(const UInt16* from, Int64 count, float* to) {
  for (Int64 i = 0; i < count; ++i) to[i] = to_float(BFloat16{from[i]});
}
extern "C" void widen_float16(const UInt16* from, Int64 count, float* to) {
  for (Int64 i = 0; i < count; ++i) to[i] = to_float(Float16{from[i]});
}
extern "C" void decode_e4m3s(const UInt8* from, Int64 count, float* to) {
  for (Int64 i = 0; i < count; ++i) to[i] = decode_e4m3(from[i]);
}
extern "C" void encode_e2m1s(const float* from, Int64 count, UInt8* to) {
  for (Int64 i = 0; i < count; ++i) to[i] = (UInt8)encode_e2m1(from[i]);
}
extern "C" void encode_e4m3s(const float* from, Int64 count, UInt8* to) {
  for (Int64 i = 0; i < count; ++i) to[i] = (UInt8)encode_e4m3(from[i]);
}
extern "C" void encode_e5m2s(const float* from, Int64 count, UInt8* to) {
  for (Int64 i = 0; i < count; ++i) to[i] = (UInt8)encode_e5m2(from[i]);
}
extern "C" void encode_e2m1_words(const float* from, Int64 count, UInt32* to) {
  for (Int64 i = 0; i < count / 8; ++i) to[i] = encode_word<Element::kE2M1>(from + 8 * i, 1.0f);
}
"""

INTEGERS = """
extern "C" void encode_words(const float* from, Int64 count, UInt32* to) {
  for (Int64 i = 0; i < count / 4; ++i) to[i] = encode_word<Element::kInt8>(from + 4 * i, 1.0f);
}
extern "C" void decode_codes(const UInt32* from, Int64 count, float* to) {
  for (Int64 i = 0; i < count; ++i) to[i] = value_of_code<Element::kInt8>(from[i]);
}
"""

# The scale of a block whose largest magnitude is amax, and the code that amax gets.
SCALES = """
extern "C" void scales_of(const float* amax, Int64 count, float global_scale, UInt8* bytes, UInt8* codes) {
  const GlobalScale global = global_scale_from(Arguments{}, global_scale);
  for (Int64 i = 0; i < count; ++i) {
    const BlockScale scale = scale_of<kScaleFormat>(amax[i], global);
    bytes[i] = (UInt8)scale.stored;
    const float y[8] = {amax[i]};
    codes[i] = (UInt8)(((encode_word<kElement>(y, scale.encode) & scale.keep) | scale.fill) & 15u);
  }
}
"""

# Codes of products with a factor, all of them and those that are known to be bounded.
PRODUCTS = """
extern "C" void encode_products(const float* from, Int64 count, float factor, UInt32* words, UInt32* bounded) {
  for (Int64 i = 0; i < count / 8; ++i) {
    words[i] = encode_word<Element::kE2M1>(from + 8 * i, factor);
    bounded[i] = exact_e2m1<true>(from + 8 * i, factor);
  }
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("host")


@pytest.fixture(scope="module")
def conversions(folder: Path) -> ctypes.CDLL:
    return load_with_headers(KernelConfig("rmsnorm", 64, quant=NVFP4), CONVERSIONS, folder)


@pytest.mark.parametrize(("name", "dtype"), [("bfloat16", ml_dtypes.bfloat16), ("float16", np.float16)])
def test_every_16_bit_pattern_widens_exactly(conversions: ctypes.CDLL, name: str, dtype: Any) -> None:
    patterns = np.arange(1 << 16, dtype=np.uint16)
    widened = call_over(getattr(conversions, f"widen_{name}"), patterns, np.float32)
    expected = patterns.view(dtype).astype(np.float32)
    is_nan = np.isnan(expected)
    assert (np.isnan(widened) == is_nan).all()
    assert (widened.view(np.uint32)[~is_nan] == expected.view(np.uint32)[~is_nan]).all()


def first_of_each_code(values: NDArray[np.float32], overflow: float | None = None) -> NDArray[np.uint32]:
    """The bits of the smallest magnitude that rounds to each of the ascending values, then those of the first NaN.

    Halfway between two values lies what goes to the even code. From `overflow` on, infinity is one code more.
    """
    exact = values.astype(np.float64)
    halves = (exact[:-1] + exact[1:]) / 2
    if overflow is not None:
        halves = np.append(halves, overflow)
    bits = halves.astype(np.float32).view(np.uint32)
    assert (bits.view(np.float32).astype(np.float64) == halves).all()
    to_lower = np.arange(len(halves)) % 2 == 0
    return np.concatenate([[0], bits + to_lower, [INFINITY_BITS + 1]]).astype(np.uint32)


def magnitudes(dtype: Any, codes: int) -> NDArray[np.float32]:
    unsigned = np.uint8 if np.dtype(dtype).itemsize == 1 else np.uint16
    return np.arange(codes).astype(unsigned).view(dtype).astype(np.float32)


@pytest.mark.parametrize(
    ("encode", "first", "sign_bit", "nan"),
    [
        ("encode_e2m1", first_of_each_code(magnitudes(ml_dtypes.float4_e2m1fn, 8)), 0x8, 0x7),
        ("encode_e4m3", first_of_each_code(magnitudes(ml_dtypes.float8_e4m3fn, 0x7F)), 0x80, 0x7F),
        ("encode_e5m2", first_of_each_code(magnitudes(ml_dtypes.float8_e5m2, 0x7C)), 0x80, 0x7F),
        (
            "to_bfloat16",
            first_of_each_code(magnitudes(ml_dtypes.bfloat16, 0x7F80), BFLOAT16_OVERFLOW),
            0x8000,
            0x7FFF,
        ),
        ("to_float16", first_of_each_code(magnitudes(np.float16, 0x7C00), 65520.0), 0x8000, 0x7FFF),
    ],
    ids=["e2m1", "e4m3", "e5m2", "bfloat16", "float16"],
)
def test_every_float_rounds_to_the_nearest_value(
    conversions: ctypes.CDLL, encode: str, first: NDArray[np.uint32], sign_bit: int, nan: int
) -> None:
    """All 2**32 floats: ties go to the even code, large ones saturate or overflow, -0 keeps its sign."""
    check = getattr(conversions, f"check_{encode}")
    check.restype = ctypes.c_int64
    assert check(pointer(first), len(first) - 1, sign_bit, nan) == 0


def test_every_e4m3_code_decodes_to_its_value(conversions: ctypes.CDLL) -> None:
    codes = np.arange(256, dtype=np.uint8)
    is_number = (codes & 0x7F) != 0x7F
    decoded = call_over(conversions.decode_e4m3s, codes, np.float32)
    expected = codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    assert (decoded.view(np.uint32)[is_number] == expected.view(np.uint32)[is_number]).all()


def floats() -> NDArray[np.float32]:
    bits = np.random.default_rng(0).integers(0, 1 << 32, 1 << 18, dtype=np.uint32)
    near = np.random.default_rng(1).standard_normal(1 << 16).astype(np.float32) * 4
    return np.concatenate([bits.view(np.float32), near, SPECIAL, np.zeros(2, np.float32)])


@pytest.mark.parametrize("name", ["e2m1", "e4m3", "e5m2"])
def test_the_reference_encodes_the_same(conversions: ctypes.CDLL, name: str) -> None:
    encoded = call_over(getattr(conversions, f"encode_{name}s"), floats(), np.uint8)
    expected = {"e2m1": encode_e2m1, "e4m3": encode_e4m3, "e5m2": encode_e5m2}[name](floats())
    assert (encoded == expected).all()


@pytest.fixture(scope="module")
def integers(folder: Path) -> ctypes.CDLL:
    return load_with_headers(KernelConfig("rmsnorm", 64, quant=INT8_TOKEN), INTEGERS, folder)


def test_codes_of_int8_are_the_reference_s_four_a_word(integers: ctypes.CDLL) -> None:
    """For arbitrary floats, and for floats next to those where codes change."""
    near = (np.arange(-260, 260, dtype=np.float32) / 2).view(np.int32)[:, None] + np.arange(-2, 3, dtype=np.int32)
    values = np.concatenate([floats(), near.view(np.float32).ravel(), np.zeros(4, np.float32)])
    values = values[: values.size // 4 * 4]
    words = call_over(integers.encode_words, values, np.uint32)[: values.size // 4]
    assert (words.view(np.int8) == encode_int8(values)).all()


def test_codes_of_int8_decode_to_themselves_whatever_stands_above_them(integers: ctypes.CDLL) -> None:
    codes = np.arange(-128, 128, dtype=np.int8)
    words = codes.view(np.uint8).astype(np.uint32) | np.uint32(0xA5C30000)
    assert (call_over(integers.decode_codes, words, np.float32) == codes.astype(np.float32)).all()


def test_eight_codes_make_a_word_the_first_in_its_lowest_nibble(conversions: ctypes.CDLL) -> None:
    values = floats()
    words = call_over(conversions.encode_e2m1_words, values, np.uint32)[: values.size // 8]
    codes = encode_e2m1(values).reshape(-1, 8).astype(np.uint32)
    assert (words == (codes << np.arange(0, 32, 4, dtype=np.uint32)).sum(axis=1)).all()


def test_products_with_powers_of_two_get_their_codes_without_a_rounding_of_their_own(folder: Path) -> None:
    library = load_with_headers(KernelConfig("rmsnorm", 64, quant=MXFP4), PRODUCTS, folder)
    largest = np.finfo(np.float32).max
    for exponent in range(-149, 128):
        factor = np.float32(2.0**exponent)
        ties = (np.arange(1, 64) / 8 / np.float64(factor)).clip(max=largest).astype(np.float32)
        beside = ties.view(np.int32)[:, None] + np.arange(-2, 3, dtype=np.int32)
        near = np.clip(beside, 0, np.int32(INFINITY_BITS)).view(np.float32).ravel()
        values = np.concatenate([floats()[:: exponent % 7 + 64], near, -near, SPECIAL])
        values = values[: values.size // 8 * 8]
        words, bounded = np.empty((2, values.size // 8), np.uint32)
        count = ctypes.c_int64(values.size)
        library.encode_products(pointer(values), count, ctypes.c_float(factor), pointer(words), pointer(bounded))
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            products = values * factor
        codes = encode_e2m1(products).reshape(-1, 8).astype(np.uint32)
        expected = (codes << np.arange(0, 32, 4, dtype=np.uint32)).sum(axis=1)
        assert (words == expected).all(), exponent
        is_bounded = (np.abs(products) < 7).reshape(-1, 8).all(axis=1)
        assert (bounded == expected)[is_bounded].all(), exponent


GLOBAL_SCALES = [1.0, 0.37, 2688.0, 1e-20, 1e30, 1e-42, 3.4e38, 0.0, -1.5, np.inf, -np.inf, np.nan]


def block_maxima() -> NDArray[np.float32]:
    """Magnitudes: random bit patterns, and floats around those where a scale or a code changes."""
    random_bits = np.random.default_rng(2).integers(0, INFINITY_BITS, 1 << 15, dtype=np.uint32)
    edges = np.concatenate([magnitudes(ml_dtypes.float8_e4m3fn, 0x7F) * 6, 2.0 ** np.arange(-140, 128) * 6])
    edges = np.concatenate([edges, edges * 17 / 16, edges / 4, edges / 6])
    edges = np.minimum(edges, np.finfo(np.float32).max).astype(np.float32)
    near = edges.view(np.uint32)[:, None].astype(np.int64) + np.arange(-4, 5)
    bits = np.clip(near, 0, INFINITY_BITS + 1).astype(np.uint32).ravel()
    return np.concatenate([random_bits.view(np.float32), bits.view(np.float32), np.abs(SPECIAL)])


@pytest.mark.parametrize(
    ("quant", "global_scales"),
    [(NVFP4, [None]), (NVFP4.with_global_scale("given"), GLOBAL_SCALES), (MXFP4, [None])],
    ids=str,
)
def test_block_scales_are_the_reference_s(quant: Any, global_scales: list[float | None], folder: Path) -> None:
    library = load_with_headers(KernelConfig("rmsnorm", 64, quant=quant), SCALES, folder)
    amax = block_maxima()
    blocks = np.zeros((amax.size, 16), np.float32)
    blocks[:, 0] = amax
    for global_scale in global_scales:
        scales, codes = np.empty(amax.size, np.uint8), np.empty(amax.size, np.uint8)
        given = ctypes.c_float(1.0 if global_scale is None else global_scale)
        count = ctypes.c_int64(amax.size)
        library.scales_of(pointer(amax), count, given, pointer(scales), pointer(codes))
        packed, expected = quantize_fp4(
            blocks, block_size=16, scale_format=quant.scale_format, global_scale=global_scale
        )
        assert (scales == expected[:, 0]).all(), global_scale
        assert (codes == packed[:, 0] & 0xF).all(), global_scale


ROW_SUM = """
extern "C" void row_sums(const float* rows, Int64 count, float* sums) {
  Tile* h = row_buffers().h;
  for (Int64 i = 0; i < count / kHiddenSize; ++i) {
    for (int t = 0; t < kRowTiles; ++t) load_tile(rows + i * kHiddenSize, kHiddenSize, t, h[t]);
    sums[i] = row_sum_of_squares(h, 0.0f);
  }
}
"""


@pytest.mark.parametrize("hidden_size", [1, 15, 16, 17, 511, 512, 513, 5000, 16384, 65536, 262144])
def test_row_sums_are_the_reference_s(hidden_size: int, folder: Path) -> None:
    library = load_with_headers(KernelConfig("rmsnorm", hidden_size, "float32"), ROW_SUM, folder)
    for kind in ("random", "real", "huge", "tiny", "finite_patterns"):
        rows = make_input(kind, 4, hidden_size, "bfloat16")
        sums = call_over(library.row_sums, rows.astype(np.float32), np.float32).ravel()[:4]
        assert (sums.view(np.uint32) == sum_of_squares(rows).view(np.uint32)).all(), kind
