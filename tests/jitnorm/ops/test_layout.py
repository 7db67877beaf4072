"""Scales and rows are moved to the same places as by the reference and by FlashInfer's tables."""

from __future__ import annotations

from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from expected import assert_same_bytes
from frameworks import CPU_FRAMEWORKS
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs import in_turn
from placement import assert_written_exactly, place, placements, poisoned

from jitnorm import block_scale_interleave, shuffle_matrix_a, shuffle_matrix_sf_a
from jitnorm.reference import swizzle_scales

# Kernels depend on the bytes of an element alone.
OF_EACH_SIZE = [np.dtype(t) for t in (np.uint8, np.float16, np.float32)]
OTHERS = [
    np.dtype(t) for t in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e8m0fnu, ml_dtypes.bfloat16)
]
SHAPES = [(1, 1), (130, 7), (128, 4), (300, 33)]
# Where a row of a block goes, by FlashInfer's tables.
NEW_ROW_OF_16 = [0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15]
NEW_ROW_OF_32 = [
    0, 8, 16, 24, 1, 9, 17, 25, 2, 10, 18, 26, 3, 11, 19, 27,
    4, 12, 20, 28, 5, 13, 21, 29, 6, 14, 22, 30, 7, 15, 23, 31,
]  # fmt: skip


def random_bits(shape: tuple[int, ...], dtype: np.dtype[Any], seed: int = 0) -> Any:
    bits = np.dtype(f"u{dtype.itemsize}")
    return np.random.default_rng(seed).integers(0, 2 ** (8 * bits.itemsize), shape, bits).view(dtype)


def swizzled(scales: Any) -> Any:
    """Scales swizzled byte by byte, because the reference moves only bytes."""
    planes = scales.view(np.uint8).reshape(*scales.shape, scales.itemsize)
    moved = [swizzle_scales(np.ascontiguousarray(planes[..., i]), "128x4") for i in range(scales.itemsize)]
    return np.ascontiguousarray(np.stack(moved, axis=-1)).view(scales.dtype).reshape(-1)


