"""Norms without a weight return the bytes of the reference, which are those of a weight of ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from cute_on_host import assert_same
from encoded import KINDS, assert_encoded, dtype_of, given_keywords, hidden_size_of
from expected import assert_same_bytes
from frameworks import CPU_FRAMEWORKS, to_torch
from inputs import ALL_DTYPES, INPUT_KINDS, in_turn, make_input
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.quant_spec import FP8_TENSOR, MXFP8
from jitnorm.kernels.target import Target

import jitnorm
from jitnorm import reference
from jitnorm.reference import layernorm_f32, rmsnorm_f32, round_to, stored_residual


def ones(size: int, dtype: Any = np.float32) -> Any:
    return np.ones(size, dtype)


@pytest.mark.parametrize(("size", "dtype"), in_turn([1, 17, 513, 4096], list(ALL_DTYPES)))
def test_norms_give_the_reference_s_bytes(size: int, dtype: str) -> None:
    for kind in INPUT_KINDS:
        x = make_input(kind, 5, size, dtype)
        assert_same_bytes(jitnorm.rmsnorm(x, None), round_to(rmsnorm_f32(x, None), x.dtype), kind)
        assert_same_bytes(jitnorm.layernorm(x, None, None), round_to(layernorm_f32(x, None, None), x.dtype), kind)


def test_the_reference_multiplies_by_nothing() -> None:
    x = make_input("random", 4, 96, "float32")
    assert_same_bytes(rmsnorm_f32(x, None), x * reference.inv_rms_f32(x)[:, None])
    assert_same_bytes(layernorm_f32(x, None, None), layernorm_f32(x, ones(96), np.full(96, -0.0, np.float32)))
    with pytest.raises(ValueError, match="without one, weight_bias"):
        rmsnorm_f32(x, None, weight_bias=1.0)
    with pytest.raises(ValueError, match="use both or neither"):
        layernorm_f32(x, ones(96), None)


@pytest.mark.parametrize("rounding", ["once", "hf"])
def test_sums_with_a_residual_are_those_of_ones(rounding: str) -> None:
    x, r = (make_input(kind, 6, 96, "bfloat16") for kind in ("real", "nan"))
    expected = jitnorm.add_rmsnorm(x, r, ones(96, x.dtype), rounding=rounding)
    written = x.copy(), r.copy()
    jitnorm.fused_add_rmsnorm(*written, None, rounding=rounding)
    for found in (jitnorm.add_rmsnorm(x, r, None, rounding=rounding), written):
        for each, wanted in zip(found, expected, strict=True):
            assert_same_bytes(each, wanted)


@pytest.mark.parametrize("number", range(1, len(KINDS), 8), ids=lambda number: str(KINDS[number]))
def test_encodings_give_the_reference_s_bytes(number: int) -> None:
    spec, adds = KINDS[number], number // 8 % 2 == 1
    dtype, size = dtype_of(spec), hidden_size_of(spec)
    for kind in INPUT_KINDS:
        x = make_input(kind, 7, size, dtype)
        residual = make_input("random", 7, size, dtype, seed=3) if adds else None
        added = None if residual is None else residual.copy()
        got = jitnorm.norm_quantize(x, None, residual=added, **given_keywords(spec))
        assert_encoded(got, rmsnorm_f32(x, None, residual=residual), spec, x.shape, kind)
        if residual is not None:
            assert_same_bytes(added, stored_residual(x, residual), f"residual of {kind}")


def test_a_found_scale_is_that_of_the_norm_without_a_weight() -> None:
    x = make_input("real", 6, 96, "bfloat16")
    found = jitnorm.add_norm_quantize(x, x, None, spec=FP8_TENSOR, scale="tensor")[0]
    expected = jitnorm.add_norm_quantize(x, x, ones(96, x.dtype), spec=FP8_TENSOR, scale="tensor")[0]
    assert_same_bytes(found.scale, expected.scale)
    assert_same_bytes(found.data, expected.data)


def test_queries_and_keys_may_lack_weights() -> None:
    q, k = (make_input("real", rows, 64, "bfloat16") for rows in (6, 4))
    for found, x in zip(jitnorm.qk_rmsnorm(q, k, None, None), (q, k), strict=True):
        assert_same_bytes(found, jitnorm.rmsnorm(x, None))


@pytest.mark.parametrize("framework", CPU_FRAMEWORKS)
def test_every_framework_gets_the_same_bytes(framework: str) -> None:
    x = make_input("real", 6, 96, "bfloat16")
    assert_same_bytes(jitnorm.rmsnorm(CPU_FRAMEWORKS[framework](x), None), jitnorm.rmsnorm(x, None), framework)


def test_a_zero_keeps_its_sign() -> None:
    x = np.full((1, 8), -0.0, np.float16)
    assert np.signbit(jitnorm.rmsnorm(x, None)).all()


@pytest.mark.parametrize(("size", "dtype"), in_turn([17, 1024, 1100], list(ALL_DTYPES)))
def test_gradients_of_inputs_are_the_reference_s(size: int, dtype: str) -> None:
    for kind in INPUT_KINDS:
        grad, x = make_input("random", 33, size, dtype, seed=2), make_input(kind, 33, size, dtype)
        given = reference.layernorm_statistics_f32(x)
        for found, exact in (
            (jitnorm.rmsnorm_backward(grad, x, None), reference.rmsnorm_backward_f32(grad, x, None)),
            (
                jitnorm.layernorm_backward(grad, x, *given, None),
                reference.layernorm_backward_f32(grad, x, *given, None),
            ),
        ):
            assert_same_bytes(found[0], round_to(exact[0], x.dtype), kind)
            assert found[1:] == (None,) * (len(found) - 1)


CALLS: dict[str, Callable[..., Any]] = {
    "rmsnorm": lambda x, r: jitnorm.rmsnorm(x, None),
    "layernorm": lambda x, r: jitnorm.layernorm(x, None, None),
    "add_rmsnorm": lambda x, r: sum(jitnorm.add_rmsnorm(x, r, None)),
    "qk_rmsnorm": lambda x, r: sum(jitnorm.qk_rmsnorm(x, r, None, None)),
}


def plain(name: str, x: Any, r: Any) -> Any:
    def rms(h: Any) -> Any:
        return h / ((h * h).mean(-1)[..., None] + 1e-6) ** 0.5

    if name == "add_rmsnorm":
        return rms(x + r) + x + r
    return rms(x) + rms(r) if name == "qk_rmsnorm" else rms(x - x.mean(-1)[..., None] if name == "layernorm" else x)


def gradients(compute: Callable[..., Any], x: Any, r: Any, dy: Any) -> list[Any]:
    """The gradients of the inputs, from torch's autograd."""
    inputs = [torch.tensor(each, requires_grad=True) for each in (x, r)]
    (compute(*inputs) * torch.tensor(dy)).sum().backward()
    return [np.zeros_like(x) if each.grad is None else each.grad.numpy() for each in inputs]


