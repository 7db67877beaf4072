"""Kernels of the CPU target leave no descriptor open, and are never mistaken for another."""

from __future__ import annotations

from pathlib import Path

import pytest
from python_process import run_python

# What one process builds and another loads.
BUILT = """
from jitnorm import manager
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.target import Target
from jitnorm.launcher import launcher, load_launcher
from jitnorm.store import user_cache

def built(size):
    config = KernelConfig("rmsnorm", size, "float16")
    artifact = manager.load_or_build_kernel(config, Target("cpu"), user_cache())
    return artifact.manifest["recipe"], artifact.payload
"""

MANY_KERNELS = f"""{BUILT}
import os, resource
import numpy as np

SIZES, ROUNDS, LIMIT = (32, 40, 64, 96), 40, 64
artifacts = {{size: built(size) for size in SIZES}}
launchers = launcher(), load_launcher(user_cache())
before = len(os.listdir("/proc/self/fd"))
resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT))
kernels = [(size, each.load_kernel(*artifacts[size])) for _ in range(ROUNDS) for each in launchers for size in SIZES]
assert len(os.listdir("/proc/self/fd")) == before
assert len(kernels) > 4 * LIMIT
for size, kernel in kernels:
    x, out = np.full((2, size), 3, np.float16), np.zeros((2, size), np.float16)
    kernel(x, np.full(size, size, np.float16), out, 0.0)
    assert (out == size).all()
print(sum(line.endswith("/memfd:jitnorm (deleted)\\n") for line in open("/proc/self/maps")) / len(kernels))
"""

NO_DESCRIPTOR_LEFT = f"""{BUILT}
import os, resource

load, kernel = launcher().load_kernel, built(64)
highest = max(map(int, os.listdir("/proc/self/fd")))
for limit in highest + 1, highest:
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, highest + 1))
    try:
        load(*kernel)
    except RuntimeError as error:
        print(error)
"""

# Leaves this process alone without /proc, in a namespace where it may mount. Such are made before there are threads.
WITHOUT_PROC = f"""
import ctypes, os, pathlib

libc, user, group = ctypes.CDLL(None), os.getuid(), os.getgid()
is_allowed = libc.unshare(0x10020000) == 0
if is_allowed:
    for name, text in ("setgroups", "deny"), ("uid_map", f"{{user}} {{user}} 1"), ("gid_map", f"{{group}} {{group}} 1"):
        pathlib.Path("/proc/self", name).write_text(text)

def hide_proc():
    if not is_allowed or libc.mount(b"none", b"/proc", b"tmpfs", 0, None) != 0:
        raise SystemExit(print("not allowed"))

def tell(call, *arguments):
    try:
        call(*arguments)
    except RuntimeError as error:
        print(error)
{BUILT}
"""

LAUNCHER_WITHOUT_PROC = f"""{WITHOUT_PROC}
import numpy as np
import jitnorm

built(64), launcher()
launcher.cache_clear()
hide_proc()
tell(jitnorm.rmsnorm, np.ones((2, 64), np.float16), np.ones(64, np.float16))
tell(jitnorm.get_kernel, "rmsnorm:hidden_size=64,input=float16")
"""

KERNEL_WITHOUT_PROC = f"""{WITHOUT_PROC}
kernel, load = built(64), launcher().load_kernel
hide_proc()
tell(load, *kernel)
"""


def test_more_kernels_than_descriptors_are_loaded_and_each_is_its_own(tmp_path: Path) -> None:
    mappings = float(run_python(MANY_KERNELS, cwd=tmp_path))
    assert mappings <= 5


def test_an_error_says_what_the_system_says(tmp_path: Path) -> None:
    assert run_python(NO_DESCRIPTOR_LEFT, cwd=tmp_path).splitlines() == [
        "cannot load the kernel: cannot open shared object file: Too many open files",
        "cannot load the kernel: memfd_create: Too many open files",
    ]


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (LAUNCHER_WITHOUT_PROC, ["cannot load the launcher: /proc is not mounted"] * 2),
        (KERNEL_WITHOUT_PROC, ["cannot load the kernel: /proc is not mounted"]),
    ],
    ids=["launcher", "kernel"],
)
def test_a_system_without_proc_is_told_what_is_missing(program: str, said: list[str], tmp_path: Path) -> None:
    lines = run_python(program, cwd=tmp_path).splitlines()
    if lines == ["not allowed"]:
        pytest.skip("processes may not mount in a namespace of their own here")
    assert [line.partition(",")[0] for line in lines] == said
