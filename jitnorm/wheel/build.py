"""Collects the contents of wheels: kernels, built into the user's cache if missing, and portable launchers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from jitnorm.building import compile_kernel, toolchain_for
from jitnorm.cache import Artifact, Cache
from jitnorm.kernel_source import kernel_key, source_for
from jitnorm.kernels.generator import generate
from jitnorm.launcher import LauncherParts
from jitnorm.store import memo_folder, workplaces
from jitnorm.toolchains.zig import Zig
from jitnorm.warm.plan import Job
from jitnorm.warm.workers import run

Keyed = tuple[str, Artifact]


def prebuilt_launcher(cache: Cache, machine: str, include: Path | None = None) -> Keyed:
    """Load or build the launcher for a machine, and return it with its key.

    Args:
        cache: the cache to look it up and store it in.
        machine: one of `jitnorm.toolchains.zig.MACHINES`.
        include: folder of TVM-FFI's headers; default: those of the installed version.

    Raises:
        ToolchainMissingError: zig is not installed.
        CompileError: compiling failed.
    """
    compiler, parts = _zig(cache, machine), LauncherParts.collect(include)
    key = parts.key(compiler)
    return key, cache.load_or_build(key, lambda: parts.build(compiler))


def built_kernels(jobs: Sequence[Job], cache: Cache, workers: int, machine: str, backend: str) -> Iterator[Keyed]:
    """Load or build kernels, and yield them with their keys in any order.

    Args:
        jobs: the kernels to build.
        cache: the cache to look them up and store them in; CUDA kernels are built into the environment's cache.
        workers: how many are built at once.
        machine: the machine that CPU kernels run on.
        backend: the compiler for CUDA kernels.

    Raises:
        RuntimeError: a kernel cannot be built or stored.
        ValueError: the backend does not build for a target.
    """
    yield from _cpu_kernels([job for job in jobs if job.target.is_cpu], cache, workers, machine)
    yield from _cuda_kernels([job for job in jobs if not job.target.is_cpu], cache, workers, backend)


def _zig(cache: Cache, machine: str) -> Zig:
    return Zig(memo_folder(cache.store), workplaces(cache.store), machine)


def _cpu_kernels(jobs: Sequence[Job], cache: Cache, workers: int, machine: str) -> Iterator[Keyed]:
    """Build with zig: this machine's compiler may use its processor's features, and its C library may be new."""
    if not jobs:
        return
    compiler = _zig(cache, machine)

    def build(job: Job) -> Keyed:
        source = generate(job.config, job.target)
        key = kernel_key(source, compiler)
        return key, cache.load_or_build(key, lambda: compile_kernel(source, compiler))

    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(build, jobs)


def _cuda_kernels(jobs: Sequence[Job], cache: Cache, workers: int, backend: str) -> Iterator[Keyed]:
    keys = {}
    for job in jobs:
        toolchain = toolchain_for(job.config, job.target, cache.store, backend)
        keys[job] = kernel_key(source_for(job.config, job.target, toolchain.name), toolchain)
    found = {job: cache.load(key) for job, key in keys.items()}
    missing = [job for job, artifact in found.items() if artifact is None]
    for outcome in run(missing, workers, backend) if missing else ():
        if outcome.status == "failed":
            raise RuntimeError(f"wheel: {outcome.job} cannot be built: {outcome.error}")
        found[outcome.job] = cache.load(outcome.key)
    for job, artifact in found.items():
        if artifact is None:
            raise RuntimeError(
                f"wheel: {job} was built, but is not in the cache {cache.store.layout.root}; see its log"
            )
        yield keys[job], artifact
