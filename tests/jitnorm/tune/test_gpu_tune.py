"""Tuning on a GPU: every schedule writes the bytes of the rules', and the fastest is found and used."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from jitnorm import tuning
from jitnorm.cli import app
from jitnorm.commands.tune import target_here
from jitnorm.tune.cases import USUAL_OPS, plan
from jitnorm.tune.meter import DeviceMeter
from jitnorm.tune.table import read_table
from jitnorm.tuning import user_table

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _own_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(tuning, "user_file", lambda target: tmp_path / f"{target}.json")
    user_table.cache_clear()
    yield
    user_table.cache_clear()


# Only with more rows than blocks that stay does one of these have several. Rows of 24576 fill 48 KiB of shared memory,
# all that a launch gets unasked, which their sums exceed.
SEVERAL = [
    ("rmsnorm fp8", 16384),
    ("add nvfp4", 4096),
    ("rmsnorm mxfp8", 8192),
    ("rmsnorm", 24576),
    ("rmsnorm mxfp4", 32768),
]
# In clusters; of 15872 elements, the last block of some has an idle warp.
FEWEST = [
    ("add nvfp4", 16384),
    ("add_rmsnorm", 4096),
    ("rmsnorm", 15872),
    ("layernorm fp8", 15872),
    ("rmsnorm silu nvfp4", 15872),
    ("silu fp8 token", 15872),
    ("mhc 4", 9728),
    ("sandwich nvfp4", 28672),
]
CASES = [
    *((op, 4096, "few") for op in USUAL_OPS),
    *((*each, "several") for each in SEVERAL),
    *((*each, "fewest") for each in FEWEST),
]


@pytest.mark.parametrize(("op", "hidden_size", "row_class"), CASES)
def test_every_schedule_writes_the_same_bytes(op: str, hidden_size: int, row_class: str) -> None:
    (case,) = (
        each for each in plan([op], [hidden_size], [row_class], target_here()).cases if each.row_class == row_class
    )
    meter = DeviceMeter(case, target_here(), "nvrtc")
    assert [c.schedule for c in case.configs if not meter.is_same(case.config, c)] == []


def test_times_are_plausible() -> None:
    (case,) = plan(["add nvfp4"], [4096], ["usual"], target_here()).cases
    meter = DeviceMeter(case, target_here(), "nvrtc")
    for times in (meter.time(case.config), meter.copy()):
        assert len(times) == len(case.rows)
        assert all(0.5 < time < 1e3 for time in times)


def test_the_command_measures_and_stores(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    arguments = [
        "tune",
        "--ops",
        "layernorm",
        "--hidden-sizes",
        "4096",
        "--row-classes",
        "few,usual",
        "--out",
        str(out),
    ]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "3 cases measured" in result.stdout
    assert read_table(out).target == str(target_here())
