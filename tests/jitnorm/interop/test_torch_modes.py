"""Where torch records, replaces or transforms what it is asked for, an op is an error; elsewhere it changes nothing."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from expected import assert_same_bytes, expected_rmsnorm
from frameworks import to_torch
from inputs import make_input, make_weight
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from jitnorm import fused_add_rmsnorm, rmsnorm

SIZE = 96
WEIGHT = make_weight(SIZE, "float16")
# Each test has a number of rows of its own, so that nothing is remembered of its outputs.
Tracer = Callable[[Callable[[Any], Any], Any], Any]


class Module(torch.nn.Module):
    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self._function = function

    def forward(self, x: Any) -> Any:
        return self._function(x)


TRACERS: dict[str, Tracer] = {
    "make_fx": lambda f, x: make_fx(f)(x),
    "make_fx, fake": lambda f, x: make_fx(f, tracing_mode="fake")(x),
    "make_fx, symbolic": lambda f, x: make_fx(f, tracing_mode="symbolic")(x),
    "jit.trace": lambda f, x: torch.jit.trace(f, (x,)),
    "vmap": lambda f, x: torch.func.vmap(f)(x[None]),
    "grad": lambda f, x: torch.func.grad(lambda x: f(x).sum())(x),
    "jvp": lambda f, x: torch.func.jvp(f, (x,), (x,)),
    "functionalize": lambda f, x: torch.func.functionalize(f)(x),
    "export": lambda f, x: torch.export.export(Module(f), (x,), strict=False),
}


def values(rows: int) -> Any:
    return make_input("real", rows, SIZE, "float16")


def traced_program(weight: Any, keywords: dict[str, Any]) -> Callable[[Any], Any]:
    return lambda x: rmsnorm(x * 1, weight, **keywords) * 2


def assert_works(rows: int) -> None:
    x = values(rows)
    for out in (None, torch.empty(rows, SIZE).half()):
        assert_same_bytes(rmsnorm(to_torch(x), to_torch(WEIGHT), out=out), expected_rmsnorm(x, WEIGHT))


@pytest.mark.parametrize("trace", TRACERS.values(), ids=TRACERS)
@pytest.mark.parametrize("is_known", [False, True])
def test_what_traces_gets_an_error_by_name_and_the_next_call_works(trace: Tracer, is_known: bool) -> None:
    rows = 11 + 20 * list(TRACERS.values()).index(trace) + is_known
    if is_known:
        assert_works(rows)
    weight, out = to_torch(WEIGHT), torch.empty(rows, SIZE).half()
    for keywords in ({}, {"out": out}):
        program = traced_program(weight, keywords)
        with pytest.raises(TypeError, match=r"^input: is (used|a FakeTensor)"):
            trace(program, to_torch(values(rows)))
    assert_works(rows)


@pytest.mark.parametrize("is_known", [False, True])
def test_under_fake_tensor_mode_nothing_runs_and_nothing_fake_is_remembered(is_known: bool) -> None:
    rows = 7 + is_known
    if is_known:
        assert_works(rows)
    real, weight, out = to_torch(values(rows)), to_torch(WEIGHT), torch.zeros(rows, SIZE).half()
    with FakeTensorMode() as mode:
        for x in (real, mode.from_tensor(real)):
            for keywords in ({}, {"out": out}):
                with pytest.raises(TypeError, match=r"^input: is .*Fake"):
                    rmsnorm(x, weight, **keywords)
    assert not out.any()
    assert_works(rows)


def test_where_tensors_are_made_elsewhere_by_default_outputs_are_with_the_input() -> None:
    x, weight = to_torch(values(301)), to_torch(WEIGHT)
    for _ in range(2):
        with torch.device("meta"):
            out = rmsnorm(x, weight)
        assert_same_bytes(out, expected_rmsnorm(values(301), WEIGHT))
    assert_works(301)


def test_modes_that_only_watch_change_nothing() -> None:
    class Watching(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return function(*args, **(kwargs or {}))

    for rows, mode in ((311, FlopCounterMode(display=False)), (312, Watching())):
        x, weight = to_torch(values(rows)), to_torch(WEIGHT)
        for _ in range(2):
            with mode:
                assert_same_bytes(rmsnorm(x, weight), expected_rmsnorm(values(rows), WEIGHT))
        assert_works(rows)


def test_a_mode_that_changes_what_is_made_is_an_error_and_nothing_of_it_is_remembered() -> None:
    class Elsewhere(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            made = function(*args, **(kwargs or {}))
            return made.to("meta") if isinstance(made, torch.Tensor) else made

    x, weight = to_torch(values(313)), to_torch(WEIGHT)
    with Elsewhere(), pytest.raises(TypeError, match=r"^out: is on meta"):
        rmsnorm(x, weight)
    assert_works(313)


def test_outputs_made_in_inference_mode_are_inference_tensors_and_later_ones_are_not() -> None:
    x, weight = to_torch(values(314)), to_torch(WEIGHT)
    with torch.inference_mode():
        assert rmsnorm(x, weight).is_inference()
        assert rmsnorm(x, weight).is_inference()
    assert not rmsnorm(x, weight).is_inference()
    assert_works(314)


@pytest.fixture
def compiler() -> Iterator[Any]:
    """torch.compile without a backend of its own; a warning is an error."""
    torch.compiler.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield partial(torch.compile, backend="eager")
    torch.compiler.reset()


def test_compiled_programs_call_ops_between_their_graphs_without_a_warning(compiler: Any) -> None:
    def step(x: Any, residual: Any, weight: Any) -> Any:
        x = x * 2
        fused_add_rmsnorm(x, residual, weight)
        return rmsnorm(x + residual, weight) - 1

    weight, x = torch.ones(SIZE), torch.randn(4, SIZE)
    residuals = torch.randn(4, SIZE).repeat(4, 1, 1)
    compiled = compiler(step)
    results = [compiled(x, residual, weight) for residual in residuals[:2]] + [step(x, residuals[2], weight)]
    assert torch.equal(results[0], results[2])
    assert torch.equal(results[1], results[2])
    assert torch.equal(residuals[0], residuals[2])
    assert not torch.equal(residuals[0], residuals[3])


def test_a_program_that_must_be_one_graph_has_no_ops(compiler: Any) -> None:
    program = compiler(lambda x, weight: rmsnorm(x, weight) - 1, fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="jitnorm's ops are not torch operators yet"):
        program(torch.randn(4, SIZE), torch.ones(SIZE))


def test_a_compiled_program_may_meet_an_op_after_it_was_called(compiler: Any) -> None:
    x, residual, weight = to_torch(values(3)), to_torch(values(3)), to_torch(WEIGHT)

    def program(x: Any, residual: Any) -> Any:
        y = x * 2
        fused_add_rmsnorm(y, residual, weight)
        return y * 2

    kept = residual.clone()
    expected = program(x, residual)
    assert torch.equal(compiler(program)(x, kept), expected)
    assert torch.equal(residual, kept)
