"""compute_amax returns the largest magnitude of any tensor, NaN if there is one; norms use the same kernel."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from expected import assert_same_bytes
from frameworks import CPU_FRAMEWORKS
from inputs import ALL_DTYPES, INPUT_KINDS, in_turn, make_input, make_weight
from jitnorm.kernels.quant_spec import FP8_TENSOR, NVFP4
from numpy.typing import NDArray

from jitnorm import compute_amax, norm_quantize, quantize
from jitnorm.reference import amax_f32


@pytest.mark.parametrize(("size", "dtype"), in_turn([1, 17, 384, 65536, 262144, 40], list(ALL_DTYPES)))
def test_it_is_the_reference_s(size: int, dtype: str) -> None:
    for kind in INPUT_KINDS if size < 1000 else ("random", "nan"):
        x = make_input(kind, 5, size, dtype)
        assert_same_bytes(compute_amax(x), amax_f32(x), kind)


def test_every_e4m3_code_counts() -> None:
    codes = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn)[:, None]
    for code in codes:
        assert_same_bytes(compute_amax(code), amax_f32(code), str(code))
    assert float(compute_amax(codes[:0x7F])[0]) == 448


@pytest.mark.parametrize("leading", [(), (0,), (2, 3), (2, 0)])
def test_any_number_of_leading_dimensions(leading: tuple[int, ...]) -> None:
    x = make_input("random", int(np.prod(leading)), 40, "float16").reshape(*leading, 40)
    assert_same_bytes(compute_amax(x), amax_f32(x))


def test_only_the_view_counts() -> None:
    x: NDArray[np.float16] = make_input("random", 12, 192, "float16").reshape(2, 6, 192)
    for view in (x[:, ::2, :96], x[:, 1::2, 3:99], x[::-1, :, 96:].transpose(1, 0, 2)):
        assert_same_bytes(compute_amax(view), amax_f32(np.ascontiguousarray(view)))


@pytest.mark.parametrize("framework", CPU_FRAMEWORKS)
def test_every_framework_gets_the_same_bytes(framework: str) -> None:
    make = CPU_FRAMEWORKS[framework]
    x = make_input("real", 3, 64, "bfloat16")
    assert_same_bytes(compute_amax(make(x)), amax_f32(x))


def test_what_was_in_the_output_does_not_count() -> None:
    out = np.array([np.inf], np.float32)
    assert compute_amax(np.ones((2, 16), np.float16), out=out) is out
    assert out.tolist() == [1.0]


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (np.zeros(2, np.float32), r"out: shape is \(2,\), expected \(1,\)"),
        (np.zeros(1, np.float16), "out: dtype is float16, expected float32"),
    ],
)
def test_an_output_that_does_not_fit_is_refused(out: NDArray[np.generic], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compute_amax(np.ones((2, 16), np.float16), out=out)


def test_an_input_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="x: the stride of its last dimension is 2, expected 1"):
        compute_amax(np.ones((2, 32), np.float16)[:, ::2])
    with pytest.raises(TypeError, match=r"(x|input): is a .*list; expected a tensor"):
        compute_amax([1.0])
    with pytest.raises(ValueError, match="x dtype: is 'float64'"):
        compute_amax(np.ones((2, 16)))


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_a_found_scale_comes_with_the_amax_it_was_found_from(rows: int) -> None:
    x = make_input("real", rows, 96, "bfloat16")
    for q in (quantize(x, spec=NVFP4, global_scale="tensor"), quantize(x, spec=FP8_TENSOR, scale="tensor")):
        assert_same_bytes(q.amax, amax_f32(x))
    assert quantize(x, spec=NVFP4).amax is None


def test_the_amax_of_a_norm_reads_the_residual_once_only() -> None:
    """If both launches stored the sum, the residual would be added twice."""
    x, residual = make_input("real", 5, 96, "bfloat16"), make_input("random", 5, 96, "bfloat16")
    weight, added = make_weight(96, "bfloat16"), residual.copy()
    q = norm_quantize(x, weight, spec=NVFP4, residual=added, global_scale="tensor")
    again = norm_quantize(x, weight, spec=NVFP4, residual=residual)
    assert_same_bytes(added, residual)
    assert q.tensor_scale.shape == (1,)
    assert again.tensor_scale is None


def test_zeros_and_rows_whose_squares_vanish_are_defined() -> None:
    """Without eps such a row's reciprocal root mean square is infinite."""
    x, weight = np.full((3, 96), 1e-30, np.float32), np.ones(96, np.float32)
    q = norm_quantize(x, weight, spec=NVFP4, global_scale="tensor", eps=0.0)
    assert np.isinf(q.amax).all()
    assert np.isfinite(q.tensor_scale).all()
