"""Schedules of layer normalization that are worth measuring."""

from __future__ import annotations

import pytest
from jitnorm.kernels.candidates import candidates
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.row_classes import ROW_CLASSES
from jitnorm.kernels.target import Target

HOPPER = Target("sm_90a")


def _found(text: str, row_class: str) -> set[str]:
    return {str(each) for each in candidates(KernelConfig.parse(f"layernorm:{text}"), HOPPER, row_class)}


def test_float32_parameters_reach_lanes_in_every_way() -> None:
    several = _found("hidden_size=4096,weight=float32,pdl=true", "several")
    assert {"8x1qlc", "4x2uqdcr2", "4x2uqdh", "8x1qdhr2", "2x4qd", "4x2uap8o1", "4x2ap8o1"} <= several
    many = _found("hidden_size=4096,weight=float32", "many")
    assert {"4x2uqcr2", "4x2qhr2", "2x4", "2x4h", "8x1r2"} <= many


@pytest.mark.parametrize("row_class", ROW_CLASSES)
def test_only_16_bit_values_without_a_branch_are_kept_unpacked(row_class: str) -> None:
    branched = _found("hidden_size=4096,weight=float32,branch_gate=true,residual=true", row_class)
    assert branched
    assert not [each for each in branched if "u" in each]


def test_parameters_of_long_rows_are_not_copied_for_each() -> None:
    assert any("c" in each for each in _found("hidden_size=12288,weight=float32", "usual"))
    longer = _found("hidden_size=12304,weight=float32", "usual")
    # Blocks of a cluster have a part of them, and resident ones keep them.
    assert not any("c" in each and "b" not in each and "k" not in each for each in longer)
    assert {"13x2uqcko1", "7x4uqcko2", "14x2uqckb2o2"} <= longer


def test_clusters_of_few_long_rows_copy_parameters_for_two_of_them() -> None:
    few = _found("hidden_size=24064,weight=float32", "few")
    assert {"24x2uqcr2b4", "24x2uqcr2b8", "24x2qcr2b8", "24x2uqcr2b2"} <= few


def test_rows_without_parameters_have_none_to_share_or_copy() -> None:
    alone = _found("hidden_size=4096,weight=none,bias=false", "usual")
    assert alone
    assert not [each for each in alone if "c" in each or "p" in each]


@pytest.mark.parametrize("row_class", ["fewest", "few"])
def test_few_rows_do_not_share_threads_or_persistent_blocks(row_class: str) -> None:
    found = _found("hidden_size=8192,weight=float32", row_class)
    assert found
    assert not [each for each in found if "r2" in each or "ap" in each]


def test_long_rows_may_have_more_chunks_or_warps() -> None:
    assert {"16x4qh", "32x2qh", "22x3qh", "8x8"} <= _found("hidden_size=32768,weight=float32", "usual")
    assert "8x3" in _found("hidden_size=12288,weight=float32", "usual")


@pytest.mark.parametrize("row_class", ROW_CLASSES)
def test_clusters_may_share_long_rows(row_class: str) -> None:
    for parameters in ("weight=none,bias=false,modulated=true", "weight=float32"):
        found = _found(f"hidden_size=28672,{parameters},pdl=true", row_class)
        assert [each for each in found if "b2" in each or "b4" in each or "b8" in each]
