from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import json, sys, time
from pathlib import Path
from jitnorm.cache import Store
from jitnorm.kernels.target import Target
from jitnorm.store import MemoFolder
from jitnorm.toolchains import select
target, memo_dir = Target(sys.argv[1]), MemoFolder(Store(Path(sys.argv[2])))
toolchain = select(target, memo_dir=memo_dir)
print(json.dumps([toolchain.identity(), toolchain.flags(target), sorted(sys.modules)]))
"""
HEAVY = {"cuda", "subprocess", "tempfile", "shutil", "ctypes", "importlib.metadata", "numpy", "filelock"}


def describe(target: str, memo_dir: Path) -> tuple[str, list[str], set[str]]:
    command = [sys.executable, "-c", PROGRAM, target, str(memo_dir)]
    answer = subprocess.run(command, check=True, capture_output=True, timeout=120).stdout
    identity, flags, modules = json.loads(answer)
    return identity, flags, set(modules)


@pytest.mark.parametrize("target", ["sm_90a", "cpu"])
def test_a_warm_process_learns_the_identity_without_heavy_modules(target: str, tmp_path: Path) -> None:
    cold = describe(target, tmp_path)
    warm = describe(target, tmp_path)
    assert warm[:2] == cold[:2]
    assert cold[2] & HEAVY  # the probe did need them
    assert not warm[2] & HEAVY
