"""The PTX of CuTe-DSL kernels, run on the host, writes the bytes of the CPU target."""

from __future__ import annotations

import cute_on_host
import pytest
from cute_cases import IN_REGISTERS, PIPELINED
from cute_on_host import assert_same, make_arrays, run_on_cpu, run_on_host
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.cute import schedule as schedules
from jitnorm.kernels.cute.schedule import cute_schedule
from jitnorm.kernels.target import Target
from warp_orders import FirstAhead, Together

AMPERE, HOPPER, BLACKWELL = Target("sm_80"), Target("sm_90a"), Target("sm_100a")


@pytest.fixture(autouse=True)
def _pipelines_wherever_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use pipelines even where they do not pay: the kernels must be correct wherever they may be used."""
    pytest.importorskip("cutlass", reason="CuTe-DSL is not installed: pip install jitnorm[cute]")
    monkeypatch.setattr(schedules, "pays", lambda config: True)


@pytest.mark.parametrize("text", IN_REGISTERS)
def test_without_native_conversions(text: str) -> None:
    """Every second row of the kind "nan" is random; a tensor with a NaN has no other amax, hence two kinds for it."""
    config = KernelConfig.parse(text)
    for kind in ("nan",):
        assert_same(config, AMPERE, 2 if config.hidden_size > 16384 else 5, kind)


@pytest.mark.parametrize("text", [text for text in IN_REGISTERS if "quant=" in text][::3])
def test_with_native_conversions(text: str) -> None:
    """Each target is the first GPU with the conversions: Hopper for FP8, Blackwell for FP4."""
    config = KernelConfig.parse(text)
    target = BLACKWELL if "e2m1" in text else HOPPER
    for kind in ("spiky", "inf"):
        assert_same(config, target, 1 if config.hidden_size > 16384 else 3, kind)


@pytest.mark.parametrize("text", [text for text in PIPELINED if "many_rows" in text][::3])
def test_very_many_rows_by_blocks_that_end(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "pays", lambda config: False)
    # Else it would be remembered for the tests of the pipeline, or theirs for this one.
    monkeypatch.setattr(cute_on_host, "ptx_of", cute_on_host.ptx_of.__wrapped__)
    config = KernelConfig.parse(text)
    assert cute_schedule(config, HOPPER)[1] is None
    assert_same(config, HOPPER, 3, "random")


@pytest.mark.parametrize("text", PIPELINED)
def test_blocks_that_stay(text: str) -> None:
    """Two blocks, or one cluster, process all rows, more than they have room for."""
    config = KernelConfig.parse(text)
    schedule, pipeline = cute_schedule(config, HOPPER)
    assert pipeline is not None
    blocks = 2 if schedule.blocks_per_row == 1 else schedule.blocks_per_row
    rows = pipeline.stages * 2 + 3 if config.hidden_size <= 16384 else pipeline.stages + 2
    for order, kind in ((Together, "nan"), (FirstAhead, "random")):
        assert_same(config, HOPPER, rows, kind, most_blocks=blocks, order=order)
    assert_same(config, HOPPER, 2, "real")


@pytest.mark.parametrize("kind", ["zeros", "tiny", "huge", "real", "finite_patterns", "all_patterns"])
@pytest.mark.parametrize("quant", ["e2m1/16/e4m3/128x4/row", "e2m1/32/ue8m0", "e4m3/32/ue8m0", "e4m3/row/f32"])
def test_inputs_at_the_edges(quant: str, kind: str) -> None:
    config = KernelConfig.parse(f"rmsnorm:hidden_size=1536,quant={quant},residual=true")
    for eps in (0.0, 1e-5):
        assert_same(config, AMPERE, 5, kind, eps=eps)


@pytest.mark.parametrize("element", ["e4m3", "e5m2"])
def test_values_beyond_the_largest_code_saturate(element: str) -> None:
    """With this many patterns, some lie between the largest code and the values that would round to infinity."""
    config = KernelConfig.parse(f"quantize:hidden_size=1536,quant={element}/tensor/f32")
    assert_same(config, AMPERE, 64, "all_patterns")


def test_another_epsilon_gives_other_bytes() -> None:
    """A counterexample: the comparison above can fail."""
    config = KernelConfig.parse("rmsnorm:hidden_size=1536,quant=e2m1/16/e4m3")
    one, other = make_arrays(config, 5, "random"), make_arrays(config, 5, "random")
    run_on_cpu(config, one, 1e-5)
    run_on_host(config, AMPERE, other, 5, 1.0)
    assert any((one[name] != other[name]).any() for name in ("y_fp4", "block_scale"))
