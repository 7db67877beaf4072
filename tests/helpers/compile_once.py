"""A compiler for the whole run: what one test has compiled, no other compiles again."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

_SCRIPT = """#!/bin/sh
[ "$1" = -shared ] && [ -f kernel.cpp ] || exec {real} "$@"
{{ read -r arguments _ && read -r source _; }} <<END
$(printf '%s\\n' "$@" | sha256sum - kernel.cpp)
END
known={folder}/$arguments$source
[ -f "$known" ] && rm -f kernel.so && exec cp "$known" kernel.so
{real} "$@" || exit
ln kernel.so "$known" 2>/dev/null || {{ cp kernel.so "$known.$$" && mv "$known.$$" "$known"; }} || exit 0
"""
_NAME, _MARK = "g++", ".compiles-once"


def compile_once(folder: Path) -> None:
    """Put a g++ first on PATH that remembers in `folder` what it has built, by its arguments and the source."""
    real = shutil.which(_NAME)
    if real is None:
        return  # clang++ builds, without a memory
    programs, libraries = folder / "programs", folder / "libraries"
    programs.mkdir()
    libraries.mkdir()
    script = programs / _NAME
    script.write_text(_SCRIPT.format(real=real, folder=libraries))
    script.chmod(0o755)
    (programs / _MARK).touch()
    os.environ["PATH"] = f"{programs}{os.pathsep}{os.environ['PATH']}"


def path_of_the_machine() -> str:
    """PATH without that g++."""
    places = os.environ["PATH"].split(os.pathsep)
    return os.pathsep.join(place for place in places if not Path(place, _MARK).exists())
