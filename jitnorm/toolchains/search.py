"""Finds compilers. Uses only stat calls, because it runs before every first launch of a process.

A folder that cannot be entered counts as missing, as in a shell.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def on_sys_path(relative: str) -> Path | None:
    """The first ``<entry of sys.path>/relative`` that is a file."""
    candidates = (os.path.join(entry, relative) for entry in sys.path)
    return next((Path(path).absolute() for path in candidates if os.path.isfile(path)), None)


def on_path(program: str) -> Path | None:
    """The executable that the shell would start for ``program``, a name or a path."""
    if os.sep in program:
        return executable(Path(program))
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        found = executable(Path(folder, program))
        if found is not None:
            return found
    return None


def executable(path: Path) -> Path | None:
    """The absolute path if it is an executable file."""
    return path.absolute() if os.path.isfile(path) and os.access(path, os.X_OK) else None


def toolkit_roots() -> list[Path]:
    """CUDA toolkits named by the environment, in the order in which NVIDIA's own tools read the variables."""
    return [Path(root) for root in map(os.environ.get, ("CUDA_PATH", "CUDA_HOME")) if root]


def is_elf(path: Path) -> bool:
    """Whether the file is a binary program; false for scripts and for unreadable files."""
    try:
        with open(path, "rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False
