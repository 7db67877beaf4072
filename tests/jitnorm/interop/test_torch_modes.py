"""Where torch records, replaces or transforms calls, an op is one operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from expected import assert_same_bytes, expected_rmsnorm
from frameworks import to_torch
from inputs import make_input, make_weight
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import jitnorm
from jitnorm import fused_add_rmsnorm, rmsnorm

SIZE = 96
WEIGHT = make_weight(SIZE, "float16")
# Each test has a number of rows of its own, so that nothing is remembered of its outputs.
Program = Callable[..., Any]
Tracer = Callable[[Program, tuple[Any, ...]], Any]


class Module(torch.nn.Module):
    def __init__(self, function: Program) -> None:
        super().__init__()
        self._function = function

    def forward(self, *args: Any) -> Any:
        return self._function(*args)


def through_vmap(f: Program, args: tuple[Any, ...]) -> Any:
    return torch.func.vmap(f)(*(arg[None].clone() for arg in args))[0]


# Each traces a program and gives what the traced one returns.
TRACERS: dict[str, Tracer] = {
    "make_fx": lambda f, args: make_fx(f)(*args)(*args),
    "make_fx, fake": lambda f, args: make_fx(f, tracing_mode="fake")(*args)(*args),
    "make_fx, symbolic": lambda f, args: make_fx(f, tracing_mode="symbolic")(*args)(*args),
    "jit.trace": lambda f, args: torch.jit.trace(f, args)(*args),
    "vmap": through_vmap,
    "functionalize": lambda f, args: torch.func.functionalize(f)(*args),
    "export": lambda f, args: torch.export.export(Module(f), args, strict=False).module()(*args),
}
DERIVATIVES: dict[str, Tracer] = {
    "grad": lambda f, args: torch.func.grad(lambda x: f(x, *args[1:]).sum())(args[0]),
    "jvp": lambda f, args: torch.func.jvp(lambda x: f(x, *args[1:]), args[:1], args[:1]),
}


def values(rows: int) -> Any:
    return make_input("real", rows, SIZE, "float16")


def allocates(x: Any, weight: Any, out: Any) -> Any:
    return rmsnorm(x * 1, weight) * 2


def writes(x: Any, weight: Any, out: Any) -> Any:
    return rmsnorm(x * 1, weight, out=out) * 2


def writes_a_residual(x: Any, weight: Any, out: Any) -> Any:
    y, out = x * 1, out + x
    fused_add_rmsnorm(y, out, weight)
    return y + out


def quantizes(x: Any, weight: Any, out: Any) -> Any:
    codes, scales = jitnorm.rmsnorm_mxfp8quant(x * 1, weight)
    return jitnorm.mxfp8_dequantize_host(codes, scales.reshape(-1), is_sf_swizzled_layout=False)


def assert_works(rows: int) -> None:
    x = values(rows)
    for out in (None, torch.empty(rows, SIZE).half()):
        assert_same_bytes(rmsnorm(to_torch(x), to_torch(WEIGHT), out=out), expected_rmsnorm(x, WEIGHT))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.jit.trace itself
@pytest.mark.parametrize("trace", TRACERS.values(), ids=TRACERS)
@pytest.mark.parametrize("is_known", [False, True])
def test_what_traces_gets_an_operator_and_the_same_bytes(trace: Tracer, is_known: bool) -> None:
    rows = 11 + 20 * list(TRACERS.values()).index(trace) + is_known
    if is_known:
        assert_works(rows)
    for program in (allocates, writes, writes_a_residual, quantizes):
        args = to_torch(values(rows)), to_torch(WEIGHT), torch.zeros(rows, SIZE).half()
        expected = program(*(arg.clone() for arg in args))
        assert torch.equal(trace(program, args), expected), program.__name__
    assert_works(rows)


REFUSED = [("grad", quantizes, "input: requires grad"), ("grad", writes, "out: is used in a transform")]
REFUSED += [("jvp", program, "input: has a tangent") for program in (allocates, writes, quantizes)]


@pytest.mark.parametrize(("derivative", "program", "message"), REFUSED)
def test_what_cannot_be_differentiated_is_named_and_the_next_call_works(
    derivative: str, program: Program, message: str
) -> None:
    args = to_torch(values(9)), to_torch(WEIGHT), torch.zeros(9, SIZE).half()
    with pytest.raises(TypeError, match=f"^{message}"):
        DERIVATIVES[derivative](program, args)
    assert_works(9)


@pytest.mark.parametrize("trace", [TRACERS["make_fx"], TRACERS["vmap"]], ids=["make_fx", "vmap"])
def test_a_stream_cannot_be_traced(trace: Tracer) -> None:
    args = to_torch(values(8)), to_torch(WEIGHT), torch.zeros(8, SIZE).half()
    with pytest.raises(TypeError, match=r"^input: is used .*`stream`"):
        trace(lambda x, weight, out: rmsnorm(x, weight, stream=0), args)
    assert_works(8)


def test_a_tensor_that_escaped_from_its_transform_is_refused_by_name() -> None:
    def escaped(tensor: Any) -> Any:
        seen: list[Any] = []
        torch.func.vmap(lambda one: (seen.append(one), one)[1])(tensor[None])
        return seen[0]

    given = {"input": to_torch(values(5)), "weight": to_torch(WEIGHT), "out": torch.zeros(5, SIZE).half()}
    for name, tensor in given.items():
        with pytest.raises(TypeError, match=rf"^{name}: is used in a transform of torch\.func"):
            rmsnorm(**{**given, name: escaped(tensor)})
    assert_works(5)


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize(
    "transform",
    [
        lambda call, x: torch.func.grad(lambda one: (one * call()).sum())(x),
        lambda call, x: torch.func.jvp(lambda one: one * call(), (torch.ones_like(x),), (x,))[0],
        lambda call, x: torch.func.functionalize(lambda one: one * call())(torch.ones_like(x)),
    ],
    ids=["grad", "jvp", "functionalize"],
)
def test_tensors_that_a_transform_does_not_see_have_plain_results(transform: Any, is_known: bool) -> None:
    rows = 9 + is_known
    x, weight, out = to_torch(values(rows)), to_torch(WEIGHT), torch.empty(rows, SIZE).half()
    if is_known:
        assert_works(rows)
    for keywords in ({}, {"out": out}):
        for given in (x, torch._neg_view(-x)):
            made = transform(lambda given=given, keywords=keywords: rmsnorm(given, weight, **keywords), x)
            assert_same_bytes(made, expected_rmsnorm(values(rows), WEIGHT))
    assert_works(rows)


@pytest.mark.parametrize("is_known", [False, True])
def test_deterministic_mode_which_fills_what_is_allocated_changes_nothing(is_known: bool) -> None:
    x = to_torch(make_input("real", 13 + is_known, 64, "float16"))
    wanted = jitnorm.quantize(x.float(), spec=jitnorm.NVFP4)
    if is_known:
        jitnorm.quantize(x, spec=jitnorm.NVFP4)
    torch.use_deterministic_algorithms(True)
    try:
        made = [jitnorm.quantize(x, spec=jitnorm.NVFP4) for _ in range(2)]
    finally:
        torch.use_deterministic_algorithms(False)
    assert made == [wanted] * 2
    assert made[1].data.dtype is torch.float4_e2m1fn_x2


@pytest.mark.parametrize("is_known", [False, True])
def test_under_fake_tensor_mode_nothing_runs_and_nothing_fake_is_remembered(is_known: bool) -> None:
    rows = 7 + is_known
    if is_known:
        assert_works(rows)
    real, weight, out = to_torch(values(rows)), to_torch(WEIGHT), torch.zeros(rows, SIZE).half()
    with FakeTensorMode() as mode:
        fake, fake_weight, fake_out = map(mode.from_tensor, (real, weight, out))
        for made in (rmsnorm(fake, fake_weight), rmsnorm(fake, fake_weight, out=fake_out)):
            assert isinstance(made, FakeTensor)
            assert (made.shape, made.dtype, made.device) == (real.shape, real.dtype, real.device)
        for mixed in ((real, weight), (fake, weight), (real, fake_weight)):
            for keywords in ({}, {"out": fake_out}):
                with pytest.raises(TypeError, match=r"^(input|weight): is .*Fake"):
                    rmsnorm(*mixed, **keywords)
    assert isinstance(rmsnorm(fake, fake_weight), FakeTensor)  # outside of its mode, too
    assert not out.any()
    assert_works(rows)


def test_where_tensors_are_made_elsewhere_by_default_outputs_are_with_the_input() -> None:
    x, weight = to_torch(values(301)), to_torch(WEIGHT)
    for _ in range(2):
        with torch.device("meta"):
            out = rmsnorm(x, weight)
        assert_same_bytes(out, expected_rmsnorm(values(301), WEIGHT))
    assert_works(301)


def test_modes_see_the_operator_and_those_that_only_watch_change_nothing() -> None:
    class Watching(TorchDispatchMode):
        seen: list[str]

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.seen.append(str(function))
            return function(*args, **(kwargs or {}))

    watching = Watching()
    for rows, mode in ((311, FlopCounterMode(display=False)), (312, watching)):
        x, weight = to_torch(values(rows)), to_torch(WEIGHT)
        for _ in range(2):
            watching.seen = []
            with mode:
                assert_same_bytes(rmsnorm(x, weight), expected_rmsnorm(values(rows), WEIGHT))
        assert_works(rows)
    assert "jitnorm.rmsnorm.default" in watching.seen


def test_of_a_mode_that_changes_what_is_made_nothing_is_remembered() -> None:
    class Elsewhere(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            made = function(*args, **(kwargs or {}))
            return made.to("meta") if isinstance(made, torch.Tensor) else made

    x, weight = to_torch(values(313)), to_torch(WEIGHT)
    with Elsewhere():
        assert rmsnorm(x, weight).device.type == "meta"
    assert_works(313)


def test_outputs_made_in_inference_mode_are_inference_tensors_and_later_ones_are_not() -> None:
    x, weight = to_torch(values(314)), to_torch(WEIGHT)
    with torch.inference_mode():
        assert rmsnorm(x, weight).is_inference()
        assert rmsnorm(x, weight).is_inference()
    assert not rmsnorm(x, weight).is_inference()
    assert_works(314)


def test_a_batch_of_encodings_is_stacked() -> None:
    x, weights = to_torch(values(6)).view(3, 2, SIZE), to_torch(WEIGHT).repeat(3, 1)
    batched = torch.func.vmap(lambda x, weight: jitnorm.rmsnorm_mxfp8quant(x, weight), out_dims=(0, 0))(x, weights)
    scales = torch.func.vmap(lambda x: jitnorm.quantize(x, spec=jitnorm.FP8_BLOCK).scale)(x)
    assert torch.equal(scales, jitnorm.quantize(x, spec=jitnorm.FP8_BLOCK, batched=True).scale)
    q = torch.func.vmap(lambda x: jitnorm.quantize(x, spec=jitnorm.MXFP8))(x)
    assert q == jitnorm.quantize(x, spec=jitnorm.MXFP8)
    assert torch.equal(torch.func.vmap(lambda q: q.dequantize())(q), q.dequantize())
    for i in range(3):
        expected = jitnorm.rmsnorm_mxfp8quant(x[i], weights[i])
        for ours, theirs in zip(batched, expected, strict=True):
            assert torch.equal(ours[i].view(torch.uint8), theirs.view(torch.uint8))


def test_an_empty_batch_has_the_shapes_of_its_elements() -> None:
    weight, x = to_torch(WEIGHT), torch.empty(2, 0, SIZE).half()
    assert torch.func.vmap(lambda x: rmsnorm(x, weight), in_dims=1)(x).shape == (0, 2, SIZE)
    q = torch.func.vmap(lambda x: jitnorm.quantize(x, spec=jitnorm.MXFP8), in_dims=-2)(x)
    assert (q.data.shape, q.scale.shape) == ((0, 2, SIZE), (0, 2, SIZE // 32))
