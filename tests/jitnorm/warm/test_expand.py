"""Specifications name exactly the kernels that calls run: every op is called, and configurations are compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import op_calls
import pytest
from forgetful import forget_dispatchers
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.config_rules import default_weight
from jitnorm.kernels.quant_spec import to_text
from jitnorm.kernels.row_classes import ROW_CLASSES, classes_of
from jitnorm.kernels.target import Target

from jitnorm.call_config import config_of_call
from jitnorm.catalogue import OPS
from jitnorm.catalogue.launches import launches
from jitnorm.warm.expand import configs_of, configs_of_text

CALLS = op_calls.calls()
ROWS = (1, 3)
CPU, *GPUS = map(Target, ("cpu", "sm_80", "sm_90a", "sm_100a"))


def targets(number: int) -> tuple[Target, Target]:
    """The CPU and a GPU, which take turns."""
    return CPU, GPUS[number % len(GPUS)]


def row_classes(target: Target, of_call: dict[str, Any]) -> Sequence[str]:
    """The classes of rows that may have separate kernels; on the CPU, all share one."""
    return ROW_CLASSES[:1] if target.is_cpu else classes_of(of_call["hidden_size"])


def distinct(facts: list[Any]) -> list[Any]:
    """The distinct facts: calls with one row and with more mostly have the same."""
    return [each for i, each in enumerate(facts) if each not in facts[:i]]


@pytest.mark.parametrize("name", sorted(OPS))
def test_the_configurations_of_a_call_are_those_of_its_entry(name: str, facts: list[Any]) -> None:
    for number, call in enumerate(call for call in CALLS if call.op == name):
        facts.clear()
        forget_dispatchers()
        # Gradients of so many rows add up several segments, up to 256 rows each.
        for rows in (*ROWS, 300) if call.op.endswith("_backward") else ROWS:
            call.make(rows)
        assert facts, f"{call.choices}: the call has launched nothing"
        for target in targets(number):
            expected = {
                config_of_call(options, target, **{**of_call, "row_class": row_class})
                for options, of_call in distinct(facts)
                for row_class in row_classes(target, of_call)
            }
            assert set(configs_of(call.op, call.choices, target)) == expected, (call.choices, target)


def short_text(options: dict[str, Any], of_call: dict[str, Any]) -> str:
    """A configuration as people write it, without what depends on a call's tensors and target."""
    named_so = ("hidden_size", "input", "weight", "row_dims", "angles", "positions", "slots")
    fixed = {name: of_call[name] for name in named_so if name in of_call}
    config = KernelConfig(**{**fixed, **options})
    named = {"hidden_size": str(config.hidden_size)}
    for each in fields(KernelConfig)[2:]:
        default = default_weight(config.op, config.input) if each.name == "weight" else each.default
        if getattr(config, each.name) != default:
            named[each.name] = to_text(getattr(config, each.name))
    if of_call["enable_pdl"] is not None:
        named["pdl"] = to_text(of_call["enable_pdl"])
    return f"{config.op}:" + ",".join(f"{name}={value}" for name, value in named.items())


@pytest.mark.parametrize("name", sorted(OPS))
def test_what_a_text_leaves_open_is_all_that_calls_want(name: str, facts: list[Any]) -> None:
    for call in CALLS:
        if call.op == name:
            for rows in ROWS:
                call.make(rows)
    for number, (options, of_call) in enumerate(distinct(facts)):
        for target in targets(number + 1):
            classes = row_classes(target, of_call)
            wanted = {config_of_call(options, target, **{**of_call, "row_class": each}) for each in classes}
            assert wanted <= set(configs_of_text(short_text(options, of_call), target))
            for config in wanted:
                assert configs_of_text(str(config), target) == [config], "what jitnorm writes leaves nothing open"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("pdl=false", {(False, False, ""), (False, False, "16x1wuqlb8"), (False, False, "16x1wuq"), (False, True, "")}),
        ("many_rows=true", {(True, True, "")}),
        ("many_rows=false", {(True, False, ""), (True, False, "16x1wuqlb8"), (True, False, "16x1wuq")}),
        ("schedule=8x2", {(True, False, "8x2"), (True, True, "8x2")}),
        ("pdl=false,many_rows=true,schedule=8x2", {(False, True, "8x2")}),
    ],
)
def test_what_a_text_names_is_not_open(text: str, found: set[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JITNORM_TUNING", "off")
    configs = configs_of_text(f"layernorm:hidden_size=8192,{text}", Target("sm_90a"))
    assert {(config.pdl, config.many_rows, config.schedule) for config in configs} == found


def test_every_op_that_can_be_named_is_called_here() -> None:
    assert {call.op for call in CALLS} == set(OPS)


def test_every_public_function_that_launches_a_kernel_can_be_named() -> None:
    import jitnorm

    public = {name: getattr(jitnorm, name) for name in jitnorm.__all__ if name.islower()}
    ops = {name for name, value in public.items() if value.__module__.startswith("jitnorm.ops.")}
    assert len(ops) > 30
    assert ops <= set(OPS)


def test_the_classes_of_rows_together_are_all_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JITNORM_TUNING", "off")

    def of(row_class: str) -> set[KernelConfig]:
        return set(configs_of("layernorm", {"hidden_size": 8192, "row_class": row_class}, Target("sm_80")))

    assert set().union(*map(of, ROW_CLASSES)) == of("all")
    assert len(of("all")) == 3, "some and usual rows share the rules' schedule"
    assert {config.many_rows for config in of("many")} == {True}


@pytest.mark.parametrize(
    ("op", "choices", "message"),
    [
        ("softmax", {"hidden_size": 64}, "op: is 'softmax'; allowed are rmsnorm"),
        ("rmsnorm_fp4quant", {}, "hidden_size: is not given for rmsnorm_fp4quant"),
        ("rmsnorm_fp4quant", {"hidden_size": 64, "quant": "fp8"}, "quant: is 'fp8'; rmsnorm_fp4quant has e2m1/16"),
        ("rmsnorm_fp4quant", {"hidden_size": 64, "layout": "8x4"}, "layout: is '8x4'; rmsnorm_fp4quant has linear"),
        ("rmsnorm_fp4quant", {"hidden_size": 64, "global_scale": "row"}, "global_scale: is 'row'"),
        ("rmsnorm_fp4quant", {"hidden_size": 64, "residual": True}, "residual: is given, but rmsnorm_fp4quant has no"),
        ("rmsnorm", {"hidden_size": 64, "quant": "nvfp5"}, "quant: 'nvfp5' is not known; use one of nvfp4"),
        (
            "rmsnorm",
            {"hidden_size": 64, "row_class": "most"},
            "row_class: is 'most'; allowed are 'all', 'fewest', 'few'",
        ),
        ("rmsnorm", {"hidden_size": 64, "input": "int8"}, "input: is 'int8'"),
        ("rmsnorm", {"hidden_size": 64, "pdl": True}, "enable_pdl: is True, but sm_80 has no"),
        ("dequantize", {"hidden_size": 64}, "quant: is not given for dequantize"),
    ],
)
def test_what_no_call_can_have_is_refused(op: str, choices: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        configs_of(op, choices, Target("sm_80"))


def test_an_op_without_choices_of_its_own_has_those_of_all() -> None:
    assert [launch.hidden_size for launch in launches("compute_amax", {"hidden_size": 64})] == [64, 256]
