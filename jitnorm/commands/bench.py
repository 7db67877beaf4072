"""Benchmarks: measures, shows tables, compares with stored results."""

from __future__ import annotations

from collections.abc import Sequence

from jitnorm.bench import compare, machine, peers, report
from jitnorm.bench.cases import ops_named
from jitnorm.bench.measure import measure
from jitnorm.bench.results import Results, Row
from jitnorm.bench.shapes import parse_shapes, shape_text
from jitnorm.commands.console import make_console, make_error_console, print_facts, print_table


def measured(ops: Sequence[str], shapes: str | None, by: Sequence[str], device: str | None) -> Results:
    """Measure what is asked for, and tell on stderr how far it is.

    Args:
        ops: parts of names of ops; none for all.
        shapes: a name or a list; None for what suits the device.
        by: who is measured; nobody for all who are here.
        device: ``cuda``, ``cpu``, or None for a GPU if there is one.

    Raises:
        ValueError: one of them is not allowed, or nothing is left to measure.
        RuntimeError: torch is missing, or a kernel cannot be built or run.
    """
    found = ops_named([part for text in ops for part in text.split(",")])
    asked = None if shapes is None else parse_shapes(shapes)
    device = machine.device_or_default(device)
    names = peers.chosen([name for text in by for name in text.split(",")], device)
    chosen = asked or parse_shapes("quick" if device == "cuda" else "small")
    plan = [(op, op.shapes(chosen), peers.makers(op, names)) for op in found]
    plan = [(op, taken, makers) for op, taken, makers in plan if taken and makers]
    if not plan:
        raise ValueError(f"shapes: no op that is asked for takes any of them by {', '.join(names)}; choose others")
    setup = machine.setup_of(device, names)
    machine.seed()
    rows: list[Row] = []
    with make_error_console().status("") as status:
        for number, (op, taken, makers) in enumerate(plan, 1):
            for shape in taken:
                status.update(f"[{number}/{len(plan)}] {op.name} {shape_text(shape)}")
                rows += measure(op, [shape], makers, device)
    return Results(setup, tuple(rows))


def show(results: Results) -> None:
    """Print what was measured with, all measurements, and a summary."""
    print_facts(report.facts(results.setup))
    for table in (report.rows_table(results.rows), report.summary_table(results.rows)):
        print()
        print_table(table)


def show_comparison(before: Results, results: Results, tolerance: float) -> bool:
    """Print what is slower than before; return whether nothing is.

    Args:
        before: an earlier run.
        results: of this run.
        tolerance: the part of its roofline that an op may lose.

    Raises:
        ValueError: the two have nothing in common.
    """
    pairs = compare.pairs(before, results)
    slower = compare.regressions(pairs, tolerance)
    make_console().print(
        f"\n{len(pairs)} measurements compared with {before.setup.device}, {before.setup.date}: "
        f"{len(slower)} slower by more than {tolerance:.1%}",
        highlight=False,
    )
    if before.setup.device != results.setup.device:
        make_error_console().print("note: that was another device; compare runs on the same kind", highlight=False)
    if slower:
        print_table(report.pairs_table(slower))
    return not slower