@pytest.mark.parametrize("name", CALLS)
def test_torch_and_jax_differentiate_them(name: str) -> None:
    jax = pytest.importorskip("jax")
    x, r, dy = (make_input("random", 5, 64, "float32", seed=seed) for seed in range(3))
    expected = gradients(lambda *given: plain(name, *given), x, r, dy)
    in_jax = jax.grad(lambda *given: (CALLS[name](*given) * dy).sum(), (0, 1))(*map(jax.numpy.asarray, (x, r)))
    for found in (gradients(CALLS[name], x, r, dy), in_jax):
        for each, wanted in zip(found, expected, strict=True):
            np.testing.assert_allclose(each, wanted, atol=1e-5)


def test_torch_compiles_and_batches_them() -> None:
    x, r = (to_torch(make_input("real", 6, 64, "bfloat16", seed=seed)) for seed in (0, 1))

    def block(x: torch.Tensor, r: torch.Tensor) -> Any:
        jitnorm.fused_add_rmsnorm(x, r, None)
        return jitnorm.norm_quantize(x, None, spec=MXFP8).data, jitnorm.layernorm(x, None, None)

    expected = block(x.clone(), r.clone())
    for found, wanted in zip(
        torch.compile(block, backend="aot_eager", fullgraph=True)(x.clone(), r.clone()), expected, strict=True
    ):
        assert_same_bytes(found, wanted)
    batched = torch.func.vmap(lambda rows: jitnorm.rmsnorm(rows, None))(x[None])
    assert_same_bytes(batched[0], jitnorm.rmsnorm(x, None))


