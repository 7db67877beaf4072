"""What is tuned is what `jitnorm bench` measures under the same names, and what calls look up."""

from __future__ import annotations

from itertools import product
from math import lcm
from typing import Any

import pytest
from call_facts import facts
from jitnorm.kernels.candidates import candidates
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.launcher_source import launcher_source
from jitnorm.kernels.quant_spec import NVFP4
from jitnorm.kernels.row_classes import ROW_CLASSES, class_of, classes_of
from jitnorm.kernels.target import Target

from jitnorm.bench.cases import OPS as BENCHMARKED
from jitnorm.bench.cases import op_named
from jitnorm.bench.measured import Measured
from jitnorm.bench.tensors import Tensors
from jitnorm.call_config import config_of_call
from jitnorm.fitted_forms import form_key
from jitnorm.tune.cases import HIDDEN_SIZES, OPS, USUAL_OPS, plan, rows_of
from jitnorm.tuning import forms_of, schedule_for, tuning_key

HOPPER = Target("sm_90a")


__all__ = ["facts"]


@pytest.mark.parametrize("name", OPS)
def test_an_op_is_that_of_the_benchmark(name: str, facts: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    op_named(name).make(Tensors("cpu"), 2, 1536)()
    (case,) = plan([name], [1536], ["usual"], HOPPER).cases
    called = [
        config_of_call(options, HOPPER, **of_call) for options, of_call in facts if options.get("amax_parts") != 1
    ]
    assert {tuning_key(config) for config in called} == {case.key}


def test_all_ops_with_a_choice_of_schedules_are_tuned_and_none_twice() -> None:
    def key_of(op: Measured) -> KernelConfig | None:
        size = lcm(4096, op.multiples[1])
        is_head = "qk_" in op.name or "rope" in op.name  # too short, or of another length than the second kind
        config = None if is_head or op.name == "q_kv_rmsnorm" else op.config(size)
        return form_key(tuning_key(config)) if config and candidates(config, HOPPER) else None

    keys = [key_of(op_named(name)) for name in OPS]
    assert len(set(keys)) == len(keys)
    assert {key_of(op) for op in BENCHMARKED} - {None} <= set(keys)


def test_every_class_of_rows_is_measured_where_it_is() -> None:
    for hidden_size, row_class in product(HIDDEN_SIZES, ROW_CLASSES):
        rows = rows_of(row_class, hidden_size)
        assert bool(rows) == (row_class in classes_of(hidden_size)), (hidden_size, row_class)
        assert {class_of(each, hidden_size) for each in rows} <= {row_class}


def test_a_class_that_no_call_has_is_not_measured() -> None:
    assert class_of(1024, 65536) == "many"
    assert [case.row_class for case in plan(["rmsnorm"], [65536], [], HOPPER).cases] == [
        "fewest",
        "few",
        "some",
        "several",
        "many",
    ]


def test_a_case_has_the_rules_kernel_and_others_that_name_their_schedules() -> None:
    (case,) = plan(["nvfp4 alone"], [4096], ["many"], HOPPER).cases
    assert case.config == KernelConfig("quantize", 4096, quant=NVFP4, many_rows=True, pdl=True)
    assert [config.schedule for config in case.configs] == ["", *case.schedules]
    assert len(case.schedules) > 3


def test_without_names_the_usual_ones_are_tuned() -> None:
    found = plan([], [], [], HOPPER).cases
    assert len(found) == len(USUAL_OPS) * sum(len(classes_of(size)) for size in HIDDEN_SIZES)
    assert {case.op for case in found} == set(USUAL_OPS)
    assert plan([], [65536], ["usual"], HOPPER).cases == []


@pytest.mark.parametrize(("ops", "row_classes", "name"), [(["softmax"], [], "ops"), ([], ["most"], "row_classes")])
def test_other_names_are_refused(ops: list[str], row_classes: list[str], name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: is '(softmax|most)'; allowed are"):
        plan(ops, [], row_classes, HOPPER)


def test_the_launcher_numbers_the_classes_alike() -> None:
    text = launcher_source()
    assert "enum RowClass : int16_t { kFewest, kFew, kSome, kSeveral, kUsual, kMany };" in text


def test_a_size_that_an_op_cannot_have_is_left_out_with_the_reason_and_the_others_go_on() -> None:
    found = plan(["rmsnorm", "rmsnorm fp8 128", "rmsnorm nvfp4"], [2880, 4096, 65536], ["usual"], HOPPER)
    assert [(case.op, case.config.hidden_size) for case in found.cases] == [
        ("rmsnorm", 2880), ("rmsnorm", 4096), ("rmsnorm fp8 128", 4096), ("rmsnorm nvfp4", 2880),
        ("rmsnorm nvfp4", 4096),
    ]  # fmt: skip
    reasons = [line.partition(": ") for line in found.left_out]
    assert [what for what, _, _ in reasons] == [
        "rmsnorm at 65536", "rmsnorm fp8 128 at 2880", "rmsnorm fp8 128 at 65536", "rmsnorm nvfp4 at 65536",
    ]  # fmt: skip
    assert reasons[0][2] == "no such call has a choice of schedules"
    assert "is 2880, not a multiple of block_size 128" in reasons[1][2]


@pytest.mark.parametrize("row_class", ROW_CLASSES)
@pytest.mark.parametrize("size", [1056, 5376, 11008, 28672])
def test_what_calls_get_without_a_table_is_compared(size: int, row_class: str) -> None:
    for op in ("rmsnorm", "add mxfp8", "silu nvfp4", "layernorm"):
        for case in plan([op], [size], [row_class], HOPPER).cases:
            assert schedule_for(case.config, HOPPER, case.row_class, {}, forms_of("sm_90a")) in ("", *case.schedules)
