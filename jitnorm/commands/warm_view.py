"""How warming is shown: a bar on a terminal, lines elsewhere, JSON for programs."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Generator, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from jitnorm.cache import Cache
from jitnorm.cache.printable import printable_lines
from jitnorm.commands.console import make_console, make_error_console
from jitnorm.commands.units import duration, size
from jitnorm.commands.warm import Progress, warm
from jitnorm.store import user_cache
from jitnorm.warm.build import check
from jitnorm.warm.plan import Job, Outcome

_FAILURES_SHOWN = 5  # of those that failed for the same reason


def show_warm(jobs: Sequence[Job], left_out: Sequence[str] = (), *, as_json: bool, **options: Any) -> Progress:
    """Warm and show how it goes; an interrupt ends it early.

    Args:
        jobs: what to warm.
        left_out: what was asked for and has no kernel.
        as_json: whether nothing but a summary is printed, for programs.
        options: those of `jitnorm.commands.warm.warm`.
    """
    progress, console = Progress(jobs), make_console()
    show = _silently() if as_json else _bar(console, progress) if console.is_terminal else _lines(console, progress)
    # Closing both kills workers and takes the bar away.
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
    """Print what would be warmed, and whether it is there."""
    cache: Cache = user_cache()
    found = [item if isinstance(item, Outcome) else Outcome(item, "missing") for item in check(jobs, cache, backend)]
    if as_json:
        print(json.dumps({"kernels": [_outcome(outcome) for outcome in found], "left_out": list(left_out)}, indent=1))
        return
    console = make_console()
    for outcome in found:
        console.print(f"{outcome.status:8}{_name(outcome.job)}", highlight=False, markup=False, soft_wrap=True)
    missing = sum(outcome.status == "missing" for outcome in found)
    console.print(f"{len(found)} kernels, {missing} of them missing", highlight=False)
    _show_left_out(left_out)


def summary(progress: Progress, backend: str) -> dict[str, Any]:
    """The summary for programs."""
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


# Each of these is advanced once for each step.


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
    """A line for each kernel that was not there."""
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
    """Those that failed, by what went wrong."""
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
        console.print(f"Interrupted: {progress.left} kernels are left. Run it again to go on.", highlight=False)
