"""Ops under JAX's transforms: the bytes of NumPy's call, or an error that says what to do instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from expected import assert_same_bytes, expected_rmsnorm
from frameworks import to_jax, to_torch
from inputs import make_input, make_weight

import jitnorm
from jitnorm import add_rmsnorm, compute_amax, norm_quantize, qk_rmsnorm, quantize, rmsnorm, rmsnorm_fp4quant

jax = pytest.importorskip("jax", reason="JAX is not installed")
pytest.importorskip("jax_tvm_ffi", reason="jax-tvm-ffi is not installed")
BATCH, ROWS, SIZE = 3, 2, 96
X = make_input("real", BATCH * ROWS, SIZE, "float16").reshape(BATCH, ROWS, SIZE)
WEIGHT = make_weight(SIZE, "float16")
WEIGHTS = np.stack([WEIGHT * np.float16(scale) for scale in (1, 2, -1)])
EXPECTED = expected_rmsnorm(X.reshape(-1, SIZE), WEIGHT).reshape(X.shape)


def assert_all_equal(found: Any, wanted: Any) -> None:
    found, wanted = jax.tree.leaves(found), jax.tree.leaves(wanted)
    assert len(found) == len(wanted) > 0
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(a).view(np.uint8), np.asarray(b).view(np.uint8))


def calls_under_vmap(jaxpr: Any) -> list[str]:
    """The primitives of a program, outermost first."""
    inner = [value.jaxpr for eqn in jaxpr.eqns for value in eqn.params.values() if hasattr(value, "jaxpr")]
    return [eqn.primitive.name for eqn in jaxpr.eqns] + [name for each in inner for name in calls_under_vmap(each)]


# Each with the axes of its batch, for `jax.vmap`.
BATCHED: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...]]] = {
    "matrices": (rmsnorm, (0, None), (X, WEIGHT)),
    "columns of rows": (rmsnorm, (1, None), (X[:, [0, 1, 0]], WEIGHT)),
    "weights": (rmsnorm, (None, 0), (X[0], WEIGHTS)),
    "matrices and weights": (rmsnorm, (0, 0), (X, WEIGHTS)),
    "one of two inputs": (add_rmsnorm, (0, None, None), (X, X[0], WEIGHT)),
    "heads of keys alone": (lambda q, k, w: qk_rmsnorm(q, k, w, w), (None, 0, None), (X, X[:, None], WEIGHT)),
    "a scale by row": (lambda x, w: norm_quantize(x, w, spec=jitnorm.FP8_TOKEN).scale, (0, None), (X, WEIGHT)),
    "scales of matrices": (
        lambda x, w: rmsnorm_fp4quant(x, w, is_sf_swizzled_layout=True), (0, None), (X, WEIGHT),
    ),
    "magnitudes of matrices": (compute_amax, (0,), (X,)),
    "blocks of matrices": (lambda x: quantize(x, spec=jitnorm.FP8_BLOCK), (0,), (X,)),
}  # fmt: skip


@pytest.mark.parametrize("name", BATCHED)
def test_vmap_gives_the_bytes_of_a_call_for_each(name: str) -> None:
    call, axes, arrays = BATCHED[name]
    found = jax.vmap(call, axes)(*map(to_jax, arrays))
    batches = [
        [array] * BATCH
        if axis is None
        else [np.ascontiguousarray(array.take(i, axis)) for i in range(array.shape[axis])]
        for array, axis in zip(arrays, axes, strict=True)
    ]
    each = [call(*given) for given in zip(*batches, strict=False)]
    assert_all_equal(found, [np.stack(parts) for parts in zip(*map(jax.tree.leaves, each), strict=True)])


def test_a_batch_of_batches_is_one_call() -> None:
    x = to_jax(X[:, :, None])
    program = jax.vmap(jax.vmap(rmsnorm, (0, None)), (0, None))
    assert_same_bytes(program(x, to_jax(WEIGHT))[:, :, 0], EXPECTED)
    names = calls_under_vmap(jax.make_jaxpr(program)(x, to_jax(WEIGHT)).jaxpr)
    assert ("ffi_call" in names, "scan" in names) == (True, False)


TRANSFORMS: dict[str, Callable[[Any, Any], Any]] = {
    "checkpoint": lambda x, w: jax.checkpoint(rmsnorm)(x, w),
    "scan": lambda x, w: jax.lax.scan(lambda _, matrix: (None, rmsnorm(matrix, w)), None, x)[1],
    "cond": lambda x, w: jax.lax.cond(True, rmsnorm, lambda a, _: a, x, w),
    "fori_loop": lambda x, w: jax.lax.fori_loop(0, 1, lambda _, a: rmsnorm(a, w), x),
    "constants": lambda x, w: jax.jit(lambda: rmsnorm(X, WEIGHT))(),
    "a constant weight": lambda x, w: jax.jit(lambda a: rmsnorm(a, WEIGHT))(x),
    "a lowered shape": lambda x, w: jax.jit(rmsnorm).lower(jax.ShapeDtypeStruct(x.shape, x.dtype), w).compile()(x, w),
    "x64": lambda x, w: jax.enable_x64(True)(jax.jit(rmsnorm))(x, w),
}  # fmt: skip


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_transform_keeps_the_bytes(name: str) -> None:
    assert_same_bytes(TRANSFORMS[name](to_jax(X), to_jax(WEIGHT)), EXPECTED)


def test_a_quantized_tensor_goes_through_vmap_and_scan() -> None:
    x = to_jax(X)
    q = jax.vmap(lambda matrix: quantize(matrix, spec=jitnorm.NVFP4))(x)
    assert (type(q), q.shape) == (jitnorm.QuantizedTensor, X.shape)
    decode = lambda q: jitnorm.dequantize(q, dtype="float32")  # noqa: E731
    wanted = [decode(quantize(matrix, spec=jitnorm.NVFP4)) for matrix in X]
    assert_all_equal(jax.lax.scan(lambda _, each: (None, decode(each)), None, q)[1], np.stack(wanted))


def test_shapes_are_known_without_computing() -> None:
    made = jax.eval_shape(add_rmsnorm, to_jax(X), jax.ShapeDtypeStruct(X.shape, X.dtype), to_jax(WEIGHT))
    assert [(each.shape, each.dtype) for each in made] == [(X.shape, X.dtype)] * 2


def test_a_donated_residual_gives_the_sum_its_memory() -> None:
    # JAX lends what is donated to outputs in their order: the input to the norm, the residual to the sum.
    program = jax.jit(add_rmsnorm, donate_argnums=(0, 1))
    x, residual = jax.numpy.array(X), jax.numpy.array(X)
    address = residual.unsafe_buffer_pointer()
    found = program(x, residual, to_jax(WEIGHT))
    assert_all_equal(found, add_rmsnorm(X, X, WEIGHT))
    assert residual.is_deleted()
    assert found[1].unsafe_buffer_pointer() == address


def test_a_residual_that_is_still_needed_stays_as_it_is() -> None:
    residual = jax.numpy.array(X)
    for call in (add_rmsnorm, jax.jit(add_rmsnorm)):
        assert_all_equal(call(to_jax(X), residual, to_jax(WEIGHT)), add_rmsnorm(X, X, WEIGHT))
        assert_same_bytes(residual, X)


def test_differentiating_an_op_without_a_gradient_is_refused_in_its_words() -> None:
    with pytest.raises(TypeError, match=r"^rmsnorm_fp4quant: has no gradient; .*stop_gradient"):
        jax.grad(lambda x: rmsnorm_fp4quant(x, to_jax(WEIGHT))[0].astype(float).sum())(to_jax(X))


def test_what_stop_gradient_hides_is_not_differentiated() -> None:
    x, weight = to_jax(X), to_jax(WEIGHT)
    gradient = jax.grad(lambda a: (a * rmsnorm(jax.lax.stop_gradient(a), weight)).sum())(x)
    assert_same_bytes(gradient, EXPECTED)


def fused(name: str, *more: Any) -> Callable[[Any, Any], Any]:
    return lambda x, w: getattr(jitnorm, name)(x, x + 0, w, *more)


# The errors of calls with `x` and `weight`, both inside and outside of jax.jit.
REFUSED: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "fused_add_rmsnorm": (fused("fused_add_rmsnorm"), r"^input: is written, .* jitnorm\.add_rmsnorm,"),
    "gemma_fused_add_rmsnorm": (fused("gemma_fused_add_rmsnorm"), r"^input: .* jitnorm\.gemma_add_rmsnorm,"),
    "add_rmsnorm_fp4quant": (fused("add_rmsnorm_fp4quant"), r"^residual: .* jitnorm\.add_norm_quantize,"),
    "rmsnorm_quant": (
        lambda x, w: jitnorm.rmsnorm_quant(x.astype("float8_e4m3fn"), x, w, jax.numpy.ones(1)),
        r"^out: is written, .* jitnorm\.norm_quantize,",
    ),
    "an output": (lambda x, w: rmsnorm(x, w, out=x + 0), "^out: is written, but JAX arrays are immutable"),
    "a number": (lambda x, w: rmsnorm(x, w, w[0]), "^eps: is .*(static_argnames='eps'|a JAX array)"),
    "no dimensions": (lambda x, w: rmsnorm(x[0, 0, 0], w), "^input: has no dimensions"),
    "keys": (lambda x, w: rmsnorm(jax.random.split(jax.random.key(0), SIZE), w), "^input dtype: is 'key<fry>'"),
    "complex weight": (lambda x, w: rmsnorm(x, w.astype("complex64")), "^weight dtype: is 'complex64'"),
    "complex": (lambda x, w: rmsnorm(x.astype("complex64"), w), "^input dtype: is 'complex64'"),
    "a shape alone": (
        lambda x, w: rmsnorm(x, jax.ShapeDtypeStruct(w.shape, w.dtype)), r"^weight: is a jax\.ShapeDtypeStruct",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_computed_is_refused_by_name_and_the_next_call_works(name: str) -> None:
    call, words = REFUSED[name]
    x, weight = to_jax(X), to_jax(WEIGHT)
    for attempt in (call, jax.jit(call)):
        with pytest.raises((TypeError, ValueError), match=words):
            attempt(x, weight)
        assert_same_bytes(rmsnorm(x, weight), EXPECTED)


# The errors of tensors beside traced ones.
MIXED: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "a tensor of torch": (
        lambda x, w: rmsnorm(x, to_torch(WEIGHT)),
        r"^weight: is a torch\.Tensor, .* pass jax\.numpy\.asarray\(weight\)",
    ),
    "an input of torch": (lambda x, w: rmsnorm(to_torch(X), w), r"^weight: is traced by jax\.jit, where all tensors"),
    "an input of NumPy": (lambda x, w: rmsnorm(X, w), r"^weight: is traced by jax\.jit, where all tensors"),
    "float64": (lambda x, w: rmsnorm(x, WEIGHT.astype(float)), "^weight: is float64, which JAX would convert to"),
    "a stream": (lambda x, w: rmsnorm(x, w, stream=1), r"^input: is traced by jax\.jit, .*`stream`"),
    "a float": (lambda x, w: rmsnorm_fp4quant(x, w, global_scale=2.0), r"^global_scale: is a float"),
}  # fmt: skip


@pytest.mark.parametrize("name", MIXED)
def test_what_a_program_cannot_hold_is_refused_by_name_and_the_next_call_works(name: str) -> None:
    call, words = MIXED[name]
    with pytest.raises(TypeError, match=words):
        jax.jit(call)(to_jax(X), to_jax(WEIGHT))
    assert_same_bytes(jax.jit(rmsnorm)(to_jax(X), to_jax(WEIGHT)), EXPECTED)


def test_a_tracer_that_has_left_its_program_is_jax_s_own_error() -> None:
    kept: list[Any] = []
    jax.jit(lambda x: kept.append(x) or x)(to_jax(X))  # type: ignore[func-returns-value]
    with pytest.raises(jax.errors.UnexpectedTracerError):
        rmsnorm(kept[0], to_jax(WEIGHT))
    assert_same_bytes(rmsnorm(to_jax(X), to_jax(WEIGHT)), EXPECTED)
