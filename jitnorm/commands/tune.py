"""`jitnorm tune`: builds kernels in parallel, op by op, measures them, and shows and stores the results."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from time import monotonic
from typing import Any

from rich.table import Table as RichTable

from jitnorm.bench import machine, report
from jitnorm.bench.shapes import shape_text
from jitnorm.commands.console import make_console, make_error_console, print_facts, print_table, status
from jitnorm.commands.warm import Progress, warm
from jitnorm.kernels.target import Target
from jitnorm.tune.cases import OPS, Case, Plan, plan
from jitnorm.tune.meter import DeviceMeter, Meter
from jitnorm.tune.session import Found, shipped, table_of, tune
from jitnorm.tune.table import Table, read_table, write_table
from jitnorm.tuning import user_file, user_table
from jitnorm.warm.plan import Job

MeterOf = Callable[[Case], Meter]
BACKENDS = ("nvrtc", "nvcc")


@dataclass(frozen=True)
class Wanted:
    """The user's request.

    Attributes:
        ops: names of ops; none for the common ones, ``all`` for all.
        hidden_sizes: elements per row; none for the common sizes.
        row_classes: classes of rows; none for all.
        seconds: time limit.
        jobs: number of processes that build; None for as many as cores and memory allow.
        backend: one of `BACKENDS`.
    """

    ops: Sequence[str]
    hidden_sizes: Sequence[int]
    row_classes: Sequence[str]
    seconds: float
    jobs: int | None
    backend: str

    def plan(self, target: Target) -> Plan:
        """The measurements to make; ValueError if there are none, or the request is invalid."""
        if self.backend not in BACKENDS:
            raise ValueError(f"backend: is {self.backend!r}; only {' and '.join(BACKENDS)} have schedules")
        found = plan(OPS if "all" in self.ops else self.ops, self.hidden_sizes, self.row_classes, target)
        if not found.cases:
            raise ValueError(
                "hidden_sizes: offer no choice of schedules; use sizes above 512. Left out: "
                + "; ".join(found.left_out)
            )
        return found


def target_here() -> Target:
    """The target of the GPU that torch uses; ValueError if there is none."""
    machine.device_or_default("cuda")
    import torch

    from jitnorm.dispatch import cuda_target

    return cuda_target(torch.cuda.current_device())


def show_plan(wanted: Wanted) -> None:
    """Print what would be measured; without a GPU, as on an H200."""
    try:
        target = target_here()
    except (ValueError, RuntimeError):
        target = Target("sm_90a")
    planned = wanted.plan(target)
    _tell_what_is_left_out(planned)
    found = planned.cases
    shown = _columns(("op", "class", "rows"), ("H",), ("schedules",))
    for case in found:
        rows = ", ".join(map(str, case.rows))
        shown.add_row(case.op, case.row_class, rows, str(case.config.hidden_size), " ".join(case.schedules))
    print_table(shown)
    kernels = {config for case in found for config in case.configs}
    make_console().print(f"{len(found)} cases, {len(kernels)} kernels for {target}", highlight=False)


def show_tune(wanted: Wanted, json_file: Path | None = None, out: Path | None = None) -> None:
    """Tune, and print the findings.

    Args:
        wanted: the request.
        json_file: file to write all times to.
        out: file to write the table to, instead of the cache.

    Raises:
        ValueError: the request is invalid, or there is no GPU.
        RuntimeError: torch is missing, a schedule changes the output, or a kernel cannot be run.
    """
    target = target_here()
    planned = wanted.plan(target)
    _tell_what_is_left_out(planned)
    setup = machine.setup_of("cuda", [])
    machine.seed()
    path = user_file(str(target)) if out is None else out
    table = table_of(target, setup, _present(path))
    found: list[Found] = []

    def meter_of(case: Case) -> Meter:
        return DeviceMeter(case, target, wanted.backend)

    print_facts(report.facts(setup))
    try:
        for each in tuned(wanted, planned.cases, target, meter_of):
            found.append(each)
            table = table.with_entries([each.entry])
            write_table(table if out is None else shipped(table), path)
            user_table.cache_clear()
    finally:
        _show(found, path)
        if json_file is not None:
            json_file.write_text(json.dumps([_record(each) for each in found], indent=1) + "\n", encoding="utf-8")


def _tell_what_is_left_out(planned: Plan) -> None:
    for what in planned.left_out:
        make_error_console().print(f"left out: {what}", highlight=False, markup=False, soft_wrap=True)


def tuned(wanted: Wanted, planned: Sequence[Case], target: Target, meter_of: MeterOf) -> Iterator[Found]:
    """Build and measure cases until the time is up; stderr gets the progress."""
    deadline, done = monotonic() + wanted.seconds, 0
    with status() as show_status:
        for op, of_op in groupby(planned, key=lambda case: case.op):
            listed = list(of_op)
            for progress in warm(_progress(listed, target), backend=wanted.backend, workers=wanted.jobs):
                show_status(f"[{done}/{len(planned)}] {op}: built {len(progress.outcomes)} of {len(progress.jobs)}")
                if monotonic() > deadline:
                    return
            for case in listed:
                if monotonic() > deadline:
                    return
                show_status(f"[{done}/{len(planned)}] {op}, H {case.config.hidden_size}, {case.row_class} rows")
                yield from tune([case], meter_of)
                done += 1


def _progress(of_op: Sequence[Case], target: Target) -> Progress:
    configs = dict.fromkeys(config for case in of_op for config in case.configs)
    return Progress([Job(config, target) for config in configs])


def _present(path: Path) -> Table | None:
    try:
        return read_table(path)
    except (OSError, ValueError):
        return None


def _show(found: Sequence[Found], path: Path) -> None:
    """Print the cases in which a schedule beats the rules'."""
    shown = _columns(("op", "class"), ("M x H", "by rule us", "best us", "roofline"), ("schedule", "gain"))
    winners = [each for each in found if each.choice.schedule]
    for each in winners:
        of = zip(each.case.rows, each.choice.by_rule, each.choice.best, each.copy, strict=True)
        for number, (rows, by_rule, best, copy) in enumerate(of):
            shape = shape_text((rows, each.case.config.hidden_size))
            end = ("", "") if number else (each.choice.schedule, f"{each.choice.gain:.1%}")
            head = ("", "") if number else (each.case.op, each.case.row_class)
            shown.add_row(*head, shape, f"{by_rule:.2f}", f"{best:.2f}", f"{copy / best:.3f}", *end)
    if winners:
        print()
        print_table(shown)
    line = f"{len(found)} cases measured; the rules' schedule stays in {len(found) - len(winners)}. The table is {path}"
    make_console().print(f"\n{line}" if found else "nothing was measured in time", highlight=False, soft_wrap=True)


def _columns(texts: Sequence[str], numbers: Sequence[str], more: Sequence[str]) -> RichTable:
    table = RichTable(box=None, pad_edge=False, header_style="bold")
    for heading in texts:
        table.add_column(heading, no_wrap=True)
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in more:
        table.add_column(heading)
    return table


def _record(found: Found) -> dict[str, Any]:
    """All measurements of a case; the rules' schedule has the empty name."""
    case = found.case
    return {
        "op": case.op,
        "config": str(case.config),
        "row_class": case.row_class,
        "rows": case.rows,
        "copy": found.copy,
        "chosen": found.choice.schedule,
        "times": found.choice.times,
    }
