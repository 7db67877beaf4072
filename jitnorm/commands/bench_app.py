"""The command `jitnorm bench`: its arguments. What it does is in `jitnorm.bench` and beside this module."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from jitnorm.commands.group import exit_unless

_WHAT = "What to measure"
_RESULTS = "What becomes of the results"


def _option(help: str, *names: str, panel: str = _WHAT, metavar: str | None = None, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, metavar=metavar, **more)


def bench(
    ops: Annotated[
        list[str], _option("The op of this name, or all that have it in theirs, such as nvfp4. Default: all.")
    ] = [],  # noqa: B006
    shapes: Annotated[
        str | None,
        _option("small, quick, anchors, few, grid, or shapes: 1x4096,128x8192. Default: quick; on the CPU small."),
    ] = None,
    by: Annotated[
        list[str],
        _option(
            "jitnorm, flashinfer, quack, torch.compile, or jitnorm in other ways: unfused, no-pdl, allocating, handle. "
            "Default: jitnorm and, on a GPU, the libraries that are installed."
        ),
    ] = [],  # noqa: B006
    device: Annotated[str | None, _option("cuda or cpu. Default: a GPU if there is one.")] = None,
    seconds: Annotated[
        float | None, _option("Begin nothing more after these; what is left out is told. Default: all.", min=0.0)
    ] = None,
    stored: Annotated[
        Path | None, _option("Measure nothing: take the results of this file.", "--from", metavar="FILE")
    ] = None,
    json: Annotated[
        Path | None,
        _option("Write the results to this file, after each op.", panel=_RESULTS, metavar="FILE", dir_okay=False),
    ] = None,
    markdown: Annotated[
        Path | None,
        _option("Write bars and summary to this file, for docs.", panel=_RESULTS, metavar="FILE", dir_okay=False),
    ] = None,
    plot: Annotated[
        Path | None,
        _option("Draw them into this folder; needs matplotlib.", panel=_RESULTS, metavar="FOLDER", file_okay=False),
    ] = None,
    png: Annotated[bool, _option("Draw PNG in place of SVG.", "--png", panel=_RESULTS)] = False,
    against: Annotated[
        Path | None, _option("Compare them with those of this file.", panel=_RESULTS, metavar="FILE")
    ] = None,
    tolerance: Annotated[
        float, _option("The part of its roofline that an op may lose then.", panel=_RESULTS, min=0.0, max=1.0)
    ] = 0.05,
) -> None:
    """Measure ops beside a copy of the same bytes, and beside other libraries.

    Measuring needs torch. The roofline is the time of the copy divided by that of the op; --against compares rooflines,
    so two runs of one kind of GPU can be compared; what seems slower is measured twice again first.

    Exit code 0: done. 1: --against found an op slower than before, or something failed. 2: an argument is wrong.
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
        results = measured(ops, shapes, by, device, seconds, keep)
    elif ops or shapes or by or device or seconds is not None:
        raise ValueError(
            "from: results that are read are all shown; leave out --ops, --shapes, --by, --device and --seconds"
        )
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
