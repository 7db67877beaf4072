"""What this machine has of all that jitnorm uses."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import jitnorm
from jitnorm.commands.attempt import attempt
from jitnorm.commands.doctor_cache import (
    CacheState,
    MissState,
    SigningState,
    TierState,
    cache_state,
    miss_state,
    signing_state,
    tier_states,
    wheel_states,
)
from jitnorm.commands.doctor_variables import Variable, variables
from jitnorm.kernels.target import TARGET_NAMES, Target
from jitnorm.launcher import launcher
from jitnorm.store import memo_folder, user_store
from jitnorm.toolchains.inventory import Installation, installed
from jitnorm.wheel.describe import WheelDescription

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
        tiers: all places where kernels are looked up, in their order, the cache folder among them.
        wheels: what each wheel among them serves here.
        signing: the keys of signatures.
        misses: what a miss means, and the record of misses.
        variables: all that jitnorm reads, and those that look as if it did.
        frameworks: whose tensors the ops take.
        schema: raised when a field of this report is removed or changes its meaning.
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
    tiers: tuple[TierState, ...]
    wheels: tuple[WheelDescription, ...]
    signing: SigningState
    misses: MissState
    variables: tuple[Variable, ...]
    frameworks: tuple[Framework, ...]
    schema: int = 1

    @property
    def can_build(self) -> bool:
        """Whether a kernel can be built and loaded for at least one target."""
        return bool(self.targets) and not self.launcher_problem


def examine() -> Report:
    """Look at this machine; builds the launcher if it is not cached, and never raises for what is missing."""
    _, launcher_problem = attempt(launcher)
    store, cache_problem = attempt(user_store)
    toolchains = tuple(installed(memo_folder(store) if store else None))
    driver, driver_problem = attempt(_driver_version)
    gpus, _ = attempt(_gpus)
    cache = cache_state(store, cache_problem)
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
        tiers=tier_states(store, cache),
        wheels=wheel_states(),
        signing=signing_state(),
        misses=miss_state(store),
        variables=variables(),
        frameworks=tuple(_framework(*each) for each in _FRAMEWORKS),
    )


def _driver_version() -> str:
    number = launcher().driver_version()
    return f"CUDA {number // 1000}.{number % 1000 // 10}"


def _gpus() -> tuple[Gpu, ...]:
    return tuple(map(_gpu, range(launcher().device_count())))


def _gpu(ordinal: int) -> Gpu:
    major, minor = launcher().device_capability(ordinal)
    target, problem = attempt(lambda: str(Target.of_capability(major, minor)))
    return Gpu(ordinal, launcher().device_name(ordinal), f"{major}.{minor}", target or "", problem)


def _buildable(toolchains: set[str]) -> tuple[str, ...]:
    needed = {name: {"cxx"} if Target(name).is_cpu else {"nvrtc", "nvcc", "cute"} for name in TARGET_NAMES}
    return tuple(name for name in TARGET_NAMES if needed[name] & toolchains)


def _framework(name: str, distributions: tuple[str, ...], remedy: str) -> Framework:
    for distribution in distributions:
        try:
            return Framework(name, version(distribution), "")
        except PackageNotFoundError:
            continue
    return Framework(name, "", remedy)
