"""What a run has reached of the bars, over rows whose figures are known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bench_results import SETUP, measured

from jitnorm.bench.bars import BARS, Bar, Reached, reached
from jitnorm.bench.cases import OPS
from jitnorm.bench.peers import NAMES
from jitnorm.bench.report import bars_table, markdown
from jitnorm.bench.results import JITNORM, Results, Row


def found(group: str, figure: str, *rows: Row, by: str = JITNORM) -> Reached | None:
    fits = [each for each in reached(rows) if (each.bar.group, each.bar.figure, each.bar.by) == (group, figure, by)]
    return fits[0] if fits else None


def test_every_bar_is_of_ops_that_exist_and_of_somebody_who_can_be_measured() -> None:
    names = {op.name for op in OPS}
    for bar in BARS:
        assert set(bar.ops) <= names
        assert bar.by in (*NAMES, "better of both")


def test_a_roofline_is_judged_by_its_mean_and_its_worst_and_short_copies_do_not_count() -> None:
    rows = (measured("rmsnorm", JITNORM, 1024, 4096, 10.0, 10.0), measured("gemma", JITNORM, 1024, 4096, 10.0, 8.1),
            measured("rmsnorm", JITNORM, 1, 4096, 10.0, 1.0))  # fmt: skip
    norms = found("norms", "roofline", *rows)
    assert norms is not None
    assert (norms.count, norms.mean, norms.worst) == pytest.approx((2, 0.9, 0.81))
    assert norms.at == rows[1]
    assert norms.is_reached is False
    just = found("norms", "roofline", rows[0])
    assert just is not None
    assert just.is_reached is True


def test_a_speed_up_is_the_peers_time_over_jitnorms_at_the_same_shape() -> None:
    own, peer = (measured("fp8 token", by, 4096, 4096, time) for by, time in ((JITNORM, 2.0), ("torch.compile", 3.0)))
    other = measured("fp8 token", "torch.compile", 4096, 8192, 9.0)
    each = found("FP8, scales found", "speed-up", own, peer, other, by="torch.compile")
    assert each is not None
    assert (each.count, each.mean, each.is_reached) == (1, 1.5, True)


def test_few_rows_are_judged_by_microseconds_and_beside_the_better_library() -> None:
    norms = [measured("add_rmsnorm", by, 16, 7168, time, 1.5)
             for by, time in ((JITNORM, 2.2), ("flashinfer", 2.1), ("quack", 2.7))]  # fmt: skip
    over = found("M to 64", "us over copy", measured("add nvfp4", JITNORM, 16, 7168, 2.2, 1.5))
    beside = found("norms, M to 64", "speed-up", *norms, by="better of both")
    assert over is not None
    assert beside is not None
    assert (over.worst, over.is_reached) == (pytest.approx(0.7), False)
    assert (beside.worst, beside.is_reached) == (pytest.approx(2.1 / 2.2), False)


def test_a_bar_without_a_number_is_for_information_and_one_without_rows_is_left_out() -> None:
    (each,) = (each for each in reached([measured("rmsnorm", "quack", 1, 64, 1.0)]))
    assert (each.bar.group, each.bar.by, each.worst, each.is_reached) == ("host, M to 64", "quack", 5.0, None)
    assert reached([]) == []
    assert Reached(Bar("amax", "roofline", ("amax",), bool), 1, 1.0, 1.0, each.at).is_reached is None


def test_the_tables_can_be_read_as_markdown() -> None:
    rows = (measured("rmsnorm", JITNORM, 4096, 4096, 20.0, 19.0),)
    text = markdown(Results(SETUP, rows))
    assert "device NVIDIA H200" in text
    assert "| norms | roofline | jitnorm | 1 | 0.950 | 0.97 | 0.950 | 0.90 | no | rmsnorm | 4096x4096 |\n" in text
    assert "| rmsnorm | jitnorm | 1 | 0.950 | 0.950 | 4096x4096 |  |\n" in text
    assert len(bars_table(rows).rows) == 1


def test_bars_are_for_gpus() -> None:
    rows = (measured("rmsnorm", JITNORM, 4096, 4096, 20.0, 19.0),)
    text = markdown(Results(replace(SETUP, device="a processor", driver=""), rows))
    assert "| rmsnorm | jitnorm | 1 |" in text
    assert "reached" not in text