def shuffled(x: Any, epilogue_tile_m: int) -> Any:
    table = NEW_ROW_OF_32 if epilogue_tile_m % 128 == 0 else NEW_ROW_OF_16
    result = np.empty_like(x)
    for old in range(len(x)):
        result[old // len(table) * len(table) + table[old % len(table)]] = x[old]
    return result


@pytest.mark.parametrize(("dtype", "shape"), [*product(OF_EACH_SIZE, SHAPES), *in_turn(OTHERS, SHAPES)], ids=str)
def test_scales_are_interleaved_as_the_reference_has_it(dtype: np.dtype[Any], shape: tuple[int, int]) -> None:
    scales = random_bits(shape, dtype)
    assert_same_bytes(block_scale_interleave(scales), swizzled(scales), str(dtype))


@pytest.mark.parametrize("shape", [(1, 5, 3), (3, 130, 6), (2, 128, 4), (0, 5, 4), (2, 0, 4)])
def test_each_matrix_of_a_batch_is_padded_for_itself(shape: tuple[int, int, int]) -> None:
    scales = random_bits(shape, np.dtype(np.uint8))
    parts = [swizzled(matrix) for matrix in scales]
    assert_same_bytes(block_scale_interleave(scales), np.concatenate([np.empty(0, np.uint8), *parts]), str(shape))


@settings(deadline=None, max_examples=30)
@given(placements(2, (0, 1, 3)), st.sampled_from([0, 1, 2, 3, 4]))
def test_scales_may_lie_anywhere_and_so_may_the_output(at: Any, offset: int) -> None:
    source = place((2, 9, 6), np.dtype(np.uint8), at)
    source.view[...] = random_bits((2, 9, 6), np.dtype(np.uint8))
    expected = np.concatenate([swizzled(np.ascontiguousarray(matrix)) for matrix in source.view])
    buffer, wanted = poisoned(expected.size + 8), poisoned(expected.size + 8)
    out = buffer[offset : offset + expected.size]
    wanted[offset : offset + expected.size] = expected
    assert block_scale_interleave(source.view, out=out) is out
    assert buffer.tobytes() == wanted.tobytes()


@pytest.mark.parametrize(
    ("dtype", "epilogue_tile_m"), [*product(OF_EACH_SIZE, [8, 128]), *in_turn(OTHERS, [64, 256])], ids=str
)
def test_rows_are_shuffled_as_flashinfer_s_tables_have_it(dtype: np.dtype[Any], epilogue_tile_m: int) -> None:
    for rows, columns in ((32, 1), (96, 47), (64, 64)):
        x = random_bits((rows, columns), dtype)
        assert_same_bytes(shuffle_matrix_a(x, epilogue_tile_m), shuffled(x, epilogue_tile_m), str((rows, columns)))


@settings(deadline=None, max_examples=20)
@given(placements(1, (0, 1, 3, 16)))
def test_rows_to_be_shuffled_may_lie_at_any_stride(at: Any) -> None:
    source = place((32, 40), np.dtype(np.float16), at)
    source.view[...] = random_bits((32, 40), np.dtype(np.uint16)).view(np.float16)
    assert_same_bytes(shuffle_matrix_a(source.view, 64), shuffled(np.ascontiguousarray(source.view), 64), "strided")
    assert_written_exactly(source, np.ascontiguousarray(source.view), at)


@pytest.mark.parametrize("columns", [3, 16])
@pytest.mark.parametrize("epilogue_tile_m", [64, 128])
def test_scales_are_shuffled_then_interleaved(epilogue_tile_m: int, columns: int) -> None:
    scales = random_bits((256, columns), np.dtype(np.uint8))
    expected = swizzled(shuffled(scales, epilogue_tile_m))
    assert_same_bytes(shuffle_matrix_sf_a(scales, epilogue_tile_m), expected, "16")
    assert_same_bytes(shuffle_matrix_sf_a(scales, epilogue_tile_m, 32), expected, "32")


@pytest.mark.parametrize("framework", CPU_FRAMEWORKS)
def test_every_framework_gets_the_same_bytes(framework: str) -> None:
    make, scales = CPU_FRAMEWORKS[framework], random_bits((128, 5), np.dtype(np.uint8))
    weight = random_bits((32, 24), np.dtype(ml_dtypes.bfloat16))
    assert_same_bytes(block_scale_interleave(make(scales)), swizzled(scales), framework)
    assert_same_bytes(shuffle_matrix_sf_a(make(scales), 128), swizzled(shuffled(scales, 128)), framework)
    got = shuffle_matrix_a(make(weight), 128)
    assert_same_bytes(got, shuffled(weight, 128), framework)


def test_codes_of_fp4_are_shuffled_in_torch_s_own_dtype() -> None:
    torch = pytest.importorskip("torch")
    if not hasattr(torch, "float4_e2m1fn_x2"):
        pytest.skip("this torch has no float4_e2m1fn_x2")
    codes = random_bits((16, 8), np.dtype(np.uint8))
    got = shuffle_matrix_a(torch.tensor(codes).view(torch.float4_e2m1fn_x2), 64)
    assert got.dtype == torch.float4_e2m1fn_x2
    assert_same_bytes(got.view(torch.uint8), shuffled(codes, 64), "fp4")


zeros = np.zeros


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: block_scale_interleave([1]), TypeError, "unswizzled_sf: is a list; expected a tensor"),
        (lambda: block_scale_interleave(zeros(4, np.uint8)), ValueError, "unswizzled_sf: has 1 dimensions; expected 2"),
        (lambda: block_scale_interleave(zeros((2, 4), np.int32)), ValueError, "unswizzled_sf dtype: is 'int32'"),
        (
            lambda: block_scale_interleave(zeros((2, 4), np.uint8), out=zeros(511, np.uint8)),
            ValueError, r"out: shape is \(511,\), expected \(512,\)",
        ),
        (
            lambda: block_scale_interleave(zeros((2, 4), np.uint8), out=zeros(512, np.float16)),
            ValueError, "out: dtype is float16, expected uint8",
        ),
        (lambda: shuffle_matrix_a([1], 64), TypeError, "input_tensor: is a list; expected a tensor"),
        (lambda: shuffle_matrix_a(zeros(16, np.uint8), 64), ValueError, "input_tensor: has 1 dimensions; expected 2"),
        (lambda: shuffle_matrix_a(zeros((24, 4), np.uint8), 64), ValueError, "input_tensor: has 24 rows; .* of 16"),
        (lambda: shuffle_matrix_a(zeros((48, 4), np.uint8), 128), ValueError, "input_tensor: has 48 rows; .* of 32"),
        (lambda: shuffle_matrix_sf_a(zeros((64, 4), np.uint8), 64), ValueError, "input_tensor: has 64 rows; .* of 128"),
        (
            lambda: shuffle_matrix_sf_a(zeros((128, 4), np.uint8), 64, 8),
            ValueError, "num_elts_per_sf: is 8; allowed are 16, 32",
        ),
    ],
)  # fmt: skip
def test_what_is_refused_names_the_argument(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
