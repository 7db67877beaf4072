"""Rejected torch tensors on GPUs: after each error, the CUDA context is alive and the next call is correct."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from expected import assert_same_bytes, expected_rmsnorm
from frameworks import to_torch_cuda
from inputs import make_input, make_weight
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch_tensors import WITHOUT_MEMORY, Refused

from jitnorm import fused_add_rmsnorm, rmsnorm, rmsnorm_quant

pytestmark = pytest.mark.gpu

ROWS, SIZE = 5, 96
X, WEIGHT = make_input("real", ROWS, SIZE, "float32"), make_weight(SIZE, "float32")
refused = pytest.mark.parametrize("kind", WITHOUT_MEMORY.values(), ids=WITHOUT_MEMORY)


def tensors() -> dict[str, Any]:
    return {"input": to_torch_cuda(X), "weight": to_torch_cuda(WEIGHT), "out": torch.zeros(ROWS, SIZE, device="cuda")}


@pytest.fixture(autouse=True)
def _the_context_lives_on() -> Iterator[None]:
    rmsnorm(**tensors())  # the kernel is known from here on
    yield
    torch.cuda.synchronize()
    given = tensors()
    assert_same_bytes(rmsnorm(**given), expected_rmsnorm(X, WEIGHT))
    assert_same_bytes(rmsnorm(given["input"], given["weight"]), expected_rmsnorm(X, WEIGHT))


@refused
@pytest.mark.parametrize("name", ["input", "weight", "out"])
def test_what_has_no_memory_is_refused_by_name(kind: Refused, name: str) -> None:
    given = tensors()
    for keywords in ({}, {"stream": torch.cuda.current_stream()}):
        with pytest.raises(TypeError, match=rf"^{name}: {kind.message}"):
            rmsnorm(**{**given, name: kind.make(given[name])}, **keywords)
        torch.cuda.synchronize()


@refused
def test_it_is_refused_as_a_residual_and_as_a_scale(kind: Refused) -> None:
    x, weight, _ = tensors().values()
    residual, scale = x.clone(), torch.ones(1, device="cuda")
    codes = torch.zeros(ROWS, SIZE, device="cuda").to(torch.float8_e4m3fn)
    fused_add_rmsnorm(x, residual, weight)
    rmsnorm_quant(codes, x, weight, scale)
    with pytest.raises(TypeError, match=rf"^residual: {kind.message}"):
        fused_add_rmsnorm(x, kind.make(residual), weight)
    with pytest.raises(TypeError, match=rf"^scale: {kind.message}"):
        rmsnorm_quant(codes, x, weight, kind.make(scale))


def test_under_fake_tensor_mode_nothing_runs_and_nothing_fake_is_remembered() -> None:
    rows = 3  # of which no call has made an output yet
    x = make_input("real", rows, SIZE, "float32")
    real, weight = to_torch_cuda(x), to_torch_cuda(WEIGHT)
    with FakeTensorMode() as mode:
        made = rmsnorm(mode.from_tensor(real), mode.from_tensor(weight))
        assert (type(made), made.device) == (FakeTensor, real.device)
        with pytest.raises(TypeError, match=r"^(input|weight): is .*Fake"):
            rmsnorm(real, mode.from_tensor(weight))
    for _ in range(2):
        assert_same_bytes(rmsnorm(real, weight), expected_rmsnorm(x, WEIGHT))


TRACERS: dict[str, Callable[[Callable[..., Any], tuple[Any, ...]], Any]] = {
    "make_fx": lambda f, args: make_fx(f)(*args)(*args),
    "make_fx, fake": lambda f, args: make_fx(f, tracing_mode="fake")(*args)(*args),
    "vmap": lambda f, args: torch.func.vmap(f)(*(arg[None].clone() for arg in args))[0],
    "functionalize": lambda f, args: torch.func.functionalize(f)(*args),
}


@pytest.mark.parametrize("trace", TRACERS.values(), ids=TRACERS)
def test_what_traces_gets_an_operator_and_the_same_bytes(
    trace: Callable[[Callable[..., Any], tuple[Any, ...]], Any],
) -> None:
    def program(x: Any, weight: Any, out: Any) -> Any:
        return rmsnorm(x * 1, weight) + rmsnorm(x * 2, weight, out=out)

    given = tuple(tensors().values())
    assert torch.equal(trace(program, given), program(*tensors().values()))


@pytest.mark.parametrize("name", ["input", "weight"])
def test_a_tensor_that_requires_grad_is_refused_where_there_is_no_gradient_unless_gradients_are_off(name: str) -> None:
    given = tensors()
    given.pop("out")
    given[name].requires_grad_()
    codes = torch.zeros(ROWS, SIZE, device="cuda").to(torch.float8_e4m3fn)
    scale = torch.ones(1, device="cuda")
    with pytest.raises(TypeError, match=rf"^{name}: requires grad"):
        rmsnorm_quant(codes, **given, scale=scale)
    with torch.no_grad():
        rmsnorm_quant(codes, **given, scale=scale)
        assert_same_bytes(rmsnorm(**given), expected_rmsnorm(X, WEIGHT))


def test_a_call_keeps_no_memory() -> None:
    """Otherwise, the pool of a CUDA graph, which may be current, would not get it back."""
    x, weight = torch.ones(3, 1234, device="cuda"), torch.ones(1234, device="cuda")
    before = torch.cuda.memory_allocated()
    for _ in range(2):
        rmsnorm(x, weight)
    assert torch.cuda.memory_allocated() == before


def test_autograd_notices_that_what_it_kept_was_overwritten() -> None:
    x, weight, _ = tensors().values()
    product = torch.ones(ROWS, SIZE, device="cuda", requires_grad=True) * x
    rmsnorm(x, weight, out=x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


def test_what_is_written_in_place_gets_another_version() -> None:
    x, weight, _ = tensors().values()
    residual = x.clone()
    for _ in range(3):
        versions = x._version, residual._version, weight._version
        fused_add_rmsnorm(x, residual, weight)
        assert x._version > versions[0]
        assert residual._version > versions[1]
        assert weight._version == versions[2]


def test_a_negative_view_is_read_with_its_sign_and_not_written() -> None:
    x, weight, out = tensors().values()
    expected = expected_rmsnorm(-X, WEIGHT)
    assert_same_bytes(rmsnorm(torch._neg_view(x), weight), expected)
    assert_same_bytes(rmsnorm(torch._neg_view(x), weight, out=out), expected)
    with pytest.raises(TypeError, match=r"^input: is a view that changes signs"):
        fused_add_rmsnorm(torch._neg_view(x), torch.zeros_like(x), weight)
    torch.cuda.synchronize()
    assert_same_bytes(x, X)
