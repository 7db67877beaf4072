"""docs/parallel.md has what the model of links predicts, which is near what was measured."""

from __future__ import annotations

import parallel_model as model
import pytest


def test_the_page_has_the_tables() -> None:
    present = model.PAGE.read_text(encoding="utf-8")
    assert model.page(present) == present, "run scripts/parallel_model.py"


@pytest.mark.parametrize("rows", model.ROWS)
def test_two_gpus_read_each_other_as_the_model_says(rows: int) -> None:
    assert model.trip(model.MACHINES[0], model.matrix(rows)) == pytest.approx(model.READS[rows], rel=0.08)


@pytest.mark.parametrize("rows", model.ROWS)
def test_what_links_allow_is_less_than_what_was_measured(rows: int) -> None:
    assert 0.8 * model.TWO_SHOT[rows] < model.two_shot(model.MACHINES[0], rows, 1) < model.TWO_SHOT[rows]


def test_more_ranks_take_longer_and_faster_links_less() -> None:
    two, four, eight, faster = (model.Machine("", ranks, links) for ranks, links in ((2, 1), (4, 1), (8, 1), (8, 2)))
    for rows in model.ROWS:
        assert model.one_shot(two, rows) < model.one_shot(four, rows) < model.one_shot(eight, rows)
        assert model.one_shot(faster, rows) < model.one_shot(eight, rows)
        assert model.two_shot(eight, rows, 0.5) < model.two_shot(eight, rows, 1)
