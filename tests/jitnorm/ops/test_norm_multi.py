"""rmsnorm_multi returns rmsnorm's result for each weight, and add_rmsnorm_multi that of add_rmsnorm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cute_on_host import assert_same
from expected import assert_same_bytes, expected_rmsnorm
from frameworks import CPU_FRAMEWORKS, to_torch
from inputs import ALL_DTYPES, INPUT_KINDS, make_input, make_weight
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.target import Target

from jitnorm import add_rmsnorm, add_rmsnorm_multi, rmsnorm_multi

# Weights, elements of a row and dtypes: part of a chunk, of a tile, several tiles.
CASES = [(2, 513, "float16", "float32"), (3, 17, "float32", "float32"), (4, 4096, "bfloat16", "bfloat16")]


def weights(count: int, size: int, dtype: str) -> Any:
    return np.stack([make_weight(size, dtype, seed=i) for i in range(count)])


@pytest.mark.parametrize(("count", "size", "dtype", "weight_dtype"), CASES)
def test_the_outputs_are_the_reference_s(count: int, size: int, dtype: str, weight_dtype: str) -> None:
    factors = weights(count, size, weight_dtype)
    for kind in INPUT_KINDS:
        x = make_input(kind, 5, size, dtype)
        norms = rmsnorm_multi(x, factors)
        assert norms.shape == (count, 5, size)
        for norm, weight in zip(norms, factors, strict=True):
            assert_same_bytes(norm, expected_rmsnorm(x, weight), kind)


def test_a_residual_is_added_once() -> None:
    """Rows are strided and have several dimensions, and the residual is overwritten."""
    wide, residual = make_input("real", 6, 72, "bfloat16").reshape(2, 3, 72), make_input("random", 6, 64, "bfloat16")
    x, factors = wide[..., :64], weights(2, 64, "bfloat16")
    expected = [add_rmsnorm(x, residual.reshape(2, 3, 64), weight, rounding="vllm") for weight in factors]
    residual = residual.reshape(2, 3, 64)
    out = np.empty((2, 2, 3, 64), x.dtype)
    norms, total = add_rmsnorm_multi(x, residual, factors, rounding="vllm", out=out, residual_out=residual)
    assert norms is out
    assert total is residual
    for norm, (of_one, of_sum) in zip(norms, expected, strict=True):
        assert_same_bytes(norm, of_one)
        assert_same_bytes(total, of_sum)


@pytest.mark.parametrize("framework", CPU_FRAMEWORKS)
def test_every_framework_gets_the_leading_dimensions_of_the_input(framework: str) -> None:
    make, factors = CPU_FRAMEWORKS[framework], weights(4, 4096, "bfloat16")
    for shape in ((), (0,), (2, 1)):
        x = make_input("real", 2, 4096, "bfloat16")[: int(np.prod(shape))].reshape(*shape, 4096)
        norms = rmsnorm_multi(make(x), make(factors))
        assert tuple(norms.shape) == (4, *shape, 4096)
        assert_same_bytes(norms, rmsnorm_multi(x, factors), framework)


X = np.ones((2, 64), np.float16)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rmsnorm_multi(X, X[0]), r"weights: shape is \(64,\); expected \(n, hidden_size\) with n of 2 to 4"),
        (lambda: rmsnorm_multi(X, X[:1]), r"weights: shape is \(1, 64\); expected"),
        (lambda: rmsnorm_multi(X, [X[0], X[0]]), "weights: is a list; expected a tensor"),
        (lambda: rmsnorm_multi(X, X[:, :48]), r"weights: shape is \(2, 48\), expected \(2, 64\)"),
        (lambda: rmsnorm_multi(X, X, out=X), r"out: shape is \(2, 64\), expected \(2, 2, 64\)"),
        (lambda: add_rmsnorm_multi(X, X[:1], X), r"residual: shape is \(1, 64\), expected \(2, 64\)"),
        (lambda: KernelConfig("rmsnorm", 64, weights=5), "weights: is 5; allowed are 1, 2, 3, 4"),
        (lambda: KernelConfig("rmsnorm", 64, weights=2, weight="none"), "weights: is 2, which needs a plain"),
        (lambda: KernelConfig("rmsnorm", 64, weights=2, keep_rstd=True), "weights: is 2, which needs a plain"),
    ],
)  # fmt: skip
def test_bad_input_is_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        call()


# Rows that share a warp, that have one, a block; accesses narrowed by the length of a row.
ON_HOST = (
    "rmsnorm:weights=2,hidden_size=48",
    "rmsnorm:weights=3,hidden_size=1000,residual=true,input=float16,weight=float32,vector_bytes=8",
    "rmsnorm:weights=4,hidden_size=7168,residual=true,rounding=hf",
)


@pytest.mark.parametrize("text", ON_HOST)
def test_cuda_writes_what_the_cpu_writes(text: str) -> None:
    assert_same(KernelConfig.parse(text), Target("sm_90a"), 3, "nan", is_cuda=True)


@pytest.mark.gpu
@pytest.mark.parametrize("size", [17, 513, 1000, 4096, 7168, 65536, 262144])
@pytest.mark.parametrize(("count", "dtype"), list(zip((2, 3, 4), ALL_DTYPES, strict=True)))
def test_a_gpu_writes_what_the_cpu_writes(count: int, dtype: str, size: int) -> None:
    factors = to_torch(weights(count, size, dtype))
    for kind in ("random", "nan", "huge"):
        for rows in (1, 33):
            x, residual = (to_torch(make_input(kind, rows, size, dtype, seed=seed)) for seed in (0, 1))
            found = add_rmsnorm_multi(x.cuda(), residual.cuda(), factors.cuda(), rounding="hf")
            for on_gpu, on_cpu in zip(found, add_rmsnorm_multi(x, residual, factors, rounding="hf"), strict=True):
                assert_same_bytes(on_gpu, on_cpu, f"{rows} rows of {kind}")
            assert_same_bytes(rmsnorm_multi(x.cuda(), factors.cuda()), rmsnorm_multi(x, factors))