X = np.ones((2, 64), np.float16)
PARAMETER = ones(64, np.float16)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: jitnorm.norm_quantize(X, None, bias=PARAMETER, spec=MXFP8), "bias: needs a weight"),
        (lambda: jitnorm.norm_quantize(X, None, unit_bias=True, spec=MXFP8), "unit_bias: needs a weight"),
        (lambda: jitnorm.gemma_rmsnorm_backward(X, X, None), "weight: is None; expected a tensor"),
        (lambda: jitnorm.layernorm(X, None, ones(64)), "beta: is given, but gemma is None; pass both or neither"),
        (lambda: jitnorm.layernorm(X, ones(64), None), "beta: is None; expected a tensor"),
        (lambda: jitnorm.qk_rmsnorm(X, X, None, PARAMETER), "k_weight: is given, but q_weight is None"),
        (lambda: jitnorm.gemma_rmsnorm(X, None), "weight: is None; expected a tensor"),
        (lambda: jitnorm.rmsnorm_bias(X, None, PARAMETER), "weight: is None; expected a tensor"),
        (
            lambda: torch.ops.jitnorm.rmsnorm(to_torch(X), to_torch(PARAMETER), 1e-6, config="weight=none"),
            "weight: is given, but the other options leave no use for it",
        ),
    ],
)
def test_what_needs_a_weight_is_refused_without_one(call: Callable[[], Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        call()


ON_HOST = (
    "rmsnorm:weight=none,hidden_size=513,vector_bytes=2",
    "rmsnorm:weight=none,hidden_size=4096,residual=true,quant=e2m1/16/e4m3/128x4",
    "rmsnorm:weight=none,hidden_size=2048,input=float16,rounding=hf,quant=e4m3/row/f32",
    "layernorm:weight=none,hidden_size=1000,vector_bytes=8",
    "rmsnorm:weight=none,hidden_size=64,backward=true,residual=true",
    "layernorm:weight=none,hidden_size=1100,backward=true,vector_bytes=8",
)


@pytest.mark.parametrize("text", ON_HOST)
def test_cuda_writes_what_the_cpu_writes(text: str) -> None:
    for kind in ("random", "nan"):
        assert_same(KernelConfig.parse(text), Target("sm_90a"), 5, kind, is_cuda=True)


@pytest.mark.gpu
@pytest.mark.parametrize(("size", "dtype"), in_turn([1, 17, 513, 4096, 8192, 32768, 262144], list(ALL_DTYPES)))
def test_a_gpu_writes_what_the_cpu_writes(size: int, dtype: str) -> None:
    for kind in INPUT_KINDS if size < 16384 else ("random", "nan", "huge"):
        for rows in (5, 700) if size < 16384 else (5,):
            x, r = (to_torch(make_input(each, rows, size, dtype)) for each in (kind, "random"))
            at = x.cuda(), r.cuda()
            assert_same_bytes(jitnorm.rmsnorm(at[0], None), jitnorm.rmsnorm(x, None), kind)
            assert_same_bytes(jitnorm.layernorm(at[0], None, None), jitnorm.layernorm(x, None, None), kind)
            for found, expected in zip(jitnorm.add_rmsnorm(*at, None), jitnorm.add_rmsnorm(x, r, None), strict=True):
                assert_same_bytes(found, expected, kind)
            found, expected = (jitnorm.rmsnorm_backward(b, a, None)[0] for a, b in (at, (x, r)))
            assert_same_bytes(found, expected, kind)
            found, expected = (
                jitnorm.layernorm_backward(b, a, *jitnorm.layernorm_with_statistics(a, None, None)[1:], None)[0]
                for a, b in (at, (x, r))
            )
            assert_same_bytes(found, expected, kind)
