"""Each op of the catalogue is a torch operator that follows torch's rules and returns the function's bytes."""

from __future__ import annotations

from typing import Any

import op_calls
import pytest
import torch
import torch_calls
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.library import opcheck
from torch.utils._python_dispatch import TorchDispatchMode

import jitnorm.torch
from jitnorm.catalogue import OPS

NAMES = list(OPS)
NVFP4 = "quant=e2m1/16/e4m3"
RULES, TRACING = ("test_schema", "test_autograd_registration", "test_faketensor"), "test_aot_dispatch_dynamic"


def test_schemas_say_what_is_written_and_returned() -> None:
    assert str(torch.ops.jitnorm.rmsnorm.default._schema) == (
        'jitnorm::rmsnorm(Tensor input, Tensor? weight, float eps, *, str config="", bool? enable_pdl=None) -> Tensor'
    )
    for name in NAMES:
        packet = getattr(torch.ops.jitnorm, name, None)
        assert (packet is None) == OPS[name].is_composed
        for overload in packet.overloads() if packet else ():
            schema = getattr(packet, overload)._schema
            written = [argument.name for argument in schema.arguments if argument.is_write]
            assert bool(written) == overload.endswith("out")
            assert bool(schema.returns) != bool(written)
    written = torch.ops.jitnorm.fused_add_rmsnorm.out._schema.arguments[-2:]
    assert [argument.name for argument in written] == ["out", "residual_out"]


@pytest.mark.parametrize("name", NAMES)
def test_both_overloads_keep_the_rules_of_operators(name: str) -> None:
    """Tracing takes longest, and an op's overloads are registered alike, so they take turns at it."""
    calls, turn = torch_calls.operator_calls(name), NAMES.index(name)
    for number, (function, args, kwargs) in enumerate(calls):
        is_traced = len(calls) == 1 or (number + turn) % 2 == 0
        opcheck(function, args, kwargs, test_utils=(*RULES, *([TRACING] if is_traced else [])))


@pytest.mark.parametrize("name", ["quantize", "dequantize"])
def test_they_keep_them_with_square_blocks_too(name: str) -> None:
    for function, args, kwargs in torch_calls.operator_calls(name, quant="fp8_block"):
        opcheck(function, args, kwargs)


@pytest.mark.parametrize("name", [name for name in NAMES if "paged" not in OPS[name].fixed])
def test_both_overloads_give_the_same_bytes(name: str) -> None:
    calls = iter(torch_calls.operator_calls(name))
    for (function, args, kwargs), (out, _, written) in zip(calls, calls, strict=True):
        outputs = {key: torch.zeros_like(value) for key, value in written.items() if isinstance(value, torch.Tensor)}
        assert out(*args, **{**written, **outputs}) is None
        for made, given in zip(torch_calls.leaves(function(*args, **kwargs)), outputs.values(), strict=True):
            assert torch.equal(made, torch_calls.leaves(given)[0])


