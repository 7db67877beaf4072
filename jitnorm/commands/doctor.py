"""What this machine has of all that jitnorm uses."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TypeVar

import jitnorm
from jitnorm.cache import Store
from jitnorm.kernels.target import TARGET_NAMES, Target
from jitnorm.launcher import launcher
from jitnorm.store import memo_folder, user_store
from jitnorm.toolchains.inventory import Installation, installed

T = TypeVar("T")

# A framework, the distributions that it comes in and how to get it.
_FRAMEWORKS = (
    ("NumPy", ("numpy",), "pip install numpy"),
    ("torch", ("torch",), "pip install torch"),
    ("JAX", ("jax",), "pip install jax"),
    ("CuPy", ("cupy-cuda13x", "cupy-cuda12x", "cupy"), "pip install cupy-cuda13x"),
)


@dataclass(frozen=True)
class Framework:
    """An array framework; `version` is empty if it is not installed, and `remedy` if it is."""

    name: str
    version: str
    remedy: str


@dataclass(frozen=True)
class Gpu:
    """A GPU; `target` is empty and `problem` says why if it is not supported."""

    ordinal: int
    name: str
    capability: str
    target: str
    problem: str


@dataclass(frozen=True)
class CacheState:
    """The cache folder; `problem` says why it cannot be used, with the remedy, and is empty if it can."""

    path: str
    is_writable: bool
    trust: str
    entries: int
    payload_bytes: int
    problem: str


@dataclass(frozen=True)
class Report:
    """All that the doctor found.

    Attributes:
        jitnorm: its version.
        python: the interpreter's version.
        tvm_ffi: version of TVM-FFI.
        launcher_problem: why the launcher cannot be had; empty if it is ready.
        driver: version of CUDA that the driver supports; empty if there is none.
        driver_problem: why there is no driver; empty if there is.
        gpus: all of them.
        toolchains: all that jitnorm can use, present or not.
        targets: what kernels can be built for here.
        cache: the cache folder.
        frameworks: whose tensors the ops take.
    """

    jitnorm: str
    python: str
    tvm_ffi: str
    launcher_problem: str
    driver: str
    driver_problem: str
    gpus: tuple[Gpu, ...]
    toolchains: tuple[Installation, ...]
    targets: tuple[str, ...]
    cache: CacheState
    frameworks: tuple[Framework, ...]

    @property
    def can_build(self) -> bool:
        """Whether a kernel can be built and loaded for at least one target."""
        return bool(self.targets) and not self.launcher_problem


def examine() -> Report:
    """Look at this machine; builds the launcher if it is not cached, and never raises for what is missing."""
    _, launcher_problem = _attempt(launcher)
    store, cache = _open_cache()
    toolchains = tuple(installed(memo_folder(store) if store else None))
    driver, driver_problem = _attempt(_driver_version)
    gpus, _ = _attempt(_gpus)
    return Report(
        jitnorm=jitnorm.__version__,
        python=platform.python_version(),
        tvm_ffi=version("apache-tvm-ffi"),
        launcher_problem=launcher_problem,
        driver=driver or "",
        driver_problem="not asked, for want of the launcher" if launcher_problem else driver_problem,
        gpus=gpus or (),
        toolchains=toolchains,
        targets=_buildable({each.name for each in toolchains if each.available}),
        cache=cache,
        frameworks=tuple(_framework(*each) for each in _FRAMEWORKS),
    )


def _attempt(ask: Callable[[], T]) -> tuple[T | None, str]:
    """The answer and no problem, or no answer and the problem."""
    try:
        return ask(), ""
    except (RuntimeError, ValueError, OSError) as error:
        return None, str(error)


def _driver_version() -> str:
    number = launcher().driver_version()
    return f"CUDA {number // 1000}.{number % 1000 // 10}"


def _gpus() -> tuple[Gpu, ...]:
    return tuple(map(_gpu, range(launcher().device_count())))


def _gpu(ordinal: int) -> Gpu:
    major, minor = launcher().device_capability(ordinal)
    target, problem = _attempt(lambda: str(Target.of_capability(major, minor)))
    return Gpu(ordinal, launcher().device_name(ordinal), f"{major}.{minor}", target or "", problem)


def _buildable(toolchains: set[str]) -> tuple[str, ...]:
    needed = {name: {"cxx"} if Target(name).is_cpu else {"nvrtc", "nvcc"} for name in TARGET_NAMES}
    return tuple(name for name in TARGET_NAMES if needed[name] & toolchains)


def _open_cache() -> tuple[Store | None, CacheState]:
    trust = os.environ.get("JITNORM_CACHE_TRUST") or "owner only"
    store, problem = _attempt(user_store)
    if store is None:
        from jitnorm.cache import default_root

        return None, CacheState(str(default_root()), False, trust, 0, 0, problem)
    sizes = [entry.payload_size for entry in store.entries()]
    problem = "" if store.writable else "nothing can be stored; set JITNORM_CACHE_DIR to a folder you can write to"
    return store, CacheState(str(store.layout.root), store.writable, trust, len(sizes), sum(sizes), problem)


def _framework(name: str, distributions: tuple[str, ...], remedy: str) -> Framework:
    for distribution in distributions:
        try:
            return Framework(name, version(distribution), "")
        except PackageNotFoundError:
            continue
    return Framework(name, "", remedy)
