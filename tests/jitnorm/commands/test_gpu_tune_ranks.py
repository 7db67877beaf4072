"""`jitnorm tune-comm` on GPUs: what it measures, and that calls follow it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from jitnorm.cli import app
from jitnorm.comm.choices import METHODS, device_name, read_choices

pytestmark = pytest.mark.gpu


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_it_measures_two_gpus(tmp_path: Path) -> None:
    table = tmp_path / "ranks.json"
    options = ("--ranks", "2", "--hidden-sizes", "1024", "--rows", "1,64,16384", "--formats", "none,nvfp4")
    result = CliRunner().invoke(app, ["tune-comm", *options, "--out", str(table)])
    assert result.exit_code == 0, result.output
    found = read_choices(table)
    assert [(each.device, each.ranks, each.code_bits) for each in found] == [
        (device_name(0), 2, 0),
        (device_name(0), 2, 4),
    ]
    for each in found:
        assert each.bytes == (2048, 64 * 2048, 16384 * 2048)
        assert each.times["one_shot"][-1] is None, "too much to send to all"
        measured = [time for method in METHODS for time in each.times[method] if time is not None]
        assert len(measured) == 8
        assert all(1 < time < 5000 for time in measured)
