"""Warming the cache: what is there already, then workers for what is not."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter

from jitnorm.cache import Cache, CacheUnusableError
from jitnorm.kernels.target import TARGET_NAMES, Target
from jitnorm.launcher import load_or_build_launcher
from jitnorm.store import user_cache
from jitnorm.warm.build import check
from jitnorm.warm.machine import worker_count
from jitnorm.warm.plan import Job, Outcome
from jitnorm.warm.workers import SECONDS_PER_KERNEL, run


@dataclass
class Progress:
    """How far warming has come.

    Attributes:
        jobs: all of them.
        outcomes: of those that are done.
        workers: how many processes build; 0 if everything was there.
        launcher: what became of the launcher: ``hit``, ``built``, ``failed``, or ``skipped``.
        launcher_error: why it failed.
        seconds: since the beginning.
        is_interrupted: whether the user has stopped it.
    """

    jobs: Sequence[Job]
    outcomes: list[Outcome] = field(default_factory=list)
    workers: int = 0
    launcher: str = "skipped"
    launcher_error: str = ""
    seconds: float = 0.0
    is_interrupted: bool = False

    def count(self, status: str) -> int:
        """How many jobs have a status."""
        return sum(outcome.status == status for outcome in self.outcomes)

    @property
    def left(self) -> int:
        """How many jobs are not done."""
        return len(self.jobs) - len(self.outcomes)

    @property
    def is_warm(self) -> bool:
        """Whether everything is in the cache."""
        return not (self.left or self.count("failed") or self.launcher == "failed")


def targets_of(architectures: Sequence[str]) -> list[Target]:
    """The targets of names, which may be several joined by commas; without any those of the GPUs here.

    Raises:
        ValueError: a name is not known, or there is neither a name nor a GPU.
    """
    names = [name for text in architectures for name in text.split(",") if name]
    return list(dict.fromkeys(map(Target, names))) if names else _of_gpus()


def _of_gpus() -> list[Target]:
    from jitnorm.dispatch import cuda_target
    from jitnorm.launcher import launcher

    remedy = f"name what to build for: --arch, one or more of {','.join(TARGET_NAMES)}"
    try:
        with compiling_allowed():
            count = launcher().device_count()
        found = [cuda_target(ordinal) for ordinal in range(count)]
    except RuntimeError as error:
        raise ValueError(f"arch: no GPU was found: {error}; {remedy}") from None
    if not found:
        raise ValueError(f"arch: the CUDA driver sees no GPU; {remedy}")
    return list(dict.fromkeys(found))


def warm(
    progress: Progress,
    *,
    backend: str = "auto",
    workers: int | None = None,
    seconds: float = SECONDS_PER_KERNEL,
    with_launcher: bool = True,
    ray: str | None = None,
) -> Generator[Progress, None, None]:
    """Put all kernels of `progress` into the user's cache; yields after each that is done.

    Args:
        progress: what is to be done; what was done is added to it.
        backend: as of `jitnorm.toolchains.select`.
        workers: how many processes; None for what cores and memory allow.
        seconds: that one kernel may take.
        with_launcher: whether the launcher, which every process needs, is warmed, too.
        ray: the address of a Ray cluster whose nodes build, ``auto`` for the running one; None for this machine.

    Raises:
        CacheUnusableError: nothing can be written to the cache.
        ValueError: the backend does not build for a target.
    """
    began = perf_counter()
    with compiling_allowed():
        cache = user_cache()
        _require_writable(cache)
        for outcome in _outcomes(progress, cache, backend, workers, seconds, with_launcher, ray):
            if outcome is not None:
                progress.outcomes.append(outcome)
            progress.seconds = perf_counter() - began
            yield progress
        _look_again(progress, cache)
    progress.seconds = perf_counter() - began


def _outcomes(
    progress: Progress, cache: Cache, backend: str, workers: int | None, seconds: float, with_launcher: bool,
    ray: str | None,
) -> Iterator[Outcome | None]:  # fmt: skip
    """Outcomes as they are known; None whenever there is something else to show."""
    missing = []
    for found in check(progress.jobs, cache, backend, builds_here=ray is None):
        if isinstance(found, Outcome):
            yield found
        else:
            missing.append(found)
    if with_launcher:
        _warm_launcher(progress, cache)
        yield None
    if not missing:
        return
    if ray is not None:
        from jitnorm.warm.ray_workers import run_on_ray

        yield from run_on_ray(missing, cache, ray, backend)
        return
    progress.workers = worker_count(len(missing), workers)
    yield None
    with contextlib.closing(run(missing, progress.workers, backend, seconds)) as outcomes:
        yield from outcomes


def _look_again(progress: Progress, cache: Cache) -> None:
    """Tell of what was there or built, and is gone: a byte budget that is too small evicts what has just been built."""
    for position, outcome in enumerate(progress.outcomes):
        is_sure = outcome.status == "failed" or not outcome.key or cache.store.layout.entry(outcome.key).is_dir()
        if not is_sure and cache.load(outcome.key) is None:
            gone = "it was in the cache and is gone again; give the cache more room (JITNORM_CACHE_MAX_BYTES)"
            progress.outcomes[position] = replace(outcome, status="failed", error=gone)


def _warm_launcher(progress: Progress, cache: Cache) -> None:
    from jitnorm.cache.events import subscribe

    built: list[str] = []
    unsubscribe = subscribe(lambda kind, _: built.append(kind) if kind == "build" else None)
    try:
        load_or_build_launcher(cache)
        progress.launcher = "built" if built else "hit"
    except RuntimeError as error:
        progress.launcher, progress.launcher_error = "failed", str(error)
    finally:
        unsubscribe()


def _require_writable(cache: Cache) -> None:
    if not cache.store.writable:
        raise CacheUnusableError(
            f"the cache folder {cache.store.layout.root} cannot be written, so nothing can be warmed. "
            "Set JITNORM_CACHE_DIR to a folder that you can write to"
        )


@contextlib.contextmanager
def compiling_allowed() -> Iterator[None]:
    """Compile what is missing, without recording it, whatever JITNORM_JIT says: the user has ordered it."""
    before = os.environ.get("JITNORM_JIT")
    os.environ["JITNORM_JIT"] = "auto"
    try:
        yield
    finally:
        if before is None:
            del os.environ["JITNORM_JIT"]
        else:
            os.environ["JITNORM_JIT"] = before
