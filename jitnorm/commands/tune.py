"""Tuning: kernels are built in parallel, op after op, then measured; results are shown and stored as they come."""

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
from jitnorm.commands.console import make_console, make_error_console, print_facts, print_table
from jitnorm.commands.warm import Progress, warm
from jitnorm.kernels.target import Target
from jitnorm.tune.cases import OPS, Case, Plan, plan
from jitnorm.tune.meter import DeviceMeter, Meter
from jitnorm.tune.session import Found, shipped, table_of, tune
from jitnorm.tuning import Table, read_table, tables, user_file, write_table
from jitnorm.warm.plan import Job

MeterOf = Callable[[Case], Meter]
BACKENDS = ("nvrtc", "nvcc")


@dataclass(frozen=True)
class Wanted:
    """What the user asks for.

    Attributes:
        ops: names; none for the usual ones, ``all`` for all.
        hidden_sizes: none for the usual ones.
        calls: classes of calls; none for all.
        seconds: after which to stop.
        jobs: processes that build; None for as many as fit.
        backend: one of `BACKENDS`.
    """

    ops: Sequence[str]
    hidden_sizes: Sequence[int]
    calls: Sequence[str]
    seconds: float
    jobs: int | None
    backend: str

    def plan(self, target: Target) -> Plan:
        """What is to be measured; ValueError if that is nothing, or something is not allowed."""
        if self.backend not in BACKENDS:
            raise ValueError(f"backend: is {self.backend!r}; schedules are those of {' and '.join(BACKENDS)}")
        found = plan(OPS if "all" in self.ops else self.ops, self.hidden_sizes, self.calls, target)
        if not found.cases:
            raise ValueError(
                "hidden_sizes: leave no choice of schedules, as rows of more than 512 elements do; left out are "
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
    """Print what would be measured; without a GPU, for an H200."""
    try:
        target = target_here()
    except (ValueError, RuntimeError):
        target = Target("sm_90a")
    planned = wanted.plan(target)
    _tell_what_is_left_out(planned)
    found = planned.cases
    shown = _columns(("op", "calls", "rows"), ("H",), ("schedules",))
    for case in found:
        rows = ", ".join(map(str, case.rows))
        shown.add_row(case.op, case.calls, rows, str(case.config.hidden_size), " ".join(case.schedules))
    print_table(shown)
    kernels = {config for case in found for config in case.configs}
    make_console().print(f"{len(found)} cases, {len(kernels)} kernels for {target}", highlight=False)


def show_tune(wanted: Wanted, json_file: Path | None = None, out: Path | None = None) -> None:
    """Tune, and print what was found.

    Args:
        wanted: what to measure.
        json_file: where all times are written to.
        out: where the table is written to, in place of the cache.

    Raises:
        ValueError: something is not allowed, or there is no GPU.
        RuntimeError: torch is missing, a schedule gives other bytes, or a kernel cannot be run.
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
            tables.cache_clear()
    finally:
        _show(found, path)
        if json_file is not None:
            json_file.write_text(json.dumps([_record(each) for each in found], indent=1) + "\n", encoding="utf-8")


def _tell_what_is_left_out(planned: Plan) -> None:
    for what in planned.left_out:
        make_error_console().print(f"left out: {what}", highlight=False, markup=False, soft_wrap=True)


def tuned(wanted: Wanted, planned: Sequence[Case], target: Target, meter_of: MeterOf) -> Iterator[Found]:
    """Build and measure cases as is wanted, until the time is up; how far it is, is told on stderr."""
    deadline, done = monotonic() + wanted.seconds, 0
    with make_error_console().status("") as status:
        for op, of_op in groupby(planned, key=lambda case: case.op):
            listed = list(of_op)
            for progress in warm(_progress(listed, target), backend=wanted.backend, workers=wanted.jobs):
                status.update(f"[{done}/{len(planned)}] {op}: built {len(progress.outcomes)} of {len(progress.jobs)}")
                if monotonic() > deadline:
                    return
            for case in listed:
                if monotonic() > deadline:
                    return
                status.update(f"[{done}/{len(planned)}] {op}, H {case.config.hidden_size}, {case.calls} rows")
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
    """Those where another schedule than the rules' is the fastest."""
    shown = _columns(("op", "calls"), ("M x H", "by rule us", "best us", "roofline"), ("schedule", "gain"))
    winners = [each for each in found if each.choice.schedule]
    for each in winners:
        of = zip(each.case.rows, each.choice.by_rule, each.choice.best, each.copy, strict=True)
        for number, (rows, by_rule, best, copy) in enumerate(of):
            shape = shape_text((rows, each.case.config.hidden_size))
            end = ("", "") if number else (each.choice.schedule, f"{each.choice.gain:.1%}")
            head = ("", "") if number else (each.case.op, each.case.calls)
            shown.add_row(*head, shape, f"{by_rule:.2f}", f"{best:.2f}", f"{copy / best:.3f}", *end)
    if winners:
        print()
        print_table(shown)
    line = f"{len(found)} cases measured; the rules' schedule stays in {len(found) - len(winners)}. The table is {path}"
    make_console().print(f"\n{line}" if found else "nothing was measured in the time", highlight=False, soft_wrap=True)


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
    """All that was measured in a case; the rules' schedule is the empty one."""
    case = found.case
    return {
        "op": case.op,
        "config": str(case.config),
        "calls": case.calls,
        "rows": case.rows,
        "copy": found.copy,
        "chosen": found.choice.schedule,
        "times": found.choice.times,
    }
