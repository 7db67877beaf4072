"""The demo distinguishes right results from wrong ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from call_facts import facts
from jitnorm.kernels.row_classes import class_of
from jitnorm.kernels.target import TARGET_NAMES, Target
from numpy.typing import NDArray

from jitnorm import reference
from jitnorm.call_config import config_of_call
from jitnorm.commands import demo
from jitnorm.commands.demo import CASES, Case, Outcome, Timing
from jitnorm.commands.place import HostMemory, Place

__all__ = ["facts"]

PLACE = Place(Target("cpu"), "the CPU", HostMemory(), "asked for")
TIMING = Timing("0" * 64, None, 0.001)


def reference_op(x: NDArray[Any], weight: NDArray[Any], **options: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """The reference's result of `rmsnorm_fp4quant`."""
    global_scale = options["global_scale"]
    codes, scales = reference.quantize_fp4(
        reference.rmsnorm_f32(x, weight, options["eps"]),
        block_size=options["block_size"],
        scale_format=options["scale_format"],
        global_scale=None if global_scale is None else float(global_scale[0]),
    )
    layout: Any = "128x4" if options["is_sf_swizzled_layout"] else "linear"
    return codes, reference.swizzle_scales(scales, layout)


def outcome_with(monkeypatch: pytest.MonkeyPatch, case: Case, spoil: tuple[int, ...] = ()) -> Outcome:
    """The outcome for an op that flips a bit in each of the outputs listed in `spoil`."""

    def op(*arguments: Any, **options: Any) -> tuple[NDArray[Any], ...]:
        outputs = reference_op(*arguments, **options)
        for index in spoil:
            outputs[index].reshape(-1)[-1] ^= 1
        return outputs

    monkeypatch.setattr(demo, "rmsnorm_fp4quant", op)
    return demo.compare(case, TIMING, PLACE, *demo.activations(case.site))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.site}-{case.quant}")
def test_equal_bytes_are_exact_and_their_sizes_are_counted(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = outcome_with(monkeypatch, case)
    assert outcome.is_exact
    assert outcome.input_bytes == 256 * 384 * 2
    assert outcome.output_bytes == 256 * 384 // 2 + 256 * 384 // case.quant.block_size
    assert 15 < outcome.sqnr < 25


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.site}-{case.quant}")
@pytest.mark.parametrize(("spoil", "equal"), [((0,), (False, True)), ((1,), (True, False))])
def test_one_flipped_bit_of_one_output_is_found(
    case: Case, spoil: tuple[int, ...], equal: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = outcome_with(monkeypatch, case, spoil)
    assert (outcome.codes_equal, outcome.scales_equal) == equal
    assert not outcome.is_exact


@pytest.mark.parametrize(("is_exact", "verdict"), [(True, "Proven:"), (False, "1 of 1 outputs differ")])
def test_the_closing_line_and_the_result_follow_the_bits(
    is_exact: bool, verdict: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = replace(outcome_with(monkeypatch, CASES[0]), codes_equal=is_exact)
    monkeypatch.setattr(demo, "prepare_launcher", lambda: None)
    monkeypatch.setattr(demo, "find_place", lambda **_: PLACE)
    monkeypatch.setattr(demo, "run_demo", lambda _: iter([outcome]))
    assert demo.show_demo(only_cpu=True) is is_exact
    assert verdict in capsys.readouterr().out


def test_sqnr_is_in_decibels() -> None:
    signal = np.array([10.0, 10.0], np.float32)
    assert demo.sqnr(signal, signal + np.float32(1.0)) == pytest.approx(20.0)


def test_the_global_scale_makes_the_largest_block_scale_448() -> None:
    y = np.array([[1.0, -3.5] * 8], np.float32)
    scale = demo.encode_scale(y)
    _, scales = reference.quantize_fp4(y, block_size=16, scale_format="e4m3", global_scale=float(scale[0]))
    assert reference.decode_e4m3(scales).tolist() == [[448.0]]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # nothing is written, so what is decoded is anything
def test_the_kernels_whose_times_are_shown_are_those_of_the_calls(facts: list[Any]) -> None:
    for case in CASES:
        x, weight = demo.activations(case.site)
        facts.clear()
        demo.compare(case, TIMING, PLACE, x, weight)
        ((options, of_call),) = facts
        for target in map(Target, TARGET_NAMES):
            called = config_of_call(options, target, **{**of_call, "row_class": class_of(*x.shape)})
            assert demo.config_of(case, *x.shape, target) == called
