"""layernorm returns the bytes of the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from encoded import rows_of
from expected import assert_same_bytes
from frameworks import CPU_FRAMEWORKS
from inputs import ALL_DTYPES, INPUT_KINDS, in_turn, make_input, make_weight

from jitnorm import layernorm, layernorm_backward, layernorm_with_statistics
from jitnorm.reference import layernorm_f32, layernorm_statistics_f32, round_to


def parameters(size: int) -> tuple[Any, Any]:
    return make_weight(size, "float32"), make_weight(size, "float32", seed=2) - 1


def expected_layernorm(x: Any, gamma: Any, beta: Any, eps: float = 1e-6) -> Any:
    return round_to(layernorm_f32(rows_of(x), gamma, beta, eps), x.dtype).reshape(x.shape)


@pytest.mark.parametrize(("size", "dtype"), in_turn([1, 15, 17, 64, 512, 513, 1000, 4096], list(ALL_DTYPES)))
def test_it_gives_the_reference_s_bytes(size: int, dtype: str) -> None:
    gamma, beta = parameters(size)
    for kind in INPUT_KINDS:
        x = make_input(kind, 5, size, dtype)
        assert_same_bytes(layernorm(x, gamma, beta), expected_layernorm(x, gamma, beta), kind)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("size", [17, 512, 1000])
def test_parameters_in_the_input_s_dtype_are_widened(size: int, dtype: str) -> None:
    x, gamma, beta = make_input("real", 5, size, dtype), make_weight(size, dtype), make_weight(size, dtype, seed=2)
    wide = gamma.astype(np.float32), beta.astype(np.float32)
    found, expected = (layernorm_with_statistics(x, *given) for given in ((gamma, beta), wide))
    for each, exact in zip(found, expected, strict=True):
        assert_same_bytes(each, exact, dtype)
    assert_same_bytes(found[0], expected_layernorm(x, *wide))
    grads, exact_grads = (layernorm_backward(x, x, *found[1:], each) for each in (gamma, wide[0]))
    assert_same_bytes(grads[0], exact_grads[0])
    for each, exact in zip(grads[1:], exact_grads[1:], strict=True):
        assert_same_bytes(each, round_to(exact, dtype))


@pytest.mark.parametrize(("size", "dtype"), in_turn([1, 17, 513, 1000], list(ALL_DTYPES)))
def test_its_statistics_are_the_reference_s_and_it_is_the_same(size: int, dtype: str) -> None:
    gamma, beta = parameters(size)
    for kind in INPUT_KINDS:
        x = make_input(kind, 5, size, dtype)
        found = layernorm_with_statistics(x, gamma, beta, 1e-5)
        expected = expected_layernorm(x, gamma, beta, 1e-5), *layernorm_statistics_f32(x, 1e-5)
        for each, exact in zip(found, expected, strict=True):
            assert_same_bytes(each, exact, kind)


@pytest.mark.parametrize("shape", [(64,), (0, 64), (2, 3, 64)])
def test_its_statistics_have_the_shape_of_the_rows(shape: tuple[int, ...]) -> None:
    x, (gamma, beta) = np.ones(shape, np.float16), parameters(64)
    out, mean, rstd = layernorm_with_statistics(x, gamma, beta)
    assert (out.shape, mean.shape, rstd.shape) == (shape, shape[:-1], shape[:-1])
    flat = np.zeros((mean.size, 1), np.float32), np.zeros(mean.size, np.float32)  # as torch's, and in one dimension
    made = layernorm_with_statistics(x, gamma, beta, mean=flat[0], rstd=flat[1])
    assert made[1] is flat[0]
    assert made[2] is flat[1]
    assert (flat[0].reshape(-1) == mean.reshape(-1)).all()
    assert (flat[1].reshape(-1) == rstd.reshape(-1)).all()


def test_the_longest_rows() -> None:
    x, (gamma, beta) = make_input("real", 2, 262144, "bfloat16"), parameters(262144)
    assert_same_bytes(layernorm(x, gamma, beta), expected_layernorm(x, gamma, beta))


@pytest.mark.parametrize("framework", CPU_FRAMEWORKS)
def test_every_framework_gets_the_same_bytes(framework: str) -> None:
    make = CPU_FRAMEWORKS[framework]
    x, (gamma, beta) = make_input("real", 6, 96, "bfloat16").reshape(2, 3, 96), parameters(96)
    got = layernorm(make(x), make(gamma), make(beta), eps=1e-5)
    assert_same_bytes(got, expected_layernorm(x, gamma, beta, 1e-5), framework)


def test_it_is_the_textbook_s_formula() -> None:
    x, (gamma, beta) = make_input("random", 8, 512, "float32"), parameters(512)
    wide = x.astype(np.float64)
    textbook = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-6) * gamma + beta
    np.testing.assert_allclose(layernorm(x, gamma, beta), textbook, rtol=1e-5, atol=1e-5)


def test_it_may_be_in_place_and_rows_may_lie_at_any_stride() -> None:
    buffer, (gamma, beta) = make_input("random", 8, 200, "float16"), parameters(64)
    view = buffer[::2, 3:67]
    expected = expected_layernorm(np.ascontiguousarray(view), gamma, beta)
    assert layernorm(view, gamma, beta, out=view) is view
    assert_same_bytes(view, expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gemma": np.ones(64)}, "gemma dtype: is 'float64'; allowed are 'float16', 'float32'"),
        ({"beta": np.ones(64, np.float16)}, "beta: dtype is float16, expected float32"),
        ({"beta": np.ones(63, np.float32)}, r"beta: shape is \(63,\), expected \(64,\)"),
        ({"out": np.ones((4, 64), np.float32)}, "out: dtype is float32, expected float16"),
        ({"mean": np.ones(3, np.float32)}, r"mean: shape is \(3,\), expected \(4,\)"),
        ({"rstd": np.ones(4, np.float16)}, "rstd: dtype is float16, expected float32"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_written(change: dict[str, Any], message: str) -> None:
    out = np.full((4, 64), 7, np.float16)
    call = {"input": np.ones((4, 64), np.float16), "gemma": np.ones(64, np.float32), "beta": np.ones(64, np.float32)}
    with pytest.raises(ValueError, match=message):
        layernorm_with_statistics(**(call | {"out": out} | change))
    assert (out == 7).all()
