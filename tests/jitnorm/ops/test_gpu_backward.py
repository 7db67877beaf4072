"""The GPU's gradients have the bytes of the CPU target's, also through autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from expected import assert_same_bytes
from frameworks import to_torch
from inputs import ALL_DTYPES, INPUT_KINDS, in_turn, make_input, make_weight

import jitnorm

pytestmark = pytest.mark.gpu


def layernorm_backward(grad: Any, x: Any, weight: Any, **options: Any) -> Any:
    """The gradients with the statistics that the norm returns."""
    _, mean, rstd = jitnorm.layernorm_with_statistics(x, weight, weight)
    return jitnorm.layernorm_backward(grad, x, mean, rstd, weight, **options)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "rmsnorm": jitnorm.rmsnorm_backward,
    "gemma": jitnorm.gemma_rmsnorm_backward,
    "bias": jitnorm.rmsnorm_bias_backward,
    "layernorm": layernorm_backward,
}
# Packs of rows, one to sixteen warps, one and two chunks a lane, clusters, rows that are loaded again.
SIZES = [1, 17, 96, 128, 500, 512, 640, 1000, 1024, 1032, 1100, 2048, 4096, 5120, 8192, 11008, 12288, 16384, 18432]
LONG_SIZES = [20000, 32768, 65536, 100000, 262144]


def given(kind: str, rows: int, size: int, dtype: str, name: str) -> list[torch.Tensor]:
    arrays = (
        make_input("random", rows, size, dtype),
        make_input(kind, rows, size, dtype, seed=1),
        make_weight(size, "float32" if name == "layernorm" or size == 17 else dtype),
    )
    return list(map(to_torch, arrays))


def assert_same_on_both(name: str, tensors: list[torch.Tensor], what: str, **options: torch.Tensor) -> None:
    on_cpu, of_gpu = FUNCTIONS[name](*tensors, **options), [tensor.cuda() for tensor in tensors]
    options = {key: value.cuda() for key, value in options.items()}
    for found, expected in zip(FUNCTIONS[name](*of_gpu, **options), on_cpu, strict=True):
        assert_same_bytes(found, expected, what)
    frozen = FUNCTIONS[name](*of_gpu, **options, weight_grad=False)
    assert_same_bytes(frozen[0], on_cpu[0], f"{what}, without those of parameters")
    assert frozen[1:] == (None,) * (len(on_cpu) - 1)


@pytest.mark.parametrize(("size", "dtype", "name"), in_turn(SIZES * 2, list(ALL_DTYPES), list(FUNCTIONS)))
def test_gradients(size: int, dtype: str, name: str) -> None:
    for kind, rows in in_turn(INPUT_KINDS, (33, 1, 700, 5)):
        tensors = given(kind, rows, size, dtype, name)
        assert_same_on_both(name, tensors, f"{rows} rows of {kind}")
        assert_same_on_both(name, tensors, f"{rows} rows of {kind}, added", residual_grad=tensors[0])


@pytest.mark.parametrize(("size", "dtype", "name"), in_turn(LONG_SIZES, list(ALL_DTYPES), list(FUNCTIONS)))
def test_gradients_of_long_rows(size: int, dtype: str, name: str) -> None:
    for kind in ("random", "nan", "huge"):
        assert_same_on_both(name, given(kind, 5, size, dtype, name), kind)


@pytest.mark.parametrize("name", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize("rows", [1, 257, 1300, 9000])
@pytest.mark.parametrize("size", [128, 1024, 2048, 4096, 5120, 8192, 12288, 20000, 24576])
def test_many_rows_are_summed_along_one_tree(size: int, rows: int, name: str) -> None:
    assert_same_on_both(name, given("random", min(rows, (1 << 22) // size), size, "bfloat16", name), f"{rows} rows")


def test_views_and_narrow_accesses() -> None:
    grad, x, weight = given("random", 40, 1000, "bfloat16", "rmsnorm")
    expected = jitnorm.rmsnorm_backward(grad, x, weight)
    for offset in (1, 2, 4, 8):
        wide = torch.zeros(40, 2, 1000 + 16, dtype=torch.bfloat16, device="cuda")
        views = [wide[:, i, offset : offset + 1000].copy_(each) for i, each in enumerate((grad, x))]
        for found, each in zip(jitnorm.rmsnorm_backward(*views, weight.cuda()), expected, strict=True):
            assert_same_bytes(found.contiguous(), each, f"offset {offset}")


def test_no_rows() -> None:
    found = layernorm_backward(*(tensor.cuda() for tensor in given("random", 0, 96, "float16", "layernorm")))
    assert not found[1].any()
    assert not found[2].any()


@pytest.mark.parametrize("rows", [0, 1, 512, 1300])
def test_sums_of_rows(rows: int) -> None:
    matrix = to_torch(make_input("random", rows, 1000, "float32"))
    assert_same_bytes(jitnorm.sum_rows(matrix.cuda(), "bfloat16"), jitnorm.sum_rows(matrix, "bfloat16"))


def test_autograd_has_the_same_bytes_also_compiled_and_in_a_cuda_graph() -> None:
    grad, x, weight = (tensor.cuda() for tensor in given("random", 64, 4096, "bfloat16", "rmsnorm"))
    expected = jitnorm.rmsnorm_backward(grad, x, weight)

    def gradients(norm: Callable[..., Any]) -> tuple[torch.Tensor, ...]:
        leaves = x.clone().requires_grad_(), weight.clone().requires_grad_()
        return torch.autograd.grad(norm(*leaves), leaves, grad)

    for norm in (jitnorm.rmsnorm, torch.compile(jitnorm.rmsnorm, fullgraph=True)):
        for found, each in zip(gradients(norm), expected, strict=True):
            assert_same_bytes(found, each)
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.stream(stream), torch.cuda.graph(graph, stream=stream):
        captured = jitnorm.rmsnorm_backward(grad, x, weight)
    graph.replay()
    torch.cuda.synchronize()
    for found, each in zip(captured, expected, strict=True):
        assert_same_bytes(found, each, "captured")
