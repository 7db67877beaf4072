"""scripts/peer_suites runs every test of a peer, also behind one that ends its process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parents[2] / "scripts" / "peer_suites"
SUITE = """
import os
import pytest
import torch
from sgl_kernel import rmsnorm, gelu_of_another_world


def test_norm():
    assert rmsnorm.__module__.startswith("jitnorm.")
    assert torch.ones(2, device="cuda").sum() == 2


def test_absent():
    gelu_of_another_world(1)


@pytest.mark.parametrize("i", range(4))
def test_that_ends_its_process(i):
    os._exit(1)


def test_skipped():
    pytest.skip("not today")
"""


def test_all_tests_are_run_and_failures_have_reasons(tmp_path: Path) -> None:
    suite, report = tmp_path / "sgl-kernel" / "tests" / "test_norm.py", tmp_path / "report.md"
    suite.parent.mkdir(parents=True)
    suite.write_text(SUITE)
    command = [sys.executable, str(PROGRAM), "sglang", str(tmp_path), "--files", "test_norm", "--report", str(report)]
    done = subprocess.run([*command, "--tests", "4"], capture_output=True, text=True, timeout=300, check=True)
    assert "| all of 4 | 1 | 2 | 1 |" in done.stdout
    text = report.read_text()
    assert "| 1 | failed test_absent: not_here.NotHereError: sgl_kernel.gelu_of_another_world |" in text
    assert text.count("]: did not end\n") == 1
