"""Inventory of the toolchains on this machine, for display."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from jitnorm.kernels.target import TARGET_NAMES, Target
from jitnorm.toolchains import TOOLCHAIN_NAMES, toolchain_class
from jitnorm.toolchains.identity import MemoFolder
from jitnorm.toolchains.nvrtc_library import installed_libraries


@dataclass(frozen=True)
class Installation:
    """One toolchain on this machine.

    Attributes:
        name: the toolchain.
        available: whether it can be used.
        identity: its version and build; empty if it is not available.
        location: its file or folder; None if it is not available.
        remedy: the problem and how to fix it; empty if it is available.
        targets: the targets that it builds for; none if it is not available.
    """

    name: str
    available: bool
    identity: str = ""
    location: Path | None = None
    remedy: str = ""
    targets: tuple[str, ...] = ()


def installed(memo_dir: MemoFolder | None = None) -> list[Installation]:
    """Inspect every toolchain; never raises for a missing or broken one."""
    return [_inspect(name, memo_dir) for name in TOOLCHAIN_NAMES]


def _inspect(name: str, memo_dir: MemoFolder | None) -> Installation:
    try:
        toolchain = toolchain_class(name)(memo_dir)
        return Installation(name, True, toolchain.identity(), toolchain.location, targets=_targets(name))
    except (RuntimeError, OSError, ValueError) as error:
        return Installation(name, False, remedy=str(error))


def _targets(name: str) -> tuple[str, ...]:
    if name in ("cxx", "zig"):
        is_passed_over = name == "zig" and os.environ.get("CXX")  # an explicitly named compiler is never replaced
        return () if is_passed_over else ("cpu",)
    libraries = installed_libraries() if name == "nvrtc" else None
    for_cuda = [target for target in map(Target, TARGET_NAMES) if not target.is_cpu]
    return tuple(
        target.name for target in for_cuda if libraries is None or any(each.builds_for(target) for each in libraries)
    )
