"""`jitnorm doctor`: what jitnorm finds on this machine, and which variables are set."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rich.table import Table

import jitnorm
from jitnorm.cache.budget import byte_budget
from jitnorm.cache.lock import wait_bound
from jitnorm.cache.opening import (
    remote_mode,
    remote_timeout,
    revocation_list,
    signature_check,
    signature_days,
    signer,
)
from jitnorm.cache.remote import RemoteTier, without_credentials
from jitnorm.cache.trust import trust_is_limited
from jitnorm.commands.console import cell, entries, print_json, print_table, size
from jitnorm.commands.doctor_cache import (
    CacheState,
    MissState,
    SigningState,
    TierState,
    attempt,
    cache_state,
    miss_state,
    signing_state,
    tier_states,
    wheel_states,
)
from jitnorm.commands.selection import uncollected
from jitnorm.kernels.target import TARGET_NAMES, Target
from jitnorm.launcher import launcher
from jitnorm.misses import jit_mode
from jitnorm.store import memo_folder, user_store
from jitnorm.toolchains import TOOLCHAIN_NAMES
from jitnorm.toolchains.inventory import Installation, installed
from jitnorm.toolchains.nvrtc_library import Version, choose, installed_libraries
from jitnorm.toolchains.process import time_limit
from jitnorm.tracing import tracing_is_wanted
from jitnorm.tuning import tuning_mode
from jitnorm.wheel.describe import WheelDescription

PREFIX = "JITNORM_"
# An array framework, its distributions, and how to install it.
_FRAMEWORKS = (
    ("NumPy", ("numpy",), "pip install numpy"),
    ("torch", ("torch",), "pip install torch"),
    ("JAX", ("jax",), "pip install jax"),
    ("CuPy", ("cupy-cuda13x", "cupy-cuda12x", "cupy"), "pip install cupy-cuda13x"),
)
_Line = tuple[str, bool | None, str]  # the item; whether it is present, None for an optional one that is not; details


@dataclass(frozen=True)
class Framework:
    """An array framework; `version` is empty if it is not installed, `remedy` if it is."""

    name: str
    version: str
    remedy: str


@dataclass(frozen=True)
class Gpu:
    """A GPU; if it is not supported, `target` is empty and `problem` says why."""

    ordinal: int
    name: str
    capability: str
    target: str
    problem: str


@dataclass(frozen=True)
class Report:
    """All findings.

    Attributes:
        jitnorm: version of jitnorm.
        python: version of the interpreter.
        tvm_ffi: version of TVM-FFI.
        launcher_problem: why the launcher is unavailable; empty if it is ready.
        driver: CUDA version that the driver supports; empty without a driver.
        driver_problem: why there is no driver; empty if there is one.
        nvrtc: the newest NVRTC here whose code the driver loads; empty if there is none, or no driver.
        nvrtc_problem: what to install if there is no such NVRTC; empty if there is one, or no driver.
        gpus: all GPUs.
        toolchains: all toolchains that jitnorm can use, installed or not.
        targets: the targets that kernels can be built for here.
        cache: the cache folder.
        tiers: all tiers of the cache in lookup order, including the cache folder.
        wheels: which kernels each wheel among the tiers serves here.
        signing: the keys for signatures.
        misses: what a miss does, and the record of misses.
        variables: the variables that are set and begin with `PREFIX`.
        frameworks: the array frameworks whose tensors the ops take.
        schema: raised when a field of this report is removed or changes its meaning.
    """

    jitnorm: str
    python: str
    tvm_ffi: str
    launcher_problem: str
    driver: str
    driver_problem: str
    nvrtc: str
    nvrtc_problem: str
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
    """Examine this machine; builds the launcher unless it is cached, and never raises an error for what is missing."""
    _, launcher_problem = attempt(launcher)
    store, cache_problem = attempt(user_store)
    # Measuring a large cache takes as long as everything else, which mostly waits for drivers and compilers.
    with uncollected(), ThreadPoolExecutor(1) as pool:
        measured = pool.submit(cache_state, store, cache_problem)
        toolchains = tuple(installed(memo_folder(store) if store else None))
        version_of_driver, driver_problem = attempt(_driver_version)
        fitting, nvrtc_problem = nvrtc_for(version_of_driver)
        gpus, _ = attempt(_gpus)
        cache = measured.result()
    return Report(
        jitnorm=jitnorm.__version__,
        python=platform.python_version(),
        tvm_ffi=version("apache-tvm-ffi"),
        launcher_problem=launcher_problem,
        driver="CUDA {}.{}".format(*version_of_driver) if version_of_driver else "",
        driver_problem="unknown without the launcher" if launcher_problem else driver_problem,
        nvrtc=fitting,
        nvrtc_problem=nvrtc_problem,
        gpus=gpus or (),
        toolchains=toolchains,
        targets=tuple(name for name in TARGET_NAMES if any(name in each.targets for each in toolchains)),
        cache=cache,
        tiers=tier_states(store, cache),
        wheels=wheel_states(),
        signing=signing_state(),
        misses=miss_state(store),
        variables=variables(),
        frameworks=tuple(_framework(*each) for each in _FRAMEWORKS),
    )


def _driver_version() -> Version:
    number = launcher().driver_version()
    return number // 1000, number % 1000 // 10


def nvrtc_for(driver: Version | None) -> tuple[str, str]:
    """The newest NVRTC here whose code the driver loads, or else what to install; both empty without a driver."""
    if driver is None:
        return "", ""
    libraries, _ = attempt(installed_libraries)
    fitting = [library for library in libraries or () if library.runs_on(driver)]
    if fitting:
        return str(choose(fitting)), ""
    extra = "cuda" if driver >= (13, 0) else "cuda12"
    remedy = f'pip install "jitnorm[{extra}]"' if driver >= (12, 0) else "install a driver of branch 525 or later"
    newer = ", ".join(map(str, libraries or ()))
    return "", f"{newer} builds what this driver cannot load; {remedy}" if newer else remedy


def _gpus() -> tuple[Gpu, ...]:
    return tuple(map(_gpu, range(launcher().device_count())))


def _gpu(ordinal: int) -> Gpu:
    major, minor = launcher().device_capability(ordinal)
    target, problem = attempt(lambda: str(Target.of_capability(major, minor)))
    return Gpu(ordinal, launcher().device_name(ordinal), f"{major}.{minor}", target or "", problem)


def _framework(name: str, distributions: tuple[str, ...], remedy: str) -> Framework:
    for distribution in distributions:
        try:
            return Framework(name, version(distribution), "")
        except PackageNotFoundError:
            continue
    return Framework(name, "", remedy)


@dataclass(frozen=True)
class Variable:
    """An environment variable that is set.

    Attributes:
        name: the variable's name.
        value: its value without secrets.
        problem: why the value is invalid, with the remedy; empty if it is valid.
    """

    name: str
    value: str
    problem: str


def _backend() -> None:
    value = os.environ["JITNORM_BACKEND"]
    allowed = ("auto", *(name for name in TOOLCHAIN_NAMES if name not in ("cxx", "zig")))
    if value not in allowed:
        raise ValueError(f"JITNORM_BACKEND: is {value!r}; use one of {', '.join(allowed)}")


def _cpu_threads() -> None:
    value = os.environ["JITNORM_CPU_THREADS"]
    if not value.isdecimal() or int(value) < 1:
        raise ValueError(f"JITNORM_CPU_THREADS: is {value!r}; use a whole number, 1 or more")


def _miss_record() -> None:
    path = Path(os.environ["JITNORM_MISS_RECORD"]).expanduser()
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ValueError(f"JITNORM_MISS_RECORD: is '{path}', which cannot be written; use a file in a writable folder")


def _anything() -> None:
    pass


# For each variable, a function that reads it and raises an error if its value is invalid.
CHECKS: Mapping[str, Callable[[], object]] = {
    "JITNORM_BACKEND": _backend,
    "JITNORM_CACHE_DIR": _anything,  # the state of the cache says whether it is usable
    "JITNORM_CACHE_MAX_BYTES": byte_budget,
    "JITNORM_CACHE_TRUST": trust_is_limited,
    "JITNORM_COMPILE_TIMEOUT": time_limit,
    "JITNORM_CPU_THREADS": _cpu_threads,
    "JITNORM_JIT": jit_mode,
    "JITNORM_LOCK_TIMEOUT": lambda: wait_bound(None),
    "JITNORM_MISS_RECORD": _miss_record,
    "JITNORM_OTEL": tracing_is_wanted,
    "JITNORM_READONLY_CACHE": _anything,  # each folder is a tier with its own state
    "JITNORM_REMOTE_CACHE": lambda: RemoteTier(os.environ["JITNORM_REMOTE_CACHE"]),
    "JITNORM_REMOTE_MODE": remote_mode,
    "JITNORM_REMOTE_TIMEOUT": remote_timeout,
    "JITNORM_REVOCATION_KEY": lambda: revocation_list(user_store()),
    "JITNORM_SGLANG_FUNCTIONS": _anything,  # the plugin of SGLang says what is wrong with it
    "JITNORM_SIGNATURE_DAYS": signature_days,
    "JITNORM_SIGNING_KEY": signer,
    "JITNORM_TRUSTED_KEYS": signature_check,
    "JITNORM_TUNING": tuning_mode,
    "JITNORM_VLLM_OPERATORS": _anything,  # so does that of vLLM
}


def variables() -> tuple[Variable, ...]:
    """The variables that are set and not empty, by name."""
    names = sorted(name for name, value in os.environ.items() if name.startswith(PREFIX) and value)
    return tuple(_variable(name, os.environ[name]) for name in names)


def _variable(name: str, value: str) -> Variable:
    check = CHECKS.get(name)
    if check is None:
        near = get_close_matches(name, CHECKS, n=1) or [", ".join(CHECKS)]
        return Variable(name, value, f"jitnorm does not read this variable; unset it, or set {near[0]}")
    shown = without_credentials(value) if name == "JITNORM_REMOTE_CACHE" else value
    return Variable(name, shown, attempt(check)[1])


def show_doctor(*, as_json: bool) -> bool:
    """Examine this machine and print the findings; return whether any kernel can be built here."""
    report = examine()
    if as_json:
        print_json({**asdict(report), "can_build": report.can_build})
        return report.can_build
    table = Table(box=None, show_header=False, pad_edge=False)
    for _ in range(2):
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for thing, is_there, details in _lines(report):
        table.add_row(thing, _mark(is_there), cell(details))
    print_table(table)
    return report.can_build


def _mark(is_there: bool | None) -> str:
    if is_there is None:
        return "[dim]-[/]"
    return "[green]ok[/]" if is_there else "[red]no[/]"


def _lines(report: Report) -> Iterator[_Line]:
    yield "jitnorm", True, f"{report.jitnorm}, Python {report.python}, TVM-FFI {report.tvm_ffi}"
    yield "launcher", not report.launcher_problem, report.launcher_problem or "ready"
    yield "driver", True if report.driver else None, report.driver or report.driver_problem
    if report.driver:
        yield "fits", bool(report.nvrtc) or None, report.nvrtc or report.nvrtc_problem
    for gpu in report.gpus:
        details = f"{gpu.name}, compute capability {gpu.capability}, "
        yield f"cuda:{gpu.ordinal}", not gpu.problem, details + (gpu.target or gpu.problem)
    for toolchain in report.toolchains:
        details = f"{toolchain.identity}; {toolchain.location}" if toolchain.available else toolchain.remedy
        yield toolchain.name, toolchain.available or None, details
    yield "targets", report.can_build, ", ".join(report.targets) or "none can be built"
    yield "cache", not report.cache.problem, _cache_details(report.cache)
    for tier in report.tiers:
        yield "tier", not tier.problem, _tier_details(tier)
    for wheel in report.wheels:
        yield "wheel", wheel.serves_fully, _wheel_details(wheel)
    yield "keys", not report.signing.problem, _key_details(report.signing)
    yield "misses", not report.misses.problem, _miss_details(report.misses)
    for variable in report.variables:
        details = f"{variable.name}={variable.value}"
        yield "variable", not variable.problem, f"{details}: {variable.problem}" if variable.problem else details
    for framework in report.frameworks:
        details = framework.version or f"not installed; {framework.remedy}"
        yield framework.name, True if framework.version else None, details


def _cache_details(cache: CacheState) -> str:
    budget = "of disk space, no limit" if cache.budget_bytes is None else f"of {size(cache.budget_bytes)} of disk space"
    about = "about " if cache.is_estimate else ""
    held = f"{cache.path}: {about}{entries(cache.entries)}, {size(cache.total_bytes)} {budget}, trust: {cache.trust}"
    if cache.quarantine_bytes:
        held += f", {size(cache.quarantine_bytes)} in quarantine"
    if cache.has_locks is False:
        held += ", no file locks: concurrent misses each compile"
    return f"{held}; {cache.problem}" if cache.problem else held


def _tier_details(tier: TierState) -> str:
    if tier.problem:
        return f"{tier.name}: {tier.problem}"
    access = "read-write" if tier.is_writable else "read-only"
    about = "about " if tier.is_estimate else ""
    held = "" if tier.entries is None else f", {about}{entries(tier.entries)}"
    held += "" if tier.payload_bytes is None else f", {size(tier.payload_bytes)}"
    return f"{tier.name}: {access}{held}"


def _wheel_details(wheel: WheelDescription) -> str:
    title = f"{wheel.name} {wheel.version}"
    if wheel.problem:
        return f"{title}: {wheel.problem}"
    held = []
    if wheel.kernels:
        held.append(f"{wheel.serving} of {wheel.kernels} kernels for {', '.join(wheel.targets)} serve here")
    if wheel.launchers:
        held.append("its launcher serves here" if wheel.serving_launchers else "its launcher is for another TVM-FFI")
    refused = [f"{count} refused: {reason}" for reason, count in sorted(wheel.refused.items())]
    return f"{title}: {'; '.join([*held, size(wheel.payload_bytes), *refused])}"


def _key_details(keys: SigningState) -> str:
    trusted = f"trusted: {', '.join(keys.trusted)}" if keys.trusted else "signatures are not required"
    signs = f"; builds are signed by {keys.signs_with}" if keys.signs_with else ""
    return keys.problem or trusted + signs


def _miss_details(misses: MissState) -> str:
    meanings = {"auto": "compiled", "record": "compiled and recorded", "deny": "recorded, and raise an error"}
    meaning = meanings.get(misses.mode, "")
    record = f"; {misses.record} has {size(misses.record_bytes)}" if misses.record_bytes else ""
    return misses.problem or meaning + record
