"""What can be measured runs, and the shapes that an op does not take are left out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jitnorm.bench import peers, timing
from jitnorm.bench.calls import Call
from jitnorm.bench.cases import OPS, op_named, ops_named
from jitnorm.bench.measure import copy_time, measure
from jitnorm.bench.measured import Measured
from jitnorm.bench.more_cases import MORE_OPS
from jitnorm.bench.shapes import NAMED, Shapes
from jitnorm.bench.tensors import Tensors
from jitnorm.bench.variants import VARIANTS


@pytest.mark.usefixtures("unoptimized")
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_every_op_runs_at_the_smallest_shape_that_it_says_it_takes(op: Measured) -> None:
    op.make(Tensors("cpu"), *op.multiples)()


@pytest.mark.parametrize("op", [op for op in OPS if op.multiples != (1, 1)], ids=lambda op: op.name)
def test_shapes_that_an_op_does_not_take_are_left_out(op: Measured) -> None:
    m, h = op.multiples
    taken, others = (2 * m, 3 * h), ((2 * m, h + 1), (m + 1, h))
    shapes = (taken, *(shape for shape in others if shape[0] % m or shape[1] % h))
    assert op.shapes(Shapes(shapes, shapes)) == [taken]


@pytest.mark.parametrize(
    ("name", "count"), [("rmsnorm", 4), ("add fp8 128", 7), ("rmsnorm backward", 6), ("add backward", 8)]
)
def test_the_bytes_of_an_element_are_those_of_the_tensors_that_grow_with_both_extents(name: str, count: float) -> None:
    (op,) = ops_named([name])[:1]
    assert op.bytes_per_element == pytest.approx(count, rel=0.01)


def test_a_row_of_heads_reads_the_angles_of_its_token_and_its_places_once() -> None:
    for name, places in (("rope", 1), ("qk_rmsnorm_rope cache fp8", 2)):
        op = op_named(name)
        assert op.bytes_at(3, 512) - op.bytes_at(2, 512) == 512 * op.bytes_per_element + 2 * 128 + 8 * places


def test_ops_on_large_tensors_only_have_shapes_of_their_own() -> None:
    shapes = Shapes(((1, 4096),), ((64, 8192),))
    assert {shape for op in OPS if op.only_large for shape in op.shapes(shapes)} == {(64, 8192)}
    assert {shape for op in OPS if not op.only_large for shape in op.shapes(shapes)} == {(1, 4096)}


def test_names_are_unique_and_a_name_or_a_part_of_it_chooses() -> None:
    known = [*OPS, *MORE_OPS]
    assert len({op.name for op in known}) == len(known)
    assert ops_named([]) == list(OPS)
    assert {op.name for op in ops_named(["decode nv", "mhc 4"])} == {"decode nvfp4", "mhc 4"}
    names = [op.name for op in ops_named(["rmsnorm", "nvfp4 by r"])]
    assert names == ["rmsnorm", "nvfp4 by row"]
    with pytest.raises(ValueError, match=r"ops: 'softmax' matches no op; the names are rmsnorm, gemma, add_rmsnorm"):
        ops_named(["rmsnorm", "softmax"])


def test_more_ops_are_chosen_by_their_full_names_alone() -> None:
    assert [op.name for op in ops_named(["f32"])] == ["decode mxfp8 f32"]
    assert [op.name for op in ops_named(["fp8 token f32", "fp8 token by 2"])] == ["fp8 token f32", "fp8 token by 2"]


@pytest.mark.parametrize("count", [8, 2])
def test_inputs_of_unaligned_ops_lie_at_addresses_of_no_more(count: int) -> None:
    inputs = op_named(f"layernorm fp8 by {count}").make(Tensors("cpu"), 3, 64).keywords["input"]
    assert {row.data_ptr() % 16 for row in inputs} == {count}


def test_peers_offer_some_of_the_ops() -> None:
    names = {op.name for op in OPS}
    for offered in peers.OPS_OF.values():
        assert set(offered) <= names
    rmsnorm, amax = OPS[0], OPS[-1]
    assert list(peers.makers(rmsnorm, ["jitnorm", "flashinfer", "quack"])) == ["jitnorm", "flashinfer", "quack"]
    assert list(peers.makers(amax, ["jitnorm", "flashinfer", "quack"])) == ["jitnorm"]
    assert list(peers.makers(rmsnorm, ["flashinfer"])) == ["flashinfer"]


@pytest.mark.parametrize(
    ("by", "op"),
    [
        ("unfused", "rmsnorm nvfp4"),
        ("unfused", "add nvfp4"),
        *((by, op) for by in ("no-pdl", "allocating", "handle") for op in VARIANTS[by]),
    ],
)
def test_jitnorm_can_be_called_in_other_ways(by: str, op: str) -> None:
    VARIANTS[by][op](Tensors("cpu"), 2, 64)()


def test_few_rows_alone_are_measured_where_the_op_says_so() -> None:
    (op,) = ops_named(["chain"])
    assert op.shapes(NAMED["anchors"]) == [(1, 4096), (16, 7168)]


def test_measuring_gives_a_row_for_each_shape_and_library_beside_one_copy() -> None:
    op = OPS[0]
    rows = list(measure(op, [(2, 64), (3, 128)], {"jitnorm": op.make, "again": op.make}, "cpu"))
    assert [(row.by, row.shape) for row in rows] == [
        ("jitnorm", (2, 64)), ("again", (2, 64)), ("jitnorm", (3, 128)), ("again", (3, 128)),
    ]  # fmt: skip
    assert rows[0].copy == rows[1].copy
    assert all(row.op_bytes == 4 * row.rows * row.hidden_size for row in rows)
    assert all(0 < time < 1e6 for row in rows for time in (row.time, row.copy, row.host))


@pytest.fixture
def timer(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Device time that is the number of buffers, and a list of how many were timed."""
    timed: list[int] = []

    def device_time(calls: list[Call], device: str) -> float:
        timed.append(len(calls))
        return float(len(calls))

    monkeypatch.setattr(timing, "device_time", device_time)
    copy_time.cache_clear()
    return timed


