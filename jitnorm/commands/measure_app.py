"""The arguments of the commands that measure; `bench`, `tune` and `tune_ranks` in this folder implement them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from jitnorm.commands.arguments import HOW, Jobs, exit_unless, option

_WHAT = "What to measure"
_RESULTS = "What to do with the results"


def _file(help: str, **more: Any) -> Any:
    """A file for results."""
    return option(help, panel=_RESULTS, metavar="FILE", dir_okay=False, **more)


def bench(
    ops: Annotated[
        list[str],
        option("The op of this name, or all whose names contain it, such as nvfp4. Default: all.", panel=_WHAT),
    ] = [],  # noqa: B006
    shapes: Annotated[
        str | None,
        option(
            "small, quick, anchors, few, grid, random:SEED, or shapes: 1x4096,128x8192. Default: quick, on the CPU "
            "small.",
            panel=_WHAT,
        ),
    ] = None,
    by: Annotated[
        list[str],
        option(
            "jitnorm, flashinfer, quack, torch.compile, or a variant of jitnorm: unfused, no-pdl, allocating, handle. "
            "Default: jitnorm and, on a GPU, the libraries that are installed.",
            panel=_WHAT,
        ),
    ] = [],  # noqa: B006
    device: Annotated[str | None, option("cuda or cpu. Default: cuda if there is a GPU.", panel=_WHAT)] = None,
    values: Annotated[
        str,
        option(
            "What inputs hold: normal, zeros, large (a standard deviation of 30), outliers (every 509th column times "
            "1000).",
            panel=_WHAT,
        ),
    ] = "normal",
    seconds: Annotated[
        float | None,
        option(
            "Start no measurement after this time, and list what is left out. Default: no limit.", panel=_WHAT, min=0.0
        ),
    ] = None,
    stored: Annotated[
        Path | None,
        option("Show the results in this file instead of measuring.", "--from", panel=_WHAT, metavar="FILE"),
    ] = None,
    json: Annotated[Path | None, _file("Write the results to this file, and update it after each op.")] = None,
    markdown: Annotated[Path | None, _file("Write the bars and the summary to this file as Markdown.")] = None,
    plot: Annotated[
        Path | None,
        option("Draw plots into this folder; requires matplotlib.", panel=_RESULTS, metavar="FOLDER", file_okay=False),
    ] = None,
    png: Annotated[bool, option("Draw PNG instead of SVG.", "--png", panel=_RESULTS)] = False,
    against: Annotated[
        Path | None, option("Compare with the results in this file.", panel=_RESULTS, metavar="FILE")
    ] = None,
    tolerance: Annotated[
        float, option("The fraction of its roofline that an op may lose.", panel=_RESULTS, min=0.0, max=1.0)
    ] = 0.05,
) -> None:
    """Measure ops against a copy of the same bytes and against other libraries.

    Requires torch. An op's roofline is the time of the copy divided by the time of the op. --against compares
    rooflines, so runs on two GPUs of the same kind can be compared. What seems slower is measured twice more first.

    Exit code 0: done. 1: --against found an op slower than before, or something failed. 2: an argument is invalid.
    """
    from jitnorm.bench.machine import device_or_default
    from jitnorm.bench.plot import draw, require_matplotlib
    from jitnorm.bench.results import Results, read, write
    from jitnorm.commands.bench import measured, show, show_comparison, write_markdown

    def keep(found: Results) -> None:
        if json is not None:
            write(found, json)

    before = None if against is None else read(against)
    if plot is not None:
        require_matplotlib()
    if stored is None:
        results = measured(ops, shapes, by, device, seconds, keep, values)
    elif ops or shapes or by or device or seconds is not None or values != "normal":
        raise ValueError("from: shows all stored results; omit --ops, --shapes, --by, --device, --values and --seconds")
    else:
        results = read(stored)
        keep(results)
    if markdown is not None:
        write_markdown(results, markdown)
    show(results)
    if plot is not None:
        draw(results, plot, "png" if png else "svg")
    if before is not None:
        here = None if stored else device_or_default(device)
        exit_unless(show_comparison(before, results, tolerance, here))


def tune(
    ops: Annotated[
        list[str],
        option("Ops by their full names, as in jitnorm bench, or all. Default: the common ones.", panel=_WHAT),
    ] = [],  # noqa: B006
    hidden_sizes: Annotated[
        str, option("Elements per row: 4096,8192. Default: 12 sizes from 1536 to 32768.", panel=_WHAT)
    ] = "",
    row_classes: Annotated[str, option("Classes of rows: few, some, usual, many. Default: all.", panel=_WHAT)] = "",
    seconds: Annotated[float, option("Stop after this time and keep what was found.", panel=HOW)] = 600.0,
    jobs: Jobs = None,
    backend: Annotated[str, option("nvrtc or nvcc.", panel=HOW)] = "nvrtc",
    dry_run: Annotated[bool, option("List the measurements and run none.", "--dry-run", panel=HOW)] = False,
    json: Annotated[Path | None, _file("Write every measured time to this file.")] = None,
    out: Annotated[
        Path | None, _file("Write the table that jitnorm would ship to this file, and leave the cache alone.")
    ] = None,
) -> None:
    """Measure schedules on the GPU and remember the fastest.

    Requires torch. A kernel's schedule says how rows are divided among threads; it never changes an output bit.
    Schedules that gain at least 1.5 % over the rules' are stored in the cache folder, where calls on GPUs of the same
    target find them. An interrupted run keeps what it has found. With JITNORM_TUNING=off calls ignore the table.

    Exit code 0: done. 1: something failed. 2: an argument is invalid. 130: interrupted.
    """
    from jitnorm.commands.tune import Wanted, show_plan, show_tune

    sizes, names = _sizes(hidden_sizes), tuple(part for text in ops for part in text.split(","))
    wanted = Wanted(names, sizes, tuple(filter(None, row_classes.split(","))), seconds, jobs, backend)
    if dry_run:
        show_plan(wanted)
    else:
        show_tune(wanted, json, out)


def _sizes(text: str) -> tuple[int, ...]:
    """Hidden sizes; ValueError says how to write them."""
    try:
        return tuple(int(part) for part in text.split(",") if part)
    except ValueError:
        raise ValueError(f"hidden_sizes: is {text!r}; write sizes such as 4096,8192") from None


def tune_comm(
    hidden_sizes: Annotated[
        str, option("Elements per row: 4096,8192. Default: 2048, 4096, 7168, on the CPU 512.", panel=_WHAT)
    ] = "",
    rows: Annotated[
        str, option("Rows of calls: 1,16,512, or random:SEED. Default: from 1 to 16384, on the CPU to 64.", panel=_WHAT)
    ] = "",
    formats: Annotated[str, option("What rows become: none, fp8, nvfp4. Default: all.", panel=_WHAT)] = "",
    ranks: Annotated[
        int | None, option("How many ranks. Default: as many as there are GPUs, on the CPU 2.", panel=_WHAT, min=2)
    ] = None,
    device: Annotated[str | None, option("cuda or cpu. Default: cuda if there is a GPU.", panel=_WHAT)] = None,
    seconds: Annotated[float, option("Measure for this time, and keep what was found.", panel=HOW)] = 600.0,
    jobs: Jobs = None,
    dry_run: Annotated[bool, option("Say what would be measured, and run nothing.", "--dry-run", panel=HOW)] = False,
    json: Annotated[Path | None, _file("Write the entries to this file.")] = None,
    out: Annotated[Path | None, _file("Add the entries to the table in this file, and leave the cache alone.")] = None,
) -> None:
    """Measure the methods of sums over GPUs, and remember the fastest.

    Requires torch. Starts a process for each GPU of this machine. Measures calls of jitnorm.comm that are one-shot,
    two-shot and not fused; with method "auto", calls on GPUs of the same name then take the fastest. It never changes
    an output bit. With JITNORM_TUNING=off calls ignore the table. Keep the GPUs otherwise idle.

    Exit code 0: done. 1: something failed. 2: an argument is invalid. 130: interrupted.
    """
    from jitnorm.bench.machine import device_or_default
    from jitnorm.commands.tune_ranks import show_plan, show_tune, wanted_of

    names = tuple(filter(None, formats.split(",")))
    wanted = wanted_of(device_or_default(device), ranks, _sizes(hidden_sizes), names, rows)
    if dry_run:
        show_plan(wanted)
    else:
        show_tune(wanted, seconds, jobs, json, out)
