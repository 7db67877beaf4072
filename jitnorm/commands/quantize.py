"""`jitnorm quantize`: shows the plan for a checkpoint and the progress."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.progress import Progress as Bar

from jitnorm.checkpoint.convert import Progress, quantize_checkpoint
from jitnorm.checkpoint.layouts import Layout
from jitnorm.checkpoint.plan import Plan, plan_of
from jitnorm.checkpoint.source import open_source
from jitnorm.commands.console import Lines, duration, make_console, print_json, print_rows, size
from jitnorm.warm.machine import usable_cores

_MOST_THREADS = 8  # more would wait for the disk


def show_plan(source: Path, layout: Layout, ignore: Sequence[str], *, as_json: bool) -> None:
    """Print what would happen to the matrices of a checkpoint."""
    plan = plan_of(open_source(source), layout, ignore)
    if as_json:
        print_json({**_summary(plan), "weights": list(plan.selection.weights), "ignored": plan.selection.ignored})
        return
    steps = [step for shard in plan.shards for step in shard.weights]
    rows = [
        (step.tensor.name, " x ".join(map(str, step.tensor.shape)), " ".join(map(_short, step.outputs)))
        for step in steps
    ]
    kept = [(module, "", "stays as it is") for module in plan.selection.ignored]
    print_rows(("tensor", "shape", "becomes"), [*rows, *kept])
    print(_told(plan))


def _short(output: Any) -> str:
    return f"{output.name.rpartition('.')[2]}:{output.dtype}[{','.join(map(str, output.shape))}]"


def _summary(plan: Plan) -> dict[str, Any]:
    return {
        "format": plan.layout.format.name,
        "layout": plan.layout.convention,
        "quantized": len(plan.selection.weights),
        "files": len(plan.shards),
        "bytes_before": sum(tensor.size for tensors in plan.source.shards.values() for tensor in tensors),
        "bytes": plan.size,
    }


def _told(plan: Plan) -> str:
    found = _summary(plan)
    shards = "1 file" if found["files"] == 1 else f"{found['files']} files"
    return (
        f"{found['quantized']} weights in {found['format']}, {shards}: "
        f"{size(found['bytes_before'])} become {size(found['bytes'])}"
    )


def show_quantize(
    source: Path, out: Path, layout: Layout, *, as_json: bool, threads: int | None, **options: Any
) -> bool:
    """Quantize a checkpoint and show the progress; an interrupt ends it early.

    Args:
        source: the folder of the checkpoint.
        out: the folder to write to.
        layout: the format, and its tensors.
        as_json: print only a summary, as JSON.
        threads: how many threads encode; None for as many as there are cores, at most 8.
        options: those of `quantize_checkpoint`.

    Returns:
        whether the checkpoint is complete.
    """
    began, console = monotonic(), make_console()
    threads = threads or min(usable_cores(), _MOST_THREADS)
    view = _silent() if as_json else _bar() if console.is_terminal else _lines()
    progress, is_whole = None, True
    steps = quantize_checkpoint(source, out, layout, threads=threads, **options)
    # Closing them ends the threads and removes the bar.
    with contextlib.closing(steps), contextlib.closing(view):
        next(view)
        try:
            for progress in steps:
                view.send(progress)
        except KeyboardInterrupt:
            is_whole = False
    if progress is not None:
        _show_end(progress, out, is_whole, monotonic() - began, as_json=as_json)
    return is_whole


def _show_end(progress: Progress, out: Path, is_whole: bool, seconds: float, *, as_json: bool) -> None:
    if as_json:
        more = {"out": str(out), "resumed": progress.resumed, "seconds": round(seconds, 3), "interrupted": not is_whole}
        print_json({**_summary(progress.plan), **more})
    elif is_whole:
        print(f"{_told(progress.plan)} in {out}, {duration(seconds)}")
    else:
        print("Interrupted. Run the command again to resume.")


# Views: generators that are sent the progress.


def _silent() -> Generator[None, Progress, None]:
    while True:
        yield


def _bar() -> Generator[None, Progress, None]:
    columns = (TextColumn("{task.description:7}"), BarColumn(), DownloadColumn(binary_units=True),
               TransferSpeedColumn(), TimeRemainingColumn())  # fmt: skip
    with Bar(*columns, console=make_console()) as bar:
        progress = yield
        scan = bar.add_task("scan", total=progress.to_scan, visible=progress.to_scan > 0)
        write = bar.add_task("write", total=progress.to_write, start=False)
        while True:
            bar.update(scan, completed=progress.scanned)
            if progress.written:
                bar.start_task(write)
            bar.update(write, completed=progress.written)
            progress = yield


def _lines() -> Generator[None, Progress, None]:
    """Show progress in occasional lines."""
    progress, tell = (yield), Lines()
    if progress.resumed:
        print(f"resumed: {progress.resumed} of {len(progress.plan.shards)} files are written already", flush=True)
    while True:
        verb, done, total = "scanned", progress.scanned, progress.to_scan
        if progress.written:
            verb, done, total = "written", progress.written, progress.to_write
        if total:
            tell(f"{verb} {size(done)} of {size(total)}, {100 * done // total} %")
        progress = yield
