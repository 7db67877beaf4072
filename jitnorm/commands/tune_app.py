"""The command `jitnorm tune`: its arguments. What it does is in `jitnorm.tune` and beside this module."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

_WHAT = "What to measure"
_HOW = "How"
_RESULTS = "What becomes of the results"


def _option(help: str, *names: str, panel: str = _WHAT, metavar: str | None = None, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, metavar=metavar, **more)


def tune(
    ops: Annotated[
        list[str], _option("Ops by their whole names, as jitnorm bench has them. Default: the usual ones; or all.")
    ] = [],  # noqa: B006
    hidden_sizes: Annotated[str, _option("Elements of a row: 4096,8192. Default: 11 sizes, 1536 to 32768.")] = "",
    calls: Annotated[str, _option("few, some, usual, many, see docs/tuning.md. Default: all.")] = "",
    seconds: Annotated[float, _option("Stop after so many seconds, and keep what was found.", panel=_HOW)] = 600.0,
    jobs: Annotated[
        int | None,
        typer.Option("-j", "--jobs", min=1, help="Processes that build. Default: as fit.", rich_help_panel=_HOW),
    ] = None,
    backend: Annotated[str, _option("nvrtc or nvcc.", panel=_HOW)] = "nvrtc",
    dry_run: Annotated[bool, _option("List what would be measured.", "--dry-run", panel=_HOW)] = False,
    json: Annotated[
        Path | None, _option("Write every time to this file.", panel=_RESULTS, metavar="FILE", dir_okay=False)
    ] = None,
    out: Annotated[
        Path | None,
        _option(
            "Write the table that jitnorm would ship to this file; the cache is left alone.", panel=_RESULTS,
            metavar="FILE", dir_okay=False,
        ),
    ] = None,
) -> None:  # fmt: skip
    """Measure schedules on the GPU, and remember the fastest.

    Needs torch. A kernel's schedule, how it divides rows among threads, changes no bit of its outputs. Those that gain
    1.5 % or more over the rules' are stored in the cache folder, for calls on GPUs of the same target; what was found
    is kept if the run is interrupted. JITNORM_TUNING=off has calls do without.

    Exit code 0: done. 1: something failed. 2: an argument is wrong. 130: interrupted.
    """
    from jitnorm.commands.tune import Wanted, show_plan, show_tune

    try:
        sizes = tuple(int(part) for part in hidden_sizes.split(",") if part)
    except ValueError:
        raise ValueError(f"hidden_sizes: is {hidden_sizes!r}; write sizes such as 4096,8192") from None
    wanted = Wanted(
        tuple(part for text in ops for part in text.split(",")), sizes, tuple(filter(None, calls.split(","))),
        seconds, jobs, backend,
    )  # fmt: skip
    if dry_run:
        show_plan(wanted)
    else:
        show_tune(wanted, json, out)
