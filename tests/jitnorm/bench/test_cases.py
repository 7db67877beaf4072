"""What can be measured runs, and the shapes that an op does not take are left out."""

from __future__ import annotations

import pytest

from jitnorm.bench import peers
from jitnorm.bench.cases import OPS, Op, ops_named
from jitnorm.bench.measure import measure
from jitnorm.bench.shapes import Shapes
from jitnorm.bench.tensors import Tensors


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_every_op_runs_at_the_smallest_shape_that_it_says_it_takes(op: Op) -> None:
    op.make(Tensors("cpu"), *op.multiples)()


@pytest.mark.parametrize("op", [op for op in OPS if op.multiples != (1, 1)], ids=lambda op: op.name)
def test_shapes_that_an_op_does_not_take_are_left_out(op: Op) -> None:
    m, h = op.multiples
    taken, others = (2 * m, 3 * h), ((2 * m, h + 1), (m + 1, h))
    shapes = (taken, *(shape for shape in others if shape[0] % m or shape[1] % h))
    assert op.shapes(Shapes(shapes, shapes)) == [taken]


def test_ops_on_large_tensors_only_have_shapes_of_their_own() -> None:
    shapes = Shapes(((1, 4096),), ((64, 8192),))
    assert {op.shapes(shapes)[0] for op in OPS if op.only_large} == {(64, 8192)}
    assert {op.shapes(shapes)[0] for op in OPS if not op.only_large} == {(1, 4096)}


def test_names_are_unique_and_a_part_of_a_name_chooses() -> None:
    assert len({op.name for op in OPS}) == len(OPS)
    assert ops_named([]) == list(OPS)
    assert {op.name for op in ops_named(["decode", "mhc 4"])} == {"decode nvfp4", "decode mxfp8", "mhc 4"}
    with pytest.raises(ValueError, match=r"ops: 'softmax' is in no op's name; these are rmsnorm, add_rmsnorm"):
        ops_named(["rmsnorm", "softmax"])


def test_peers_offer_some_of_the_ops() -> None:
    names = {op.name for op in OPS}
    for offered in peers._OPS.values():
        assert set(offered) <= names
    rmsnorm, amax = OPS[0], OPS[-1]
    assert list(peers.makers(rmsnorm, ["jitnorm", "flashinfer", "quack"])) == ["jitnorm", "flashinfer", "quack"]
    assert list(peers.makers(amax, ["jitnorm", "flashinfer", "quack"])) == ["jitnorm"]
    assert list(peers.makers(rmsnorm, ["flashinfer"])) == ["flashinfer"]


def test_measuring_gives_a_row_for_each_shape_and_library_beside_one_copy() -> None:
    op = OPS[0]
    rows = list(measure(op, [(2, 64), (3, 128)], {"jitnorm": op.make, "again": op.make}, "cpu"))
    assert [(row.by, row.shape) for row in rows] == [
        ("jitnorm", (2, 64)), ("again", (2, 64)), ("jitnorm", (3, 128)), ("again", (3, 128)),
    ]  # fmt: skip
    assert rows[0].copy == rows[1].copy
    assert all(row.op_bytes == 4 * row.rows * row.hidden_size for row in rows)
    assert all(0 < time < 1e6 for row in rows for time in (row.time, row.copy, row.host))
