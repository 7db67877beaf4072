"""A C++ compiler that runs something first, for tests of what happens around compilations."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path


def fake_cxx(folder: Path, before: str) -> Path:
    """A script that runs shell commands before each compilation, with the source's name in ``$source``."""
    real = shutil.which("g++") or shutil.which("clang++")
    assert real, "the tests need a C++ compiler"
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "g++"
    script.write_text(
        "#!/bin/sh\n"
        'for argument in "$@"; do case "$argument" in *.cc|*.cpp) source=$argument ;; esac; done\n'
        f'if [ -n "$source" ]; then\n{before}\nfi\nexec {real} "$@"\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return script
