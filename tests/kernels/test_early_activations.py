"""Gates of a norm whose activations are computed before its statistic is known."""

from __future__ import annotations

from pathlib import Path

import pytest
from compiled_kernels import CUOBJDUMP, NVDISASM, assert_no_local_memory, opcodes
from jitnorm.kernels.candidates import candidates
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.few_rows import few_rows_schedule
from jitnorm.kernels.generator import generate
from jitnorm.kernels.registers import with_room_for_weight
from jitnorm.kernels.row_schedule import RowSchedule
from jitnorm.kernels.schedule import row_schedule, why_unfit
from jitnorm.kernels.schedule_form import ScheduleForm
from jitnorm.kernels.target import Target

HOPPER = Target("sm_90a")
TO_BLOCKS = "rmsnorm:hidden_size=5376,gate=norm,quant=e2m1/16/e4m3"
BY_TOKEN = "rmsnorm:hidden_size=5376,gate=norm,quant=e4m3/row/f32"


@pytest.mark.skipif(
    NVDISASM is None or CUOBJDUMP is None,
    reason="nvdisasm or cuobjdump is missing: pip install nvidia-cuda-nvdisasm nvidia-cuda-cuobjdump",
)
@pytest.mark.parametrize("text", [TO_BLOCKS, BY_TOKEN])
@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a"])
def test_activations_precede_the_barrier_of_the_statistic(text: str, target: str, tmp_path: Path) -> None:
    """Their reciprocals are the first special functions of a kernel."""

    def special_before_barrier(schedule: str) -> int:
        found = opcodes(f"{text},schedule={schedule}", target, tmp_path)
        return sum(each.startswith("MUFU") for each in found[: _place(found, "BAR")])

    assert special_before_barrier("11x1wq") == 0
    assert special_before_barrier("11x1wqz") >= 16  # one for each gate of a chunk
    assert_no_local_memory(f"{text},schedule=11x1wqz", target, tmp_path)


def _place(opcodes: list[str], start: str) -> int:
    return next(place for place, opcode in enumerate(opcodes) if opcode.startswith(start))


@pytest.mark.parametrize(
    "text",
    [
        "rmsnorm:hidden_size=4096",
        "rmsnorm:hidden_size=4096,gate=input",
        "rmsnorm:hidden_size=4096,activation=silu,activates_norm=true",
        "layernorm:hidden_size=4096,residual=true,branch_gate=true",
        "quantize:hidden_size=4096,gate_columns=4096",
    ],
)
def test_only_gates_that_wait_for_a_norm_have_early_activations(text: str) -> None:
    config = KernelConfig.parse(text)
    assert "only norms with gates" in why_unfit(config, HOPPER, RowSchedule.parse("8x1z"))
    assert not any(each.activates_early for each in candidates(config, HOPPER))
    assert "kActivatesEarly" not in generate(config, HOPPER).text


@pytest.mark.parametrize("row_class", ["fewest", "few", "some", "several", "usual", "many"])
def test_norms_that_wait_for_the_largest_magnitude_of_their_row_always_activate_early(row_class: str) -> None:
    """By rule, and in all schedules that are worth measuring."""
    for size in (384, 2304, 5376, 18432):
        is_many = str(row_class == "many").lower()
        config = KernelConfig.parse(f"rmsnorm:hidden_size={size},gate=norm,quant=e4m3/row/f32,many_rows={is_many}")
        assert row_schedule(config, HOPPER).activates_early
        text = few_rows_schedule(config, HOPPER, row_class)
        assert not text or RowSchedule.parse(text).activates_early
        assert all(each.activates_early for each in candidates(config, HOPPER, row_class))


@pytest.mark.parametrize("quant", ["none", "e4m3/tensor/f32", "e2m1/16/e4m3"])
def test_others_may_with_one_chunk_in_a_lane(quant: str) -> None:
    config = KernelConfig.parse(f"rmsnorm:hidden_size=5376,gate=norm,quant={quant}")
    chunks = {each.chunks_per_lane for each in candidates(config, HOPPER) if each.activates_early}
    assert chunks == {1}
    assert not row_schedule(config, HOPPER).activates_early


@pytest.mark.parametrize(("many_rows", "schedule"), [(False, "1x1wqp8n20"), (True, "1x1wqzp8n20")])
def test_many_short_rows_activate_early(many_rows: bool, schedule: str) -> None:
    config = KernelConfig("rmsnorm", 320, gate="norm", many_rows=many_rows)
    assert str(row_schedule(config, HOPPER)) == schedule


def test_activations_take_the_room_of_a_second_weight() -> None:
    config, schedules = KernelConfig.parse(BY_TOKEN), ("11x1wz", "6x2w", "6x2wz")
    found = [str(with_room_for_weight(config, RowSchedule.parse(each))) for each in schedules]
    assert found == ["11x1wz", "6x2w", "6x2z"]


def test_a_form_activates_early_at_all_lengths() -> None:
    form = ScheduleForm.parse("1wqz")
    found = [str(form.schedule(KernelConfig("rmsnorm", size, gate="norm"), HOPPER)) for size in (2048, 5376, 9216)]
    assert found == ["4x1wqz", "11x1wqz", "9x2qz"]
