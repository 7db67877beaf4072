"""q_kv_rmsnorm returns rmsnorm's result for both tensors, in one launch, whatever their lengths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from cute_on_host import assert_same
from expected import assert_same_bytes, expected_rmsnorm
from frameworks import CPU_FRAMEWORKS, to_torch
from inputs import ALL_DTYPES, INPUT_KINDS, in_turn, make_input, make_weight
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.target import Target

from jitnorm import q_kv_rmsnorm, rmsnorm
from jitnorm.compat import vllm

# The longer first or last; parts of a tile, several, one of each; the same size, which may be odd.
SIZES = [(192, 576), (1536, 512), (16, 4096), (8192, 48), (144, 128), (17, 17)]


def weights(sizes: tuple[int, int], dtype: str) -> tuple[Any, Any]:
    return make_weight(sizes[0], dtype), make_weight(sizes[1], dtype, seed=2)


@pytest.mark.parametrize(("sizes", "dtype"), in_turn(SIZES, list(ALL_DTYPES)))
def test_the_outputs_are_the_reference_s(sizes: tuple[int, int], dtype: str) -> None:
    factors = weights(sizes, "float32" if sizes[0] == 144 else dtype)
    for kind in INPUT_KINDS:
        q, kv = (make_input(kind, rows, size, dtype) for rows, size in zip((5, 7), sizes, strict=True))
        for got, x, weight in zip(q_kv_rmsnorm(q, kv, *factors), (q, kv), factors, strict=True):
            assert_same_bytes(got, expected_rmsnorm(x, weight), kind)


def test_nothing_is_written_behind_a_shorter_row() -> None:
    """Both are parts of a packed tensor, and normalized in place."""
    for sizes in ((96, 48), (48, 96)):
        packed = make_input("random", 6, sum(sizes) + 16, "float16")
        q, kv = packed[:, : sizes[0]], packed[:, sizes[0] : sum(sizes)]
        factors = weights(sizes, "float16")
        expected = np.concatenate([rmsnorm(q, factors[0]), rmsnorm(kv, factors[1]), packed[:, sum(sizes) :]], axis=1)
        made = q_kv_rmsnorm(q, kv, *factors, q_out=q, kv_out=kv)
        assert made[0] is q
        assert made[1] is kv
        assert_same_bytes(packed, expected)


@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_leading_shapes_are_independent(shape: tuple[int, ...]) -> None:
    q, kv = np.ones((*shape, 32), np.float16), make_input("random", 4, 48, "float16")
    factors = weights((32, 48), "float16")
    for got, x, weight in zip(q_kv_rmsnorm(q, kv, *factors, 0.25), (q, kv), factors, strict=True):
        assert_same_bytes(got, rmsnorm(x, weight, 0.25))


@pytest.mark.parametrize("framework", CPU_FRAMEWORKS)
def test_every_framework_gets_the_same_bytes(framework: str) -> None:
    make, factors = CPU_FRAMEWORKS[framework], weights((96, 48), "bfloat16")
    q, kv = (make_input("real", 6, size, "bfloat16") for size in (96, 48))
    found = q_kv_rmsnorm(make(q), make(kv), *map(make, factors), rounding="hf")
    for got, x, weight in zip(found, (q, kv), factors, strict=True):
        assert_same_bytes(got, rmsnorm(x, weight, rounding="hf"), framework)


def test_it_has_the_gradients_of_rmsnorm() -> None:
    given = [torch.tensor(make_input("random", 5, size, "float32")) for size in (96, 48)]
    given += [torch.tensor(weight) for weight in weights((96, 48), "float32")]
    runs = []
    for compute in (q_kv_rmsnorm, lambda q, kv, a, b: (rmsnorm(q, a), rmsnorm(kv, b))):
        inputs = [each.clone().requires_grad_() for each in given]
        q, kv = compute(*inputs)
        (q.cos().sum() + kv.sin().sum()).backward()
        runs.append([each.grad for each in inputs])
    for found, expected in zip(*runs, strict=True):
        assert_same_bytes(found, expected)


def test_vllm_s_function_gives_packed_rows() -> None:
    packed, factors = to_torch(make_input("real", 1, 144, "bfloat16")), map(to_torch, weights((96, 48), "bfloat16"))
    q, kv = packed.split([96, 48], dim=-1)
    q_weight, kv_weight = factors
    found = vllm.fused_q_kv_rmsnorm(q, kv, q_weight, kv_weight, 1e-6)
    assert [each.stride() for each in found] == [(96, 1), (48, 1)]
    assert_same_bytes(found[1], rmsnorm(kv, kv_weight))


X = np.ones((2, 64), np.float16)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: q_kv_rmsnorm(X, X[:, :40], X[0], X[0, :40]), "kv: its last dimension is 40, that of q 64; rows"),
        (lambda: q_kv_rmsnorm(X[:, :40], X, X[0, :40], X[0]), "kv: its last dimension is 64, that of q 40; rows"),
        (lambda: q_kv_rmsnorm(X, X[:, :48], X[0], X[0]), r"kv_weight: shape is \(64,\), expected \(48,\)"),
        (lambda: q_kv_rmsnorm(X, X[:, :48], X[0], X[0, :48], kv_out=X), r"kv_out: shape is \(2, 64\), expected"),
        (lambda: q_kv_rmsnorm(X, np.float16(1), X[0], X[0]), "kv: "),
        (lambda: q_kv_rmsnorm(X, 3, X[0], X[0]), "kv: is an int; expected a tensor"),
    ],
)  # fmt: skip
def test_bad_input_is_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        call()


def test_a_second_size_goes_with_a_pair_alone() -> None:
    assert KernelConfig("rmsnorm", 64, pair=True, second_size=64) == KernelConfig("rmsnorm", 64, pair=True)
    for text, message in (
        ("rmsnorm:hidden_size=64,second_size=32", "second_size: is 32, but only a pair has a second input"),
        ("rmsnorm:hidden_size=64,pair=true,second_size=262160", "k: its last dimension is 262160; 1 to 262144"),
    ):
        with pytest.raises(ValueError, match=message):
            KernelConfig.parse(text)


ON_HOST = (
    "rmsnorm:pair=true,hidden_size=192,second_size=576",
    "rmsnorm:pair=true,hidden_size=1536,second_size=512,input=float16,weight=float32",
    "rmsnorm:pair=true,hidden_size=48,second_size=144,vector_bytes=8",
    "rmsnorm:pair=true,hidden_size=64,second_size=192",
    "rmsnorm:pair=true,hidden_size=16,second_size=8192,input=float32",
    "rmsnorm:pair=true,hidden_size=512,second_size=131072",
    "rmsnorm:pair=true,hidden_size=262144,second_size=2048,input=float32",
)


@pytest.mark.parametrize("text", ON_HOST)
def test_cuda_writes_what_the_cpu_writes(text: str) -> None:
    """Rows that share a warp, have a warp, a block or a cluster each, and rows that are loaded again."""
    assert_same(KernelConfig.parse(text), Target("sm_90a"), 3, "nan", is_cuda=True)


@pytest.mark.gpu
@pytest.mark.parametrize("sizes", [*SIZES, (576, 192), (512, 1536), (7168, 512), (512, 65536), (262144, 2048)])
@pytest.mark.parametrize("dtype", ALL_DTYPES)
def test_a_gpu_writes_what_the_cpu_writes(dtype: str, sizes: tuple[int, int]) -> None:
    factors = [to_torch(weight) for weight in weights(sizes, dtype)]
    for kind in ("random", "nan", "huge"):
        for rows in ((1, 1), (33, 700), (0, 5)):
            q, kv = (to_torch(make_input(kind, m, size, dtype)) for m, size in zip(rows, sizes, strict=True))
            found = q_kv_rmsnorm(*(each.cuda() for each in (q, kv, *factors)))
            for on_gpu, on_cpu in zip(found, q_kv_rmsnorm(q, kv, *factors), strict=True):
                assert_same_bytes(on_gpu, on_cpu, f"{rows} rows of {kind}")
