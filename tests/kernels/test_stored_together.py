"""Lanes that store their chunks together: as many of a row as a chunk takes accesses."""

from __future__ import annotations

import pytest
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.row_schedule import RowSchedule
from jitnorm.kernels.stores import stores_together


def is_together(text: str, schedule: str) -> bool:
    return stores_together(KernelConfig.parse(text), RowSchedule.parse(schedule))


@pytest.mark.parametrize(
    "text",
    [
        "rmsnorm:hidden_size=4096,input=float32",
        "layernorm:hidden_size=4096,vector_bytes=8",
        "rmsnorm:hidden_size=4097,vector_bytes=2,residual=true",
        "quantize:hidden_size=4099,vector_bytes=2,gate_columns=4099",
    ],
)
def test_chunks_of_four_accesses_or_more_always_are(text: str) -> None:
    assert is_together(text, "9x1")
    assert is_together(text, "9x1l")


def test_chunks_of_two_accesses_are_if_no_chunk_is_alone_and_many_rows_matter_more() -> None:
    assert is_together("rmsnorm:hidden_size=4096", "8x1")
    assert not is_together("rmsnorm:hidden_size=4096", "8x1l")
    assert not is_together("rmsnorm:hidden_size=4112", "9x1")
    assert not is_together("layernorm:hidden_size=4096", "8x1")


def test_lanes_of_different_rows_are_not_together() -> None:
    assert is_together("rmsnorm:hidden_size=128,input=float32", "1x1p2n8")
    assert not is_together("rmsnorm:hidden_size=96,input=float32", "1x1p2n6")
    assert not is_together("rmsnorm:hidden_size=128,vector_bytes=2", "1x1p2n8")


def test_lanes_of_a_shorter_row_of_a_pair_are_all_in_it_or_none() -> None:
    assert is_together("rmsnorm:hidden_size=1536,input=float32,pair=true,second_size=512", "3x1")
    assert not is_together("rmsnorm:hidden_size=1536,input=float32,pair=true,second_size=528", "3x1")
