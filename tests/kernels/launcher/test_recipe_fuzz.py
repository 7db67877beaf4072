"""No mutated launch recipe crashes the launcher, neither when it is read nor when calls are checked against it.

By hand for longer: JITNORM_FUZZ_MUTATIONS=20000 JITNORM_FUZZ_SEED=7 pytest tests/kernels/launcher/test_recipe_fuzz.py
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import recipe_fuzzer

MUTATIONS = os.environ.get("JITNORM_FUZZ_MUTATIONS", "2000")
SEED = os.environ.get("JITNORM_FUZZ_SEED", "0")


def test_a_mutated_recipe_is_refused_or_checks_calls(tmp_path: Path) -> None:
    last = tmp_path / "last.json"
    command = [sys.executable, recipe_fuzzer.__file__, MUTATIONS, SEED, str(last)]
    seconds = 120 + int(MUTATIONS) / 20
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=seconds)
    recipe = last.read_text() if last.exists() else "none"
    assert done.returncode == 0, f"exit status {done.returncode}, seed {SEED}\n{done.stderr}\nrecipe: {recipe}"
    mutations, accepted = map(int, done.stdout.replace(",", "").split()[::2])
    assert mutations == int(MUTATIONS)
    assert mutations // 20 < accepted < mutations // 2, "most are refused, and many get as far as calls"
