"""Warms one kernel in this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from time import perf_counter

from jitnorm.building import toolchain_for
from jitnorm.cache import Artifact, Cache
from jitnorm.kernel_source import kernel_source_key, source_for
from jitnorm.kernels.spelling import did_you_mean
from jitnorm.lookup import Candidate
from jitnorm.manager import load_or_build_kernel
from jitnorm.toolchains import TOOLCHAIN_NAMES, Toolchain, ToolchainMissingError
from jitnorm.warm.plan import Job, Outcome


def check(jobs: Iterable[Job], cache: Cache, backend: str, *, builds_here: bool = True) -> Iterator[Outcome | Job]:
    """Yield the outcome of each job whose kernel is in a tier, fully verified, or cannot be built; otherwise the job.

    Args:
        jobs: the kernels to look up.
        cache: the cache to search.
        backend: see `jitnorm.toolchains.select`.
        builds_here: whether a missing kernel fails if the compiler for its target is missing, too.

    Raises:
        ValueError: the backend does not build for a target.
    """
    for job in jobs:
        start = perf_counter()
        toolchain = _toolchain(job, cache, backend)
        try:
            key, found = _find(job, cache, toolchain)
        except ValueError as error:
            yield Outcome(job, "failed", error=str(error))
            continue
        if found is not None:
            yield Outcome(job, "hit", perf_counter() - start, len(found.payload), key)
        elif builds_here and isinstance(toolchain, ToolchainMissingError):
            yield Outcome(job, "failed", error=str(toolchain))
        else:
            yield job


def build(job: Job, cache: Cache, backend: str) -> Outcome:
    """Build a kernel into the cache, unless it is in a tier; failures are part of the outcome."""
    start = perf_counter()
    key = ""
    try:
        toolchain = _toolchain(job, cache, backend)
        key, found = _find(job, cache, toolchain)
        status = "built" if found is None else "hit"
        if found is None:
            load_or_build_kernel(job.config, job.target, cache, _backend_for(job, backend))
            _, found = _find(job, cache, toolchain)
        if found is None:
            where = cache.store.layout.root
            raise RuntimeError(f"the kernel was built, but cannot be stored in {where}; the warning before says why")
    except Exception as error:
        return Outcome(job, "failed", perf_counter() - start, 0, key, f"{type(error).__name__}: {error}")
    return Outcome(job, status, perf_counter() - start, len(found.payload), key)


def _find(job: Job, cache: Cache, toolchain: Toolchain | ToolchainMissingError) -> tuple[str, Artifact | None]:
    """The key of a kernel, and its artifact if cached. Without a compiler: no key, and any compiler's artifact."""
    if isinstance(toolchain, ToolchainMissingError):
        source = source_for(job.config, job.target, "c++")
        wanted = Candidate(source, "", kernel_source_key(source), "auto")
    else:
        wanted = Candidate.of_toolchain(source_for(job.config, job.target, toolchain.name), toolchain)
    return wanted.key, wanted.find(cache)


def _toolchain(job: Job, cache: Cache, backend: str) -> Toolchain | ToolchainMissingError:
    try:
        return toolchain_for(job.config, job.target, cache.store, _backend_for(job, backend))
    except ToolchainMissingError as error:
        return error


def _backend_for(job: Job, backend: str) -> str:
    """The backend of a job; a backend for GPUs does not apply to the CPU."""
    if backend not in ("auto", *TOOLCHAIN_NAMES):
        meant = did_you_mean(backend, TOOLCHAIN_NAMES)
        raise ValueError(f"backend: {backend!r} is not known; use one of auto, {', '.join(TOOLCHAIN_NAMES)}{meant}")
    return "auto" if job.target.is_cpu else backend