def test_a_copy_is_measured_once_for_all_that_move_as_many_bytes(timer: list[int]) -> None:
    op = replace(OPS[0], make=lambda new, m, h: lambda: None)
    rows = list(measure(op, [(1, 1 << 24), (2, 1 << 23)], {"jitnorm": op.make}, "cpu"))
    assert timer == [4, 4, 4]
    assert [row.roofline for row in rows] == [1.0, 1.0]


def test_what_the_memory_is_too_small_for_and_who_fails_is_left_out(
    timer: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Call:
        raise TypeError("no such shape\nand more")

    op = replace(OPS[0], make=lambda new, m, h: lambda: None)
    monkeypatch.setattr(timing, "memory", lambda device: 4e9)
    left_out: list[str] = []
    rows = list(measure(op, [(2, 64), (1 << 20, 512)], {"quack": fail, "jitnorm": op.make}, "cpu", left_out.append))
    assert [(row.by, row.shape) for row in rows] == [("jitnorm", (2, 64))]
    assert left_out == ["rmsnorm at 2x64 by quack: TypeError: no such shape", "rmsnorm at 1048576x512: takes 6 GB"]
    with pytest.raises(TypeError, match="no such shape"):
        list(measure(op, [(2, 64)], {"jitnorm": fail}, "cpu", left_out.append))


def test_graphs_of_long_calls_are_short() -> None:
    for estimate, buffers, calls in ((1.5, 24, 24), (1.5, 1, 20), (125.0, 1, 20), (500.0, 2, 6), (1e4, 1, 1)):
        assert timing.rounds_of(estimate, buffers) * buffers == calls
