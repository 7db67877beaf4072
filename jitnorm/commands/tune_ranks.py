"""`jitnorm tune-comm`: builds kernels of sums over ranks, measures them on ranks that it starts, and stores choices."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from time import monotonic

from jitnorm.bench import machine
from jitnorm.comm.choices import METHODS, NAME, Choices, Entry, device_name, read_choices, write_choices
from jitnorm.commands.console import make_console, print_rows, status
from jitnorm.commands.warm import Progress, warm
from jitnorm.dispatch import cuda_target
from jitnorm.kernels.all_reduce_rules import MAX_RANKS
from jitnorm.kernels.quant_spec import require_one_of
from jitnorm.kernels.target import Target
from jitnorm.launcher import launcher
from jitnorm.tune.processes import run_ranks
from jitnorm.tune.ranks import FORMATS, HIDDEN_SIZES, ROWS, Wanted, drawn_rows, measure
from jitnorm.tuning import user_file
from jitnorm.warm.plan import Job

# Ranks must start within this time, and are killed if they run this much longer than the time that they are given.
_START_SECONDS = 120.0


def wanted_of(device: str, ranks: int | None, hidden_sizes: Sequence[int], formats: Sequence[str], rows: str) -> Wanted:
    """The request of a command line; what is empty takes its default.

    Raises:
        ValueError: it is invalid, or there are too few GPUs.
    """
    gpus = launcher().device_count() if device == "cuda" else MAX_RANKS
    count = ranks or min(gpus, MAX_RANKS if device == "cuda" else 2)
    require_one_of("ranks", count, tuple(range(2, MAX_RANKS + 1)))
    if count > gpus:
        raise ValueError(f"ranks: is {count}, but this machine has {gpus} GPUs; use fewer")
    for each in formats:
        require_one_of("formats", each, tuple(FORMATS))
    sizes, names = tuple(hidden_sizes) or HIDDEN_SIZES[device], tuple(formats) or tuple(FORMATS)
    return Wanted(device, count, sizes, names, _rows(device, rows))


def _rows(device: str, text: str) -> tuple[int, ...]:
    if not text:
        return ROWS[device]
    try:
        if text.startswith("random:"):
            return drawn_rows(device, int(text.removeprefix("random:")))
        found = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        found = ()
    if not found or found[0] < 1:
        raise ValueError(f"rows: is {text!r}; write numbers such as 1,16,512, or random:SEED")
    return found


def show_plan(wanted: Wanted) -> None:
    """Print what would be measured."""
    make_console().print(
        f"{wanted.ranks} ranks on {device_name(_first(wanted))}; H {_list(wanted.hidden_sizes)}; formats "
        f"{_list(wanted.formats)}; rows {_list(wanted.rows)}; {len(wanted.kernels(_target(wanted)))} kernels",
        highlight=False,
        soft_wrap=True,
    )


def show_tune(
    wanted: Wanted, seconds: float, jobs: int | None, json_file: Path | None = None, out: Path | None = None
) -> None:
    """Measure, store the entries, and print them.

    Args:
        wanted: the request.
        seconds: how long to measure, after the kernels are built.
        jobs: number of processes that build; None for as many as cores and memory allow.
        json_file: file to write the entries to.
        out: file to write the table to, instead of the cache.

    Raises:
        RuntimeError: a rank failed, or methods give different bytes.
    """
    setup = machine.setup_of(wanted.device, [])
    _build(wanted, jobs)
    outcomes = run_ranks(
        wanted.ranks, measure, wanted, seconds, setup.driver, setup.date, seconds=seconds + _START_SECONDS
    )
    for rank, outcome in enumerate(outcomes):
        if outcome.error:
            raise RuntimeError(f"rank {rank}: {outcome.error}")
    found: list[Entry] = outcomes[0].value
    path = user_file(NAME) if out is None else out
    if found:
        write_choices([*_present(path), *found], path)
    if json_file is not None:
        json_file.write_text(json.dumps([asdict(each) for each in found], indent=1) + "\n", encoding="utf-8")
    _show(found, path)


def _build(wanted: Wanted, jobs: int | None) -> None:
    """Build all kernels at once, rather than one after another as ranks call them; ranks report those that fail."""
    target, start = _target(wanted), monotonic()
    with status() as show_status:
        for progress in warm(Progress([Job(config, target) for config in wanted.kernels(target)]), workers=jobs):
            show_status(f"built {len(progress.outcomes)} of {len(progress.jobs)}, {monotonic() - start:.0f} s")


def _present(path: Path) -> Choices:
    try:
        return read_choices(path)
    except (OSError, ValueError):
        return ()


def _show(found: Sequence[Entry], path: Path) -> None:
    """Print the times, and the method that is chosen for each."""
    shown = []
    for each in found:
        steps = each.steps(METHODS)
        for i, size in enumerate(each.bytes):
            times = [each.times[method][i] for method in METHODS]
            choice = next(method for most, method in steps if size <= most)
            row = f"{size // (2 * each.hidden_size)}x{each.hidden_size}"
            shown.append((str(each.code_bits), row, *("" if time is None else f"{time:.2f}" for time in times), choice))
    if shown:
        print_rows(("bits", "M x H", *(f"{method} us" for method in METHODS), "choice"), shown)
    line = f"{len(found)} entries for {found[0].ranks} ranks on {found[0].device}. The table is {path}" if found else ""
    make_console().print(f"\n{line}" if found else "nothing was measured in time", highlight=False, soft_wrap=True)


def _first(wanted: Wanted) -> int | str:
    """The place of rank 0."""
    return 0 if wanted.device == "cuda" else "cpu"


def _target(wanted: Wanted) -> Target:
    return cuda_target(0) if wanted.device == "cuda" else Target("cpu")


def _list(values: Sequence[object]) -> str:
    return ", ".join(map(str, values))
