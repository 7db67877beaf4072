"""`jitnorm warm`: finds what is missing from the cache, has workers build it, and shows their progress."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from jitnorm.cache import Cache, CacheUnusableError
from jitnorm.cache.printable import printable_lines
from jitnorm.commands.console import duration, kernels, make_console, make_error_console, size
from jitnorm.kernels.target import TARGET_NAMES, Target
from jitnorm.launcher import load_or_build_launcher
from jitnorm.store import user_cache
from jitnorm.warm.build import check
from jitnorm.warm.machine import worker_count
from jitnorm.warm.plan import Job, Outcome
from jitnorm.warm.workers import SECONDS_PER_KERNEL, run

_FAILURES_SHOWN = 5  # of the kernels with the same error


@dataclass
class Progress:
    """The progress of warming.

    Attributes:
        jobs: everything to warm.
        outcomes: of the jobs that are done.
        workers: number of processes that build; 0 if nothing was missing.
        launcher: the outcome of the launcher: ``hit``, ``built``, ``failed`` or ``skipped``.
        launcher_error: why the launcher failed.
        seconds: time since the start.
        is_interrupted: whether the user stopped it.
    """

    jobs: Sequence[Job]
    outcomes: list[Outcome] = field(default_factory=list)
    workers: int = 0
    launcher: str = "skipped"
    launcher_error: str = ""
    seconds: float = 0.0
    is_interrupted: bool = False

    def count(self, status: str) -> int:
        """The number of jobs with a status."""
        return sum(outcome.status == status for outcome in self.outcomes)

    @property
    def left(self) -> int:
        """The number of jobs that are not done."""
        return len(self.jobs) - len(self.outcomes)

    @property
    def is_warm(self) -> bool:
        """Whether everything is in the cache."""
        return not (self.left or self.count("failed") or self.launcher == "failed")


def targets_of(architectures: Sequence[str]) -> list[Target]:
    """The targets of comma-separated names; without names, those of this machine's GPUs.

    Raises:
        ValueError: a name is unknown, or there is neither a name nor a GPU.
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
    """Put all kernels of `progress` into the user's cache; yields after each.

    Args:
        progress: what to do; it receives what is done.
        backend: as in `jitnorm.toolchains.select`.
        workers: number of processes; None for as many as cores and memory allow.
        seconds: time limit for each kernel.
        with_launcher: also warm the launcher, which every process needs.
        ray: the address of a Ray cluster to build on, ``auto`` for the running one; None for this machine.

    Raises:
        CacheUnusableError: the cache is read-only.
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
    """Outcomes as they arrive; None when there is something else to show."""
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
    """Mark evicted kernels as failed, which happens if the byte budget is too small for all of them."""
    for position, outcome in enumerate(progress.outcomes):
        is_sure = outcome.status == "failed" or not outcome.key or cache.store.layout.entry(outcome.key).is_dir()
        if not is_sure and cache.load(outcome.key) is None:
            gone = "evicted again: the cache is too small for all kernels; raise JITNORM_CACHE_MAX_BYTES"
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
            f"the cache folder {cache.store.layout.root} is not writable, so nothing can be warmed. "
            "Set JITNORM_CACHE_DIR to a folder that you can write to"
        )


@contextlib.contextmanager
def compiling_allowed() -> Iterator[None]:
    """Allow compiling, without recording misses, regardless of JITNORM_JIT: the user asked for it."""
    before = os.environ.get("JITNORM_JIT")
    os.environ["JITNORM_JIT"] = "auto"
    try:
        yield
    finally:
        if before is None:
            del os.environ["JITNORM_JIT"]
        else:
            os.environ["JITNORM_JIT"] = before


def show_warm(jobs: Sequence[Job], left_out: Sequence[str] = (), *, as_json: bool, **options: Any) -> Progress:
    """Warm kernels and show the progress; an interrupt ends it early.

    Args:
        jobs: what to warm.
        left_out: what was requested but has no kernel.
        as_json: print only a summary, as JSON.
        options: those of `warm`.
    """
    progress, console = Progress(jobs), make_console()
    show = _silently() if as_json else _bar(console, progress) if console.is_terminal else _lines(console, progress)
    # Closing them kills the workers and removes the bar.
    with contextlib.closing(warm(progress, **options)) as steps, contextlib.closing(show):
        try:
            next(show)
            for _ in steps:
                next(show)
        except KeyboardInterrupt:
            progress.is_interrupted = True
    if as_json:
        print(json.dumps({**summary(progress, options.get("backend", "auto")), "left_out": list(left_out)}, indent=1))
    else:
        _show_end(console, progress)
        _show_left_out(left_out)
    return progress


def _show_left_out(left_out: Sequence[str]) -> None:
    for what in left_out:
        make_error_console().print(f"left out: {what}", highlight=False, markup=False, soft_wrap=True)


def show_plan(jobs: Sequence[Job], left_out: Sequence[str] = (), *, as_json: bool, backend: str) -> None:
    """Print what would be warmed, and what is already in the cache."""
    cache: Cache = user_cache()
    found = [item if isinstance(item, Outcome) else Outcome(item, "missing") for item in check(jobs, cache, backend)]
    if as_json:
        print(json.dumps({"kernels": [_outcome(outcome) for outcome in found], "left_out": list(left_out)}, indent=1))
        return
    console = make_console()
    for outcome in found:
        console.print(f"{outcome.status:8}{_name(outcome.job)}", highlight=False, markup=False, soft_wrap=True)
    missing = sum(outcome.status == "missing" for outcome in found)
    console.print(f"{kernels(len(found))}, {missing} of them missing", highlight=False)
    _show_left_out(left_out)


def summary(progress: Progress, backend: str) -> dict[str, Any]:
    """The summary that ``--json`` prints."""
    return {
        "cache": str(user_cache().store.layout.root),
        "backend": backend,
        "targets": list(dict.fromkeys(str(job.target) for job in progress.jobs)),
        "seconds": round(progress.seconds, 3),
        "workers": progress.workers,
        "launcher": {"status": progress.launcher, "error": progress.launcher_error},
        **{status: progress.count(status) for status in ("hit", "built", "failed")},
        "left": progress.left,
        "bytes": sum(outcome.size for outcome in progress.outcomes),
        "interrupted": progress.is_interrupted,
        "kernels": [_outcome(outcome) for outcome in progress.outcomes],
    }


def _outcome(outcome: Outcome) -> dict[str, Any]:
    return {
        "config": str(outcome.job.config),
        "target": str(outcome.job.target),
        "status": outcome.status,
        "seconds": round(outcome.seconds, 4),
        "bytes": outcome.size,
        "key": outcome.key,
        "error": outcome.error,
    }


# Views: generators that `show_warm` advances once for each step.


def _silently() -> Generator[None, None, None]:
    while True:
        yield


def _bar(console: Console, progress: Progress) -> Generator[None, None, None]:
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeElapsedColumn(),
               TextColumn("left"), TimeRemainingColumn())  # fmt: skip
    with Bar(*columns, console=console) as bar:
        task = bar.add_task("", total=len(progress.jobs))
        while True:
            bar.update(task, completed=len(progress.outcomes), description=_counts(progress))
            yield


def _counts(progress: Progress) -> str:
    failed = progress.count("failed")
    return f"{progress.count('hit')} cached, {progress.count('built')} built" + (f", {failed} failed" if failed else "")


def _lines(console: Console, progress: Progress) -> Generator[None, None, None]:
    """A line for each kernel that was missing."""
    shown, total = 0, len(progress.jobs)
    while True:
        for outcome in progress.outcomes[shown:]:
            shown += 1
            if outcome.status != "hit":
                took = f"{duration(outcome.seconds):>8}  {size(outcome.size):>9}"
                line = f"[{shown}/{total}] {outcome.status:6} {took}  {_name(outcome.job)}"
                console.print(line, highlight=False, markup=False, soft_wrap=True)
        yield


def _name(job: Job) -> str:
    return f"{job.target} {job.config}"


def _failures(outcomes: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    """The failed outcomes, by their error."""
    found: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.status == "failed":
            found.setdefault(outcome.error, []).append(outcome)
    return found


def _show_end(console: Console, progress: Progress) -> None:
    for error, failed in _failures(progress.outcomes).items():
        names = [f"failed: {outcome.job}" for outcome in failed[:_FAILURES_SHOWN]]
        more = [f"and {len(failed) - len(names)} more"] if len(failed) > len(names) else []
        text = "\n".join([*names, *more, f"  {printable_lines(error)}"])
        console.print(text, highlight=False, markup=False, soft_wrap=True, style="red")
    if progress.launcher == "failed":
        error = printable_lines(progress.launcher_error)
        console.print(f"failed: the launcher: {error}", highlight=False, markup=False, style="red")
    done = size(sum(outcome.size for outcome in progress.outcomes))
    where = user_cache().store.layout.root
    launcher = "" if progress.launcher == "skipped" else f", launcher {progress.launcher}"
    line = (
        f"{len(progress.outcomes)} of {len(progress.jobs)} kernels: {progress.count('hit')} cached, "
        f"{progress.count('built')} built, {progress.count('failed')} failed{launcher}; {done} in {where}, "
        f"{duration(progress.seconds)}"
    )
    console.print(line, highlight=False, markup=False, soft_wrap=True)
    if progress.is_interrupted:
        console.print(
            f"Interrupted: {progress.left} kernels are left. Run the command again to resume.", highlight=False
        )