@pytest.mark.parametrize("op", NAMES)
def test_every_call_of_an_op_works_with_fake_tensors(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No kernel is built, because nothing is run."""

    def new(shape: tuple[int, ...], dtype: str = "bfloat16", is_output: bool = False) -> Any:
        return torch.empty(shape, dtype=getattr(torch, {"float4_e2m1fnx2": "uint8"}.get(dtype, dtype)))

    monkeypatch.setattr(op_calls, "new", new)
    monkeypatch.setattr("jitnorm.dispatch.get_kernel", lambda *_: pytest.fail("a kernel is built"))
    for call in op_calls.calls():
        if call.op == op:
            with FakeTensorMode():
                results = torch.utils._pytree.tree_leaves(call.prepared(3)())
            assert all(isinstance(result, FakeTensor) for result in results if result is not None), call.choices


def test_an_option_that_the_operator_lacks_is_an_error_by_name() -> None:
    x, weight = torch.ones(2, 64), torch.ones(64)
    for config, message in (
        ("bias=true", "config: is 'bias=true', but the operator rmsnorm has no bias"),
        ("nothing=1", "config: cannot read 'nothing=1'"),
        ("quant=e9", "quant: 'e9' is not known"),
    ):
        with pytest.raises(ValueError, match=f"^{message}"):
            torch.ops.jitnorm.rmsnorm(x, weight, 1e-6, config=config)
    with pytest.raises(ValueError, match=r"^global_scale: is given, but the other options leave no use for it"):
        torch.ops.jitnorm.rmsnorm_fp4quant(x, weight, 1e-6, torch.ones(1), config=NVFP4)
    codes, scales = (torch.empty(2, columns, dtype=torch.uint8) for columns in (32, 4))
    with pytest.raises(ValueError, match=r"^block_scale_unswizzled: is given, but the other options leave no use for"):
        torch.ops.jitnorm.rmsnorm_fp4quant.out(
            x, weight, 1e-6, config="quant=e2m1/16/e4m3", y_fp4=codes, block_scale=scales,
            block_scale_unswizzled=scales.clone(),
        )  # fmt: skip
    with pytest.raises(ValueError, match=r"^out: shape is \(1, 64\), expected \(2, 64\)"):
        torch.ops.jitnorm.rmsnorm.out(x, weight, 1e-6, out=x[:1])
    assert torch.equal(torch.ops.jitnorm.rmsnorm(x, weight, 1e-6), jitnorm.rmsnorm(x, weight))
    for name in ("rmsnorm", "quantize", "dequantize"):  # calls without an overload's name find the first that fits
        assert getattr(torch.ops.jitnorm, name).overloads()[0] == "default"


def test_an_operator_without_a_gradient_refuses_a_tensor_that_requires_one() -> None:
    x, weight = torch.ones(2, 64), torch.ones(64, requires_grad=True)
    operator = torch.ops.jitnorm.rmsnorm_fp4quant
    with pytest.raises(TypeError, match=r"^weight: requires grad"):
        operator(x, weight, 1e-6, config=NVFP4)
    with pytest.raises(TypeError, match=r"^weight: requires grad"):
        torch.ops.jitnorm.rmsnorm.out(x, weight, 1e-6, out=torch.zeros(2, 64))
    with pytest.raises(TypeError, match=r"^weight: requires grad"):
        torch.func.grad(lambda w: operator(x, w, 1e-6, config=NVFP4)[1].float().sum())(torch.ones(64))
    with torch.no_grad():
        assert not torch.ops.jitnorm.rmsnorm(x, weight, 1e-6).requires_grad


def test_what_an_operator_writes_gets_another_version() -> None:
    x, weight, out = torch.ones(2, 64), torch.ones(64), torch.zeros(2, 64)
    before = out._version, x._version
    torch.ops.jitnorm.rmsnorm.out(x, weight, 1e-6, out=out)
    assert out._version > before[0]
    assert x._version == before[1]


def test_usual_calls_from_python_leave_out_what_torch_would_only_pass_on(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight, out = torch.ones(2, 64), torch.ones(64), torch.zeros(2, 64)
    packet = torch.ops.jitnorm.rmsnorm
    expected = packet(x, weight, 1e-6), *torch.ops.jitnorm.rmsnorm_fp4quant(x, weight, 1e-6, config=NVFP4)
    packet.out(x, weight, 1e-6, out=out)
    dispatched: list[str] = []
    for called in (packet, packet.default, packet.out, torch.ops.jitnorm.rmsnorm_fp4quant.default):
        name = str(called)
        monkeypatch.setitem(called._op.__globals__, "_dispatch", lambda *_, name=name, **__: dispatched.append(name))
    out.zero_()
    assert packet.out(x, weight, eps=1e-6, out=out) is None
    assert torch.equal(packet(x, weight, 1e-6), expected[0])
    found = packet.default(x, weight, 1e-6), *torch.ops.jitnorm.rmsnorm_fp4quant.default(x, weight, 1e-6, config=NVFP4)
    assert all(torch.equal(*pair) for pair in zip((out, *found), (expected[0], *expected), strict=True))
    assert not dispatched
    with torch.autograd.profiler.profile():
        packet.default(x, weight, 1e-6)
    with torch.device("cpu"):  # a mode that sees functions of torch
        packet.out(x, weight, 1e-6, out=out)
    packet(x, weight, 1e-6, out=out)
    packet.default(x, weight.requires_grad_(), 1e-6)
    with torch.no_grad():
        assert packet.default(x, weight, 1e-6) is not None
    names = ("jitnorm.rmsnorm.default", "jitnorm.rmsnorm.out", "jitnorm.rmsnorm", "jitnorm.rmsnorm.default")
    assert dispatched == [*names]


def test_modes_and_profilers_see_operators() -> None:
    x, weight = torch.ones(2, 64), torch.ones(64)
    seen = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(function)
            return function(*args, **(kwargs or {}))

    operator = torch.ops.jitnorm.rmsnorm.default
    operator(x, weight, 1e-6)
    with Mode():
        operator(x, weight, 1e-6)
    assert seen == [operator]
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        operator(x, weight, 1e-6)
    assert "jitnorm::rmsnorm" in [event.key for event in profile.key_averages()]


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
def test_scripts_find_operators() -> None:
    def program(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.ops.jitnorm.rmsnorm(x, weight, 1e-6)  # type: ignore[no-any-return]

    x, weight = torch.ones(2, 64), torch.ones(64)
    assert torch.equal(torch.jit.script(program)(x, weight), jitnorm.rmsnorm(x, weight))


def test_a_tensor_without_values_beside_others_is_an_error_by_name() -> None:
    given = {"input": torch.ones(2, 64), "weight": torch.ones(64), "out": torch.ones(2, 64)}
    operator = torch.ops.jitnorm.rmsnorm
    for _ in range(2):
        for name in ("weight", "out"):
            changed = {**given, name: given[name].to("meta")}
            for call in (operator.out, torch.compile(jitnorm.rmsnorm, backend="aot_eager")):
                numbers = {} if call is not operator.out else {"eps": 1e-6}
                with pytest.raises(Exception, match=f"{name}: is on meta, expected cpu, where input is"):
                    call(**changed, **numbers)
        with pytest.raises(ValueError, match=r"^weight: is on cpu, expected meta, where input is"):
            operator(given["input"].to("meta"), given["weight"], 1e-6)
    with FakeTensorMode(), pytest.raises(ValueError, match=r"^weight: is on cpu, expected cuda:0, where input is"):
        jitnorm.rmsnorm(torch.empty(2, 64, device="cuda"), torch.empty(64))
    assert operator(*(tensor.to("meta") for tensor in (given["input"], given["weight"])), 1e-6).is_meta
    assert torch.equal(operator(given["input"], given["weight"], 0.0), given["input"])


def test_missing_arguments_are_errors_by_name() -> None:
    with pytest.raises(TypeError, match=r"^jitnorm::rmsnorm\(\) missing 1 required keyword-only argument: 'out'"):
        torch.ops.jitnorm.rmsnorm.out(torch.ones(2, 64), torch.ones(64), 1e-6)
