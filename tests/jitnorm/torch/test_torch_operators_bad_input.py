"""A direct call of an operator refuses what the public function refuses, by name, and the next call works."""

from __future__ import annotations

import pytest
import torch
import torch_calls
from torch_tensors import ONLY_ON_CPU, WITHOUT_MEMORY, Refused

import jitnorm.torch
from jitnorm.catalogue import OPS

SIZE = 64
NORM, ADD = torch.ops.jitnorm.rmsnorm, torch.ops.jitnorm.fused_add_rmsnorm
# A subclass of the caller's answers for itself, and tensors on `meta` may be beside others there.
KINDS = {name: kind for name, kind in (WITHOUT_MEMORY | ONLY_ON_CPU).items() if name not in ("wrapper", "meta")}
refused = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def given() -> dict[str, torch.Tensor]:
    values = torch.linspace(-1, 1, 4 * SIZE).view(4, SIZE)
    return {"input": values, "residual": values * 2, "weight": torch.ones(SIZE)}


def assert_works() -> None:
    tensors = given()
    assert torch.equal(
        NORM(tensors["input"], tensors["weight"], 1e-6), jitnorm.rmsnorm(tensors["input"], tensors["weight"])
    )


@refused
@pytest.mark.parametrize("name", ["input", "weight", "out"])
def test_a_tensor_that_no_kernel_reads_is_named(kind: Refused, name: str) -> None:
    tensors = {"input": given()["input"], "weight": given()["weight"], "out": torch.zeros(4, SIZE)}
    NORM.out(**tensors, eps=1e-6)
    changed = {**tensors, name: kind.make(tensors[name])}
    calls = [NORM.out] if name == "out" else [NORM.out, NORM.default, NORM]
    for call in calls:
        arguments = {key: value for key, value in changed.items() if key != "out" or call is NORM.out}
        with pytest.raises(TypeError, match=rf"^{name}: {kind.message}"):
            call(**arguments, eps=1e-6)
        with torch.inference_mode(), pytest.raises(TypeError, match=rf"^{name}: {kind.message}"):
            call(**arguments, eps=1e-6)
    assert_works()


@refused
def test_it_is_named_as_what_is_written_in_place(kind: Refused) -> None:
    x, residual, weight = given().values()
    with pytest.raises(TypeError, match=rf"^residual: {kind.message}"):
        ADD.default(x, kind.make(residual), weight, 1e-6)
    with pytest.raises(TypeError, match=rf"^(residual|residual_out): {kind.message}"):
        ADD.out(x, residual, weight, 1e-6, out=x, residual_out=kind.make(residual))
    assert_works()


@pytest.mark.parametrize("name", [name for name, op in OPS.items() if not op.is_composed])
def test_every_overload_refuses_sparse_tensors(name: str) -> None:
    for function, args, kwargs in torch_calls.operator_calls(name):
        with pytest.raises(TypeError, match=r"^\w+: has layout torch\.sparse_coo"):
            function(args[0].to_sparse(), *args[1:], **kwargs)


def test_sparse_tensors_of_the_ranks_operator_are_named() -> None:
    with pytest.raises(TypeError, match=r"^input: has layout torch\.sparse_coo"):
        torch.ops.jitnorm.all_reduce_norm_quantize(
            torch.ones(2, SIZE).to_sparse(), torch.ones(SIZE), 1e-6, "none", config="rmsnorm:ranks=2"
        )


def test_views_of_other_signs_are_read_but_not_written() -> None:
    x, _, weight = given().values()
    out, negative = torch.zeros(4, SIZE), torch._neg_view(x)
    NORM.out(negative, weight, 1e-6, out=out)
    assert torch.equal(out, jitnorm.rmsnorm(-x, weight))
    with pytest.raises(TypeError, match=r"^out: is a view that changes signs"):
        NORM.out(x, weight, 1e-6, out=torch._neg_view(out))
    assert_works()


def test_a_tensor_that_is_missing_is_named() -> None:
    x, residual, weight = given().values()
    for _ in range(2):
        with pytest.raises(TypeError, match=r"^input: is .*None.*; expected a tensor"):
            NORM.default(None, weight, 1e-6)
        with pytest.raises(TypeError, match=r"^weight: is .*None.*; expected a tensor"):
            NORM.default(x, None, 1e-6)
        with pytest.raises(TypeError, match=r"^out: is None; expected a tensor"):
            NORM.out(x, weight, 1e-6, out=None)
        with pytest.raises(TypeError, match=r"^residual_out: is None; expected a tensor"):
            ADD.out(x, residual, weight, 1e-6, out=x, residual_out=None)
        assert_works()


def test_so_is_an_output_that_only_some_calls_have() -> None:
    x, _, weight = given().values()
    codes, scales = torch.ops.jitnorm.norm_quantize(x, weight, 1e-6, config="quant=e4m3/32/ue8m0")
    for _ in range(2):
        with pytest.raises(TypeError, match=r"^block_scale: is None; expected a tensor"):
            torch.ops.jitnorm.norm_quantize.out(x, weight, 1e-6, config="quant=e4m3/32/ue8m0", out=codes)
    torch.ops.jitnorm.norm_quantize.out(
        x, weight, 1e-6, config="quant=e4m3/32/ue8m0", out=codes, block_scale=scales.zero_()
    )
    assert scales.any()
