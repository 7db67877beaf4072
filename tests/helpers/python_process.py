"""Fresh Python processes, for behavior that one process can show only once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TIME_LIMIT = 120.0


def run_python(program: str, *arguments: str, cwd: Path, **environment: str) -> str:
    """Run a program and return its output; if it fails, so does the test, with all that it printed."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
    )
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout
