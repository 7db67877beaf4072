"""Loads every kernel that an installed wheel lists, and runs one if they are for the CPU.

    python scripts/ask_wheel.py sm90a

For an environment without compilers: with JITNORM_JIT=deny, the exit status says whether the wheel is self-contained.
"""

from __future__ import annotations

import sys

from jitnorm.cache.readonly import open_read_only
from jitnorm.cache.wheels import wheel_folders
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.target import Target

import jitnorm
from jitnorm.launcher import launcher
from jitnorm.manager import load_or_build_kernel
from jitnorm.store import user_cache


def main(name: str) -> None:
    (wheel,) = (wheel for wheel in wheel_folders() if wheel.name == f"jitnorm-kernels-{name}")
    launcher()
    kernels = [entry.manifest for entry in open_read_only(wheel.path, name).entries() if "config" in entry.manifest]
    for kernel in kernels:
        config, target = KernelConfig.parse(kernel["config"]), Target(kernel["target"])
        if target.is_cpu:
            jitnorm.get_kernel(config, target)
        load_or_build_kernel(config, target, user_cache())
    if not kernels:
        sys.exit(f"error: {wheel.name} has no kernels")
    print(f"{wheel.name}: {len(kernels)} kernels, all found and verified")


if __name__ == "__main__":
    main(sys.argv[1])
