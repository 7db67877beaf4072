"""Benchmarks on a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from jitnorm.bench import peers
from jitnorm.bench.cases import OPS
from jitnorm.bench.measure import measure
from jitnorm.bench.measured import Measured
from jitnorm.bench.results import read
from jitnorm.bench.tensors import Tensors
from jitnorm.bench.timing import copy_calls, graph_time
from jitnorm.bench.variants import VARIANTS
from jitnorm.cli import app

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_every_op_can_be_measured(op: Measured) -> None:
    hidden_size = 4096 // op.multiples[1] * op.multiples[1]
    (row,) = measure(op, [(128, hidden_size)], {"jitnorm": op.make}, "cuda")
    assert 0.5 < row.time < 1e4
    assert 0.5 < row.copy < 1e3
    assert row.host > 0.5


@pytest.mark.parametrize(("by", "op"), [(by, op) for by, makers in VARIANTS.items() for op in makers])
def test_every_variant_can_be_measured(by: str, op: str) -> None:
    (known,) = (each for each in OPS if each.name == op)
    (row,) = measure(known, [(16, 4096)], {by: VARIANTS[by][op]}, "cuda")
    assert 0.5 < row.time < 1e3


@pytest.mark.parametrize("name", ["rmsnorm", "add nvfp4"])
def test_what_torch_compile_makes_can_be_measured(name: str) -> None:
    (op,) = (each for each in OPS if each.name == name)
    (row,) = measure(op, [(128, 4096)], peers.makers(op, ["torch.compile"]), "cuda")
    assert 0.5 < row.time < 1e3


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
