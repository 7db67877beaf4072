"""Norms have the gradients of jitnorm's functions wherever JAX differentiates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from expected import assert_same_bytes
from inputs import make_input, make_weight

jax = pytest.importorskip("jax")
pytest.importorskip("jax_tvm_ffi")

import jitnorm  # noqa: E402 - after it is known that JAX is there
from jitnorm import rmsnorm  # noqa: E402

ROWS, SIZE, EPS = 6, 64, 1e-6
X = make_input("random", ROWS, SIZE, "float32")
R = make_input("random", ROWS, SIZE, "float32", seed=1)
W, B = make_weight(SIZE, "float32"), make_weight(SIZE, "float32", seed=2)


def rms(h: Any, weight: Any) -> Any:
    return h * jax.lax.rsqrt((h * h).mean(-1, keepdims=True) + EPS) * weight


def plain_layernorm(x: Any, gamma: Any, beta: Any) -> Any:
    d = x - x.mean(-1, keepdims=True)
    return rms(d, gamma) + beta


CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]] = {
    "rmsnorm": (rmsnorm, rms, (X, W)),
    "gemma_rmsnorm": (jitnorm.gemma_rmsnorm, lambda x, w: rms(x, w + 1), (X, W)),
    "rmsnorm_bias": (jitnorm.rmsnorm_bias, lambda x, w, b: rms(x, w) + b, (X, W, B)),
    "layernorm": (jitnorm.layernorm, plain_layernorm, (X, W, B)),
    "add_rmsnorm": (jitnorm.add_rmsnorm, lambda x, r, w: (rms(x + r, w), x + r), (X, R, W)),
    "qk_rmsnorm": (
        jitnorm.qk_rmsnorm, lambda q, k, a, b: (rms(q, a), rms(k, b)),
        (X.reshape(3, 2, SIZE), R[:3].reshape(3, 1, SIZE), W, B),
    ),
}  # fmt: skip


def loss(function: Callable[..., Any]) -> Callable[..., Any]:
    def total(*given: Any) -> Any:
        results = function(*given)
        parts = results if isinstance(results, tuple) else (results,)
        return sum(jax.numpy.cos(part * (i + 1)).sum() for i, part in enumerate(parts))

    return total


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_plain_jax_with_and_without_jit(name: str) -> None:
    function, plain, given = CASES[name]
    arrays, places = tuple(map(jax.numpy.asarray, given)), tuple(range(len(given)))
    expected = jax.grad(loss(plain), places)(*arrays)
    found = jax.grad(loss(function), places)(*arrays)
    compiled = jax.jit(jax.grad(loss(function), places))(*arrays)
    for each, same, exact in zip(found, compiled, expected, strict=True):
        np.testing.assert_allclose(each, exact, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(same, exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", CASES)
def test_gradients_of_parameters_are_not_computed_if_nobody_wants_them(name: str) -> None:
    function, _, given = CASES[name]
    arrays = tuple(map(jax.numpy.asarray, given))
    rows = [place for place, array in enumerate(arrays) if array.ndim > 1]
    everything, of_rows = (jax.grad(loss(function), places) for places in (range(len(given)), rows))
    assert "sum_rows" in str(jax.make_jaxpr(everything)(*arrays))
    assert "sum_rows" not in str(jax.make_jaxpr(of_rows)(*arrays))
    for found, expected in zip(of_rows(*arrays), everything(*arrays), strict=False):
        assert_same_bytes(found, expected)


def test_what_nothing_depends_on_has_no_gradient() -> None:
    """The sum alone has the gradient of a sum, and a parameter that is not used one of zero."""
    x, residual, weight = map(jax.numpy.asarray, (X, R, W))
    of_sum = jax.grad(lambda *given: jitnorm.add_rmsnorm(*given)[1].sum(), (0, 1, 2))(x, residual, weight)
    for found, expected in zip(of_sum, (np.ones_like(X), np.ones_like(X), np.zeros_like(W)), strict=True):
        assert_same_bytes(found, expected)
    of_keys = jax.grad(lambda *given: jitnorm.qk_rmsnorm(*given)[1].sum(), (0, 2))
    for found in of_keys(x, residual, weight, weight):
        assert not found.any()


def test_they_have_the_bytes_of_the_functions_that_find_them() -> None:
    grad = make_input("random", ROWS, SIZE, "float32", seed=5)
    _, pull = jax.vjp(rmsnorm, jax.numpy.asarray(X), jax.numpy.asarray(W))
    for found, expected in zip(pull(jax.numpy.asarray(grad)), jitnorm.rmsnorm_backward(grad, X, W), strict=True):
        assert_same_bytes(found, expected)


TRANSFORMED: dict[str, Callable[[Callable[..., Any], Any, Any], Any]] = {
    "vmap": lambda norm, x, w: jax.vmap(jax.grad(lambda a: norm(a, w).sum()))(x),
    "checkpoint": lambda norm, x, w: jax.grad(lambda a: jax.checkpoint(norm)(a, w).sum())(x),
    "scan": lambda norm, x, w: jax.grad(
        lambda a: jax.lax.scan(lambda c, _: (norm(c, w), None), a, None, length=2)[0].sum()
    )(x),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_other_transforms_keep_them(name: str) -> None:
    x, weight = jax.numpy.asarray(X), jax.numpy.asarray(W)
    found, expected = (TRANSFORMED[name](norm, x, weight) for norm in (rmsnorm, rms))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_layernorm_s_rows_of_a_batch_have_statistics_of_their_own() -> None:
    x, gamma, beta = map(jax.numpy.asarray, (X, W, B))
    found = jax.vmap(jax.grad(lambda a: jitnorm.layernorm(a, gamma, beta).var()))(x)
    np.testing.assert_allclose(found, jax.vmap(jax.grad(lambda a: plain_layernorm(a, gamma, beta).var()))(x), atol=1e-4)


def test_rounding_counts_as_the_identity() -> None:
    jnp = jax.numpy
    x, weight = jnp.linspace(-3, 3, 6 * 96).reshape(6, 96).astype(jnp.bfloat16), jnp.full(96, 0.7, jnp.bfloat16)

    def of(rounding: str) -> Any:
        return jax.grad(lambda *given: jitnorm.rmsnorm(*given, rounding=rounding).sum(), argnums=(0, 1))(x, weight)

    for ours, theirs in zip(of("hf"), of("once"), strict=True):
        assert (ours == theirs).all()


def test_forward_mode_and_second_derivatives_are_refused() -> None:
    x, weight = jax.numpy.asarray(X), jax.numpy.asarray(W)
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(rmsnorm, (x, weight), (x, weight))
    with pytest.raises(TypeError, match="rmsnorm: has no second derivative"):
        jax.grad(lambda a: jax.grad(lambda b: rmsnorm(b, weight).sum())(a).sum())(x)
    with pytest.raises(TypeError, match="layernorm: has no second derivative"):
        jax.grad(lambda a: jax.grad(lambda b: jitnorm.layernorm(b, weight, weight).sum())(a).sum())(x)
    with pytest.raises(TypeError, match="layernorm_with_statistics: has no gradient"):
        jax.grad(lambda a: jitnorm.layernorm_with_statistics(a, weight, weight)[0].sum())(x)
