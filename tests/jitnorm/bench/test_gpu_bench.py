"""Benchmarks on a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from jitnorm.bench.cases import OPS, Op
from jitnorm.bench.measure import measure
from jitnorm.bench.results import read
from jitnorm.bench.tensors import Tensors
from jitnorm.bench.timing import copy_calls, graph_time
from jitnorm.cli import app

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_every_op_can_be_measured(op: Op) -> None:
    (row,) = measure(op, [(128, 4096)], {"jitnorm": op.make}, "cuda")
    assert 0.5 < row.time < 1e4
    assert 0.5 < row.copy < 1e3
    assert row.host > 0.5


def test_a_larger_copy_takes_longer() -> None:
    new = Tensors("cuda")
    small, large = (graph_time(copy_calls(count, new)) for count in (1 << 26, 1 << 28))
    assert 3 * small < large < 5 * small


def test_the_command_measures_the_gpu_and_says_what_with(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    arguments = ["bench", "--ops", "rmsnorm fp8", "--shapes", "1024x4096", "--json", str(path)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    found = read(path)
    assert found.setup.driver not in ("", "unknown")
    assert "cuda" in found.setup.versions
    assert {row.by for row in found.rows} >= {"jitnorm"}
    assert {row.by for row in found.rows} - {"jitnorm"} <= set(found.setup.versions)
