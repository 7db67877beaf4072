"""Requirements on a machine that loads host code built elsewhere."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from jitnorm.cache import Artifact

_GLIBC_SYMBOL = re.compile(rb"GLIBC_(\d+)\.(\d+)")


def requirements(payload: bytes, flags: Iterable[str], machine: str) -> dict[str, str]:
    """The requirements of a shared library for the host, for its manifest's ``requires``.

    Args:
        payload: the library.
        flags: the flags it was compiled with.
        machine: the machine it was compiled for, as in ``uname -m``.
    """
    from jitnorm.toolchains.cxx import LEVELS

    needed = {"machine": machine}
    versions = [(int(major), int(minor)) for major, minor in _GLIBC_SYMBOL.findall(payload)]
    if versions:
        needed["glibc"] = "{}.{}".format(*max(versions))
    given = set(flags)
    level = next((name for name, options in LEVELS.items() if given.issuperset(options)), None)
    if level is not None:
        needed["cpu"] = level
    return needed


def is_usable(artifact: Artifact) -> bool:
    """Whether this machine meets all requirements in an artifact's manifest."""
    requires = artifact.manifest.get("requires")
    if requires is None:
        return True
    return isinstance(requires, Mapping) and all(_has(name, str(value)) for name, value in requires.items())


def unmet(artifact: Artifact) -> str:
    """The requirements in an artifact's manifest that this machine does not meet, in words; empty if none."""
    if is_usable(artifact):
        return ""
    requires = artifact.manifest["requires"]
    if not isinstance(requires, Mapping):
        return "something unnamed in its manifest"
    return ", ".join(f"{name} {value}" for name, value in requires.items() if not _has(name, str(value)))


def _has(name: str, value: str) -> bool:
    if name == "machine":
        return value == os.uname().machine
    if name == "glibc":
        return _version(value) <= _glibc()
    if name == "cpu":
        from jitnorm.toolchains.cxx import LEVELS, processor_has

        return value in LEVELS and processor_has(value)
    return False  # an unknown requirement is never met


@lru_cache(maxsize=1)
def _glibc() -> tuple[int, ...]:
    """The version of glibc; with another C library empty, and so below every other."""
    try:
        library, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (OSError, ValueError):
        return ()
    return _version(version) if library == "glibc" else ()


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d{1,9}", text)))  # accepts any text; longer numbers are no version
