"""`jitnorm bench`: measures ops, shows tables, compares with stored results."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic

from jitnorm.bench import compare, machine, peers, report
from jitnorm.bench.cases import ops_named
from jitnorm.bench.measure import measure, measure_again
from jitnorm.bench.measured import Maker, Measured
from jitnorm.bench.results import Results, Row
from jitnorm.bench.shapes import Shape, parse_shapes, shape_text
from jitnorm.bench.tensors import VALUES
from jitnorm.commands.console import make_console, make_error_console, print_facts, print_table, status
from jitnorm.kernels.quant_spec import require_one_of

Plan = list[tuple[Measured, list[Shape], dict[str, Maker]]]


def measured(
    ops: Sequence[str],
    shapes: str | None,
    by: Sequence[str],
    device: str | None,
    seconds: float | None = None,
    keep: Callable[[Results], None] = lambda _: None,
    values: str = "normal",
) -> Results:
    """Measure ops; stderr gets the progress and what was skipped.

    Args:
        ops: names of ops, or parts of names; none for all.
        shapes: a named set or a list of shapes; None for a set that suits the device.
        by: libraries and variants to measure; none for all installed libraries.
        device: ``cuda``, ``cpu``, or None for a GPU if there is one.
        seconds: time after which no measurement is started except the first; None for no limit.
        keep: called after each op with all results so far.
        values: of inputs, one of `VALUES`.

    Raises:
        ValueError: an argument is invalid, or nothing is left to measure.
        RuntimeError: torch is missing, or a kernel cannot be built or run.
    """
    require_one_of("values", values, VALUES)
    found = ops_named([part for text in ops for part in text.split(",")])
    asked = None if shapes is None else parse_shapes(shapes)
    device = machine.device_or_default(device)
    names = peers.chosen([name for text in by for name in text.split(",")], device)
    chosen = asked or parse_shapes("quick" if device == "cuda" else "small")
    plan = [(op, op.shapes(chosen), peers.makers(op, names)) for op in found]
    plan = [(op, taken, makers) for op, taken, makers in plan if taken and makers]
    if not plan:
        raise ValueError(f"shapes: no selected op takes any of them by {', '.join(names)}; choose others")
    setup = replace(machine.setup_of(device, names), values=values)
    machine.seed()
    left_out: list[str] = []
    rows: list[Row] = []
    for rows in _measured(plan, device, math.inf if seconds is None else seconds, left_out.append, values):
        keep(Results(setup, tuple(rows)))
    for what in left_out:
        make_error_console().print(f"left out: {what}", highlight=False, markup=False, soft_wrap=True)
    return Results(setup, tuple(rows))


def _measured(
    plan: Plan, device: str, seconds: float, leave_out: Callable[[str], None], values: str
) -> Iterator[list[Row]]:
    """Yield all rows so far, after each op."""
    rows: list[Row] = []
    end = monotonic() + seconds
    with status() as show_status:
        for number, (op, shapes, makers) in enumerate(plan, 1):
            late = []
            for shape in shapes:
                if rows and monotonic() > end:
                    late.append(shape_text(shape))
                    continue
                show_status(f"[{number}/{len(plan)}] {op.name} {shape_text(shape)}")
                rows += measure(op, [shape], makers, device, leave_out, values)
            if late:
                leave_out(f"{op.name} at {', '.join(late)}: {seconds:g} s are over")
            yield rows


def show(results: Results) -> None:
    """Print the setup, all measurements, a summary and, for a GPU, the bars that these measurements cover."""
    print_facts(report.facts(results.setup))
    for table in (report.rows_table(results.rows), *reversed(report.findings(results))):
        print()
        print_table(table)


def write_markdown(results: Results, path: Path) -> None:
    """Write the setup, the bars and the summary, creating the folder if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(report.markdown(results), encoding="utf-8")


def show_comparison(before: Results, results: Results, tolerance: float, device: str | None = None) -> bool:
    """Print what is slower than in an earlier run; return whether nothing is slower.

    Args:
        before: the earlier run.
        results: this run.
        tolerance: the fraction of its roofline that an op may lose.
        device: where to measure slower ops again; None to trust the results.

    Raises:
        ValueError: the two runs have no measurement in common.
    """
    pairs = compare.pairs(before, results)
    slower = compare.regressions(pairs, tolerance)
    if device is not None:
        slower = compare.confirmed(slower, tolerance, lambda row: measure_again(row, device, results.setup.values))
    make_console().print(
        f"\n{len(pairs)} measurements compared with {before.setup.device}, {before.setup.date}: "
        f"{len(slower)} slower by more than {tolerance:.1%}",
        highlight=False,
    )
    if before.setup.device != results.setup.device:
        make_error_console().print("note: the devices differ; compare runs on GPUs of the same kind", highlight=False)
    if before.setup.values != results.setup.values:
        make_error_console().print("note: the values of inputs differ, and fast paths depend on them", highlight=False)
    if slower:
        print_table(report.pairs_table(slower))
    return not slower
