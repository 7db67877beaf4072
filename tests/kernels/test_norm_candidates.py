"""Schedules of norms that are worth measuring."""

from __future__ import annotations

import pytest
from jitnorm.kernels.candidates import candidates
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.row_classes import ROW_CLASSES
from jitnorm.kernels.target import Target

AMPERE, HOPPER = Target("sm_80"), Target("sm_90a")
PLAIN = "rmsnorm:hidden_size=8192"


def _found(text: str, row_class: str, target: Target = HOPPER) -> set[str]:
    return {str(each) for each in candidates(KernelConfig.parse(text), target, row_class)}


@pytest.mark.parametrize("row_class", ROW_CLASSES)
def test_divisions_of_a_row_take_the_fast_path_with_halves_of_chunks_and_with_limited_registers(row_class: str) -> None:
    found = _found("rmsnorm:hidden_size=4096,pdl=true", row_class)
    for division in ("8x1", "4x2", "3x3", "2x4"):
        options = {each.removeprefix(division) for each in found if each.startswith(division)}
        assert any("q" in each for each in options)
        assert any("h" in each for each in options)
        assert any("o" in each for each in options)


def test_the_way_of_a_single_row_is_shortened() -> None:
    assert {"8x1wuql", "4x2wuql", "3x3wuql", "8x1qlh", "8x1wqlho3"} <= _found("rmsnorm:hidden_size=4096", "few")
    late = {"8x1wuqldo4", "8x1wuqldho3", "8x1qldh"}
    assert late <= _found("rmsnorm:hidden_size=4096,pdl=true", "few")
    summed = _found("rmsnorm:hidden_size=4096,residual=true,pdl=true", "few")
    assert not [each for each in summed if "ld" in each], "with a residual, dependents are signalled at once"


def test_dependents_of_rows_in_few_waves_may_wait_for_their_stores() -> None:
    for row_class in ("some", "several"):
        late = {"8x1wqd", "4x2wqd", "4x2wqdo8", "4x2qdo8", "4x2uqdo8"}
        assert late <= _found("rmsnorm:hidden_size=4096,pdl=true", row_class)
        assert not [each for each in _found("rmsnorm:hidden_size=4096", row_class) if "d" in each]


def test_long_rows_have_more_than_16_warps_clusters_or_eight_chunks() -> None:
    assert {"18x1wqho1", "18x1wq", "9x2wqo3", "6x3lo3"} <= _found("rmsnorm:hidden_size=9216,residual=true", "few")
    assert {"24x1wqlb8", "24x1wqlb4o3", "16x2wuqlb8"} <= _found("rmsnorm:hidden_size=12288", "fewest")
    assert {"30x2lb2", "58x1wqhb2", "16x4b4"} <= _found("rmsnorm:hidden_size=29312,gate=norm", "some")
    assert {"8x8q", "32x2wq", "22x3qh"} <= _found("rmsnorm:hidden_size=32768", "usual")
    assert not [each for each in _found("rmsnorm:hidden_size=12288", "fewest", AMPERE) if "b" in each]


def test_a_float32_weight_may_be_copied_and_a_sum_stored_early() -> None:
    assert {"8x1qco2", "4x2qco4"} <= _found("rmsnorm:hidden_size=4096,weight=float32", "few")
    with_blocks = "rmsnorm:hidden_size=4096,residual=true,quant=e2m1/16/e4m3"
    assert {"8x1weq", "4x2weq", "4x2eqo8"} <= _found(with_blocks, "usual")
    assert {"4x2weqlo6", "8x1eqo2"} <= _found(with_blocks, "few")


def test_few_rows_do_not_take_turns_at_the_threads_of_a_block() -> None:
    paired = [row_class for row_class in ROW_CLASSES if any("r2" in each for each in _found(PLAIN, row_class))]
    assert paired == ["many"]


def test_rows_of_a_warp_may_share_blocks() -> None:
    assert {"1x3wq", "1x3wqp2", "1x3wqp4", "1x3qp4o8"} <= _found("rmsnorm:hidden_size=1536", "usual")
