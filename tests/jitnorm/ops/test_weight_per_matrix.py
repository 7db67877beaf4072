"""Batches with a weight for each matrix equal their matrices, computed one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from expected import assert_same_bytes
from frameworks import CPU_FRAMEWORKS, to_torch
from inputs import ALL_DTYPES, INPUT_KINDS, in_turn, make_input, make_weight
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.interface import tensor_arguments

import jitnorm
from jitnorm.compat import vllm
from jitnorm.reference import rmsnorm_f32, round_to, stored_residual

SHAPES = [(5, 3, 96), (3, 17), (1, 4, 2, 128), (2, 3, 513), (2, 2, 2, 1), (0, 3, 64), (3, 0, 64)]


def weights(matrices: int, size: int, dtype: str) -> Any:
    return np.stack([make_weight(size, dtype, seed) for seed in range(matrices)] or [make_weight(size, dtype)[:0]])[
        :matrices
    ].reshape(matrices, size)


def batch(kind: str, shape: tuple[int, ...], dtype: str, seed: int = 0) -> Any:
    return make_input(kind, int(np.prod(shape[:-1])), shape[-1], dtype, seed).reshape(shape)


def each_alone(x: Any, weight: Any, residual: Any = None) -> Any:
    """The reference's result, matrix by matrix."""
    result = np.empty_like(x)
    for i, matrix in enumerate(x):
        rows = matrix.reshape(-1, x.shape[-1])
        added = None if residual is None else residual[i].reshape(rows.shape)
        result[i] = round_to(rmsnorm_f32(rows, weight[i], residual=added), x.dtype).reshape(matrix.shape)
    return result


@pytest.mark.parametrize(("shape", "dtype"), in_turn(SHAPES, list(ALL_DTYPES)))
def test_each_matrix_has_the_bytes_that_it_has_alone(shape: tuple[int, ...], dtype: str) -> None:
    weight = weights(shape[0], shape[-1], "float32" if shape[-1] == 513 else dtype)
    for kind in INPUT_KINDS[::2]:
        x, r = batch(kind, shape, dtype), batch("random", shape, dtype, seed=1)
        assert_same_bytes(jitnorm.rmsnorm(x, weight, batched=True), each_alone(x, weight), kind)
        norm, total = jitnorm.add_rmsnorm(x, r, weight, batched=True)
        assert_same_bytes(norm, each_alone(x, weight, r), kind)
        rows = x.reshape(-1, shape[-1])
        assert_same_bytes(total.reshape(rows.shape), stored_residual(rows, r.reshape(rows.shape)), kind)
        jitnorm.fused_add_rmsnorm(x, r, weight, batched=True)
        assert_same_bytes(x, norm, kind)
        assert_same_bytes(r, total, kind)


@pytest.mark.parametrize("framework", CPU_FRAMEWORKS)
def test_every_framework_gets_the_same_bytes(framework: str) -> None:
    make, x, weight = CPU_FRAMEWORKS[framework], batch("real", (3, 4, 96), "bfloat16"), weights(3, 96, "bfloat16")
    assert_same_bytes(jitnorm.rmsnorm(make(x), make(weight), batched=True), each_alone(x, weight), framework)


def test_rows_may_lie_at_any_stride() -> None:
    buffer, weight = batch("random", (6, 4, 100), "float16"), weights(3, 64, "float16")
    view = buffer[::2, 1:3, 5:69]
    assert_same_bytes(jitnorm.rmsnorm(view, weight, batched=True), each_alone(np.ascontiguousarray(view), weight))


def test_vllm_s_functions_take_such_weights() -> None:
    x, weight = (to_torch(each) for each in (batch("real", (3, 4, 96), "bfloat16"), weights(3, 96, "bfloat16")))
    expected, out, residual = jitnorm.rmsnorm(x, weight, batched=True), torch.empty_like(x), torch.zeros_like(x)
    vllm.rms_norm(out, x, weight, 1e-6)
    assert_same_bytes(out, expected)
    vllm.fused_add_rms_norm(x, residual, weight, 1e-6)
    assert_same_bytes(x, expected)


def test_weights_are_read_as_widely_as_their_rows_are_aligned() -> None:
    for size, count in ((4096, 16), (1000, 16), (1001, 2), (1002, 4)):
        config = KernelConfig("rmsnorm", size, batched=True, weight_per_matrix=True)
        (weight,) = (each for each in tensor_arguments(config) if each.name == "weight")
        assert weight.access_bytes(16) == count


X, WEIGHT = np.ones((2, 3, 64), np.float16), np.ones((2, 64), np.float16)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((X, WEIGHT[:1]), r"weight: shape is \(1, 64\), expected \(2, 64\)"),
        ((X, WEIGHT[0]), r"weight: shape is \(64,\), expected \(2, 64\)"),
        ((X, None), "weight: is None; expected a tensor"),
        ((X[0, 0], WEIGHT), "input: has one dimension"),
        ((torch.ones(2, 3, 64, requires_grad=True), torch.ones(2, 64)), "input: requires grad, and this op has no"),
    ],
)
def test_bad_input_is_refused(given: tuple[Any, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        jitnorm.rmsnorm(*given, batched=True)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [*SHAPES, (7, 33, 4096), (3, 5, 32768), (3, 2, 262144), (700, 128)])
@pytest.mark.parametrize("dtype", ALL_DTYPES)
def test_a_gpu_writes_what_the_cpu_writes(dtype: str, shape: tuple[int, ...]) -> None:
    weight = to_torch(weights(shape[0], shape[-1], dtype))
    for kind in ("random", "nan", "huge"):
        x, r = to_torch(batch(kind, shape, dtype)), to_torch(batch("random", shape, dtype, seed=1))
        found = jitnorm.rmsnorm(x.cuda(), weight.cuda(), batched=True)
        assert_same_bytes(found, jitnorm.rmsnorm(x, weight, batched=True), kind)
        sums = [jitnorm.add_rmsnorm(*(each.to(at) for each in (x, r, weight)), batched=True) for at in ("cuda", "cpu")]
        for on_gpu, on_cpu in zip(*sums, strict=True):
            assert_same_bytes(on_gpu, on_cpu, kind)
