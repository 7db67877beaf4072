"""A compiler shared by the whole run: no two tests compile the same source."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from jitnorm.toolchains.search import on_sys_path

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
# The name under which clang is on PATH that the package `ziglang` contains.
ZIGS_CLANG = "clang-of-zig"
_MARK = ".compiles-once"


def compile_once(folder: Path) -> None:
    """Put compilers first on PATH that cache their results in `folder`, by their arguments and the source."""
    programs = folder / "programs"
    programs.mkdir()
    if real := shutil.which("g++"):  # else clang++ builds, without a memory
        _remember(programs / "g++", real, folder / "libraries")
    if zig := on_sys_path("ziglang/zig"):
        clang = f"{zig} clang --target={os.uname().machine}-linux-gnu"
        _remember(programs / ZIGS_CLANG, clang, folder / "libraries-of-clang")
    (programs / _MARK).touch()
    os.environ["PATH"] = f"{programs}{os.pathsep}{os.environ['PATH']}"


def _remember(script: Path, real: str, libraries: Path) -> None:
    libraries.mkdir()
    script.write_text(_SCRIPT.format(real=real, folder=libraries))
    script.chmod(0o755)


def path_of_the_machine() -> str:
    """PATH without the caching compilers."""
    places = os.environ["PATH"].split(os.pathsep)
    return os.pathsep.join(place for place in places if not Path(place, _MARK).exists())
