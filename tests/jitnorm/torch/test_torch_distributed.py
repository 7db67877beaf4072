"""With DTensors, each process computes its own rows; anything that needs other processes' rows is an error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.distributed.tensor import DeviceMesh, DTensor, Partial, Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

import jitnorm
from jitnorm import FP8_BLOCK, FP8_TENSOR, FP8_TOKEN, MXFP8, NVFP4, QuantSpec

ROWS, SIZE, PROCESSES = 6, 128, 2
X, RESIDUAL = torch.randn(2, ROWS, SIZE, generator=torch.Generator().manual_seed(0)).bfloat16()
WEIGHT = torch.linspace(0.5, 2, SIZE).bfloat16()


@pytest.fixture(params=range(PROCESSES))
def rank(request: pytest.FixtureRequest) -> Iterator[int]:
    """One process of a group that communicates nothing."""
    rank: int = request.param
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=PROCESSES)
    yield rank
    torch.distributed.destroy_process_group()


def placed(tensor: Any, placement: Any, rank: int) -> Any:
    part = tensor.chunk(PROCESSES, placement.dim)[rank] if isinstance(placement, Shard) else tensor
    return DTensor.from_local(part.clone(), DeviceMesh("cpu", range(PROCESSES)), [placement], run_check=False)


def assert_part(result: Any, whole: Any, placement: Any, rank: int) -> None:
    assert isinstance(result, DTensor)
    assert result.placements == (placement,)
    assert result.shape == whole.shape
    expected = whole.chunk(PROCESSES, placement.dim)[rank] if isinstance(placement, Shard) else whole
    assert torch.equal(result.to_local().contiguous().view(torch.uint8), expected.contiguous().view(torch.uint8))


@pytest.mark.parametrize("placement", [Replicate(), Shard(0)], ids=str)
def test_rows_of_a_process_are_computed_by_it(rank: int, placement: Any) -> None:
    x, residual, weight = (
        placed(X, placement, rank),
        placed(RESIDUAL, placement, rank),
        placed(WEIGHT, Replicate(), rank),
    )
    assert_part(jitnorm.rmsnorm(x, weight), jitnorm.rmsnorm(X, WEIGHT), placement, rank)
    y, total = jitnorm.add_rmsnorm(x, residual, weight)
    for ours, theirs in zip((y, total), jitnorm.add_rmsnorm(X, RESIDUAL, WEIGHT), strict=True):
        assert_part(ours, theirs, placement, rank)
    q, expected = jitnorm.quantize(x, spec=FP8_TOKEN), jitnorm.quantize(X, spec=FP8_TOKEN)
    assert_part(q.data, expected.data, placement, rank)
    assert_part(q.scale, expected.scale, placement, rank)
    jitnorm.fused_add_rmsnorm(x, residual, weight)
    assert torch.equal(x.to_local(), y.to_local())
    assert torch.equal(residual.to_local(), total.to_local())


def test_all_but_the_last_dimension_are_rows(rank: int) -> None:
    x, weight = X.view(3, 2, SIZE), placed(WEIGHT, Replicate(), rank)
    result = jitnorm.rmsnorm_mxfp8quant(placed(x, Shard(1), rank), weight)
    for ours, theirs in zip(result, jitnorm.rmsnorm_mxfp8quant(x, WEIGHT), strict=True):
        assert_part(ours, theirs, Shard(1), rank)
    parameter = WEIGHT.float()
    given = placed(x, Shard(1), rank), *(placed(parameter, Replicate(), rank) for _ in range(2))
    whole = jitnorm.layernorm_with_statistics(x, parameter, parameter)
    for ours, theirs in zip(jitnorm.layernorm_with_statistics(*given), whole, strict=True):
        assert_part(ours, theirs, Shard(1), rank)


@pytest.mark.parametrize("spec", [NVFP4.with_layout("128x4"), FP8_BLOCK], ids=str)
def test_rows_that_share_scales_or_their_tiles_belong_to_one_process(rank: int, spec: QuantSpec) -> None:
    x = torch.randn(2 * 128 * PROCESSES, SIZE, generator=torch.Generator().manual_seed(0)).bfloat16()
    q, expected = jitnorm.quantize(placed(x, Shard(0), rank), spec=spec), jitnorm.quantize(x, spec=spec)
    assert_part(q.data, expected.data, Shard(0), rank)
    assert_part(q.scale, expected.scale, Shard(0), rank)
    for rows in (100, 64):  # of 100, padded parts are as large together as the padded whole
        with pytest.raises(TypeError, match=r"^input: has the placements .*, but block_scale is made of rows of all"):
            jitnorm.quantize(placed(x[: rows * PROCESSES], Shard(0), rank), spec=spec)


def test_in_a_compiled_program_too(rank: int) -> None:
    def program(x: Any, weight: Any) -> Any:
        return jitnorm.rmsnorm(x * 2, weight) + 1

    compiled = torch.compile(program, backend="aot_eager", fullgraph=True)
    result = compiled(placed(X, Shard(0), rank), placed(WEIGHT, Replicate(), rank))
    assert_part(result, program(X, WEIGHT), Shard(0), rank)


def test_what_a_process_cannot_compute_alone_is_an_error_that_names_the_placement(rank: int) -> None:
    weight, rows = placed(WEIGHT, Replicate(), rank), placed(X, Shard(0), rank)
    for placement in (Shard(1), Partial()):
        with pytest.raises(TypeError, match=r"^input: has the placements \((Shard\(dim=1\)|Partial\(sum\)),\)"):
            jitnorm.rmsnorm(placed(X, placement, rank), weight)
    with pytest.raises(TypeError, match=r"^weight: has the placements \(Shard\(dim=0\),\); allowed are R"):
        jitnorm.rmsnorm(rows, placed(WEIGHT, Shard(0), rank))
    with pytest.raises(TypeError, match=r"^residual: has the placements \(Replicate\(\),\)"):
        jitnorm.add_rmsnorm(rows, placed(RESIDUAL, Replicate(), rank), weight)
    with pytest.raises(TypeError, match=r"^input: has the placements .*, but block_scale is made of rows of all"):
        jitnorm.quantize(rows, spec=NVFP4.with_layout("128x4"))
    with pytest.raises(TypeError, match=r"^input: has the placements .*, but amax is made of rows of all"):
        jitnorm.quantize(rows, spec=FP8_TENSOR, scale="tensor")
    assert_part(jitnorm.rmsnorm(rows, weight), jitnorm.rmsnorm(X, WEIGHT), Shard(0), rank)


@pytest.mark.parametrize("placement", [Replicate(), Shard(0)], ids=str)
def test_operators_called_directly_do_the_same(rank: int, placement: Any) -> None:
    operators, weight = torch.ops.jitnorm, placed(WEIGHT, Replicate(), rank)
    x, residual, out = (placed(each, placement, rank) for each in (X, RESIDUAL, X))
    expected = jitnorm.rmsnorm(X, WEIGHT), *jitnorm.add_rmsnorm(X, RESIDUAL, WEIGHT)
    assert_part(operators.rmsnorm(x, weight, 1e-6), expected[0], placement, rank)
    with torch.inference_mode():
        assert_part(operators.rmsnorm.default(x, weight, 1e-6), expected[0], placement, rank)
    assert operators.rmsnorm.out(x, weight, 1e-6, out=out) is None
    assert_part(out, expected[0], placement, rank)
    for ours, theirs in zip(operators.fused_add_rmsnorm(x, residual, weight, 1e-6), expected[1:], strict=True):
        assert_part(ours, theirs, placement, rank)
    codes, scales = operators.rmsnorm_fp4quant(x, weight, 1e-6, config="quant=e2m1/16/e4m3")
    for ours, theirs in zip((codes, scales), jitnorm.rmsnorm_fp4quant(X, WEIGHT), strict=True):
        assert_part(ours, theirs, placement, rank)
    operators.fused_add_rmsnorm.out(x, residual, weight, 1e-6, out=x, residual_out=residual)
    assert_part(x, expected[1], placement, rank)
    assert_part(residual, expected[2], placement, rank)


def test_so_do_compiled_programs_that_call_them(rank: int) -> None:
    def program(x: Any, residual: Any, weight: Any) -> Any:
        torch.ops.jitnorm.fused_add_rmsnorm.out(x, residual, weight, 1e-6, out=x, residual_out=residual)
        return torch.ops.jitnorm.rmsnorm(x * 2, weight, 1e-6) + 1

    def inputs() -> Any:
        return placed(X, Shard(0), rank), placed(RESIDUAL, Shard(0), rank), placed(WEIGHT, Replicate(), rank)

    given, mine = inputs(), inputs()
    compiled = torch.compile(program, backend="aot_eager", fullgraph=True)
    for ours, theirs in zip((compiled(*given), *given), (program(*mine), *mine), strict=True):
        assert torch.equal(ours.to_local(), theirs.to_local())


def test_a_program_may_have_symbols_for_rows_and_hidden_sizes(rank: int) -> None:
    compiled = torch.compile(jitnorm.rmsnorm, backend="aot_eager", fullgraph=True, dynamic=True)
    for size in (64, 96):
        x, weight = (placed(each, Replicate(), rank) for each in (X[:, :size], WEIGHT[:size]))
        assert torch.equal(compiled(x, weight).to_local(), jitnorm.rmsnorm(x, weight).to_local())


@pytest.mark.parametrize("placement", [Shard(1), Partial()], ids=str)
def test_operators_name_other_placements(rank: int, placement: Any) -> None:
    operators, weight = torch.ops.jitnorm, placed(WEIGHT, Replicate(), rank)
    rows, other = placed(X, Shard(0), rank), placed(X, placement, rank)
    named = re.escape(f"has the placements ({placement!r},)")
    with pytest.raises(TypeError, match=f"^input: {named}"):
        operators.rmsnorm(other, weight, 1e-6)
    with pytest.raises(TypeError, match=f"^out: {named}"):
        operators.rmsnorm.out(rows, weight, 1e-6, out=other)
    with pytest.raises(TypeError, match=f"^residual: {named}"):
        operators.fused_add_rmsnorm.out(rows, other, weight, 1e-6, out=rows, residual_out=other)
    with pytest.raises(TypeError, match=r"^weight: is a plain tensor beside DTensors"):
        operators.rmsnorm(rows, WEIGHT, 1e-6)
    with pytest.raises(TypeError, match=r"^input: is a DTensor"):
        operators.all_reduce_norm_quantize(rows, weight, 1e-6, "none", config="rmsnorm:ranks=2")
    assert_part(operators.rmsnorm(rows, weight, 1e-6), jitnorm.rmsnorm(X, WEIGHT), Shard(0), rank)


def test_operators_have_the_gradients_of_functions(rank: int) -> None:
    x, weight = placed(X, Shard(0), rank).requires_grad_(), placed(WEIGHT, Replicate(), rank).requires_grad_()
    torch.ops.jitnorm.rmsnorm(x, weight, 1e-6).to_local().float().square().sum().backward()
    found = [x.grad, weight.grad]
    x.grad = weight.grad = None
    jitnorm.rmsnorm(x, weight).to_local().float().square().sum().backward()
    for ours, theirs in zip(found, (x.grad, weight.grad), strict=True):
        assert ours.placements == theirs.placements
        assert torch.equal(ours.to_local(), theirs.to_local())


def test_a_plain_tensor_beside_them_is_an_error_by_name(rank: int) -> None:
    rows, weight = placed(X, Shard(0), rank), placed(WEIGHT, Replicate(), rank)
    with pytest.raises(TypeError, match=r"^weight: is a plain tensor beside DTensors"):
        jitnorm.rmsnorm(rows, WEIGHT)
    with pytest.raises(TypeError, match=r"^out: is a plain tensor beside DTensors"):
        jitnorm.rmsnorm(rows, weight, out=torch.empty_like(X))
    with pytest.raises(TypeError, match=r"^input: is a DTensor, .*`stream`"):
        jitnorm.rmsnorm(rows, weight, stream=0)


@pytest.mark.parametrize("placement", [Replicate(), Shard(0)], ids=str)
def test_a_process_has_the_gradients_of_its_rows(rank: int, placement: Any) -> None:
    x, residual, weight = (
        placed(tensor, where, rank).requires_grad_()
        for tensor, where in ((X, placement), (RESIDUAL, placement), (WEIGHT, Replicate()))
    )
    y, total = jitnorm.add_rmsnorm(x, residual, weight)
    (y.to_local().float() * total.to_local().float()).sum().backward()

    mine = [each.to_local().detach().clone().requires_grad_() for each in (x, residual, weight)]
    y, total = jitnorm.add_rmsnorm(*mine)
    (y.float() * total.float()).sum().backward()
    of_weight = Partial() if isinstance(placement, Shard) else Replicate()
    for ours, theirs, where in zip((x, residual, weight), mine, (placement, placement, of_weight), strict=True):
        assert ours.grad.placements == (where,)
        assert torch.equal(ours.grad.to_local(), theirs.grad)


def test_so_has_layernorm_whose_statistics_are_those_of_its_rows(rank: int) -> None:
    x, parameter = placed(X, Shard(0), rank).requires_grad_(), placed(WEIGHT.float(), Replicate(), rank)
    jitnorm.layernorm(x, parameter, parameter).to_local().float().square().sum().backward()
    mine = x.to_local().detach().clone().requires_grad_()
    jitnorm.layernorm(mine, WEIGHT.float(), WEIGHT.float()).float().square().sum().backward()
    assert x.grad.placements == (Shard(0),)
    assert torch.equal(x.grad.to_local(), mine.grad)


def test_gradients_that_there_are_not_are_refused(rank: int) -> None:
    x, weight = placed(X, Shard(0), rank), placed(WEIGHT, Replicate(), rank).requires_grad_()
    with pytest.raises(TypeError, match=r"^weight: requires grad"):
        jitnorm.rmsnorm_mxfp8quant(x, weight)
    with pytest.raises(TypeError, match=r"^out: is written, which gradients of DTensors do not allow"):
        jitnorm.rmsnorm(x, weight, out=placed(X, Shard(0), rank))
    with torch.no_grad():
        jitnorm.fused_add_rmsnorm(x, placed(RESIDUAL, Shard(0), rank), weight)


def test_replicated_results_are_whole(rank: int) -> None:
    x = placed(X, Replicate(), rank)
    q = jitnorm.quantize(x, spec=MXFP8.with_layout("128x4"))
    assert_part(q.scale, jitnorm.quantize(X, spec=MXFP8.with_layout("128x4")).scale, Replicate(), rank)
