"""Measures how much longer calls at random lengths take than with the fastest schedule that tuning finds.

    python scripts/schedule_regret.py [--seed 0] [--step 16] [--sizes 2880,5120] [--row-classes usual,many]
        [--draw-rows] [--neighbours | --against FORMS] [--seconds 400] [--jobs N] [--out FILE]

Needs a GPU, torch and NVRTC. Each op of `jitnorm tune` is called at one length up to 32768 in all classes of rows, or
those of `--row-classes`, then at another, and so on until the time is up: worker processes build kernels ahead. With
`--sizes`, each op is called at each of these lengths once, in drawn order. With `--draw-rows`, each case has a single
number of rows, which is drawn, not those for which schedules are tuned. With `--neighbours`, cases are measured at more
numbers of rows, but only with the schedules that their own class of rows and those beside it get, and the rules'. With
`--against`, only cases are measured to which other forms give another schedule, and only with that, their own and the
rules'. All times go to a file of JSON lines, the first of which describes the machine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import sys
import time
from collections import defaultdict
from collections.abc import Generator, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from jitnorm.kernels.row_classes import ROW_CLASSES
from jitnorm.kernels.target import Target

from jitnorm.bench import machine
from jitnorm.commands.tune import target_here
from jitnorm.fitted_forms import read_forms
from jitnorm.launcher import load_or_build_launcher
from jitnorm.store import user_cache
from jitnorm.tune.ahead import built_ahead
from jitnorm.tune.cases import OPS, Case
from jitnorm.tune.meter import DeviceMeter
from jitnorm.tune.regret import (
    STEP,
    Regret,
    cases_of,
    compared,
    configs_of,
    draw,
    regrets,
    shuffled,
    with_drawn_rows,
    with_neighbours,
)
from jitnorm.warm.machine import worker_count
from jitnorm.warm.plan import Job
from jitnorm.warm.workers import run

# Median of so many replays: calls with few rows take little time, but vary more.
_REPLAYS = {"few": 9}
_REPLAYS_OF_OTHERS = 5


def main() -> None:
    """Measure, show each case, and summarize."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="of the drawn lengths")
    parser.add_argument("--step", type=int, default=STEP, help="of the drawn lengths: they are multiples of it")
    parser.add_argument("--sizes", help="lengths to measure instead, separated by commas")
    parser.add_argument("--row-classes", help="classes of rows, separated by commas; all by default")
    parser.add_argument("--draw-rows", action="store_true", help="measure any numbers of rows of each class")
    less = parser.add_mutually_exclusive_group()
    less.add_argument("--neighbours", action="store_true", help="compare the schedules of neighbouring classes of rows")
    less.add_argument("--against", type=Path, metavar="FORMS", help="file of other forms, to compare with")
    parser.add_argument("--seconds", type=float, default=400, help="when to stop")
    parser.add_argument("--jobs", type=int, help="processes that build; all cores by default")
    parser.add_argument("--out", type=Path, default=Path("regret.jsonl"), help="file for all times")
    wanted = parser.parse_args()
    deadline = time.monotonic() + wanted.seconds
    target, found = target_here(), []
    with wanted.out.open("w", encoding="utf-8") as out:
        print(f"{'op':18} {'class':6} {'H':>6} {'schedule':12} {'fastest':12} {'regret':>7} {'rules':>7}")
        # Measurements use one stream; docs/measured.md says why that matters.
        out.write(json.dumps({**asdict(machine.setup_of("cuda", [])), "streams": "few"}) + "\n")
        for each in measured(planned(wanted, target), target, wanted.jobs, deadline):
            found.append(each)
            out.write(f"{each}\n")
            out.flush()
            print(row_text(each), flush=True)
    show_summary(found)


def planned(wanted: argparse.Namespace, target: Target) -> Iterator[list[Case]]:
    """The cases of drawn ops and lengths, as the options say."""
    sizes = [int(each) for each in (wanted.sizes or "").split(",") if each]
    row_classes = [each for each in (wanted.row_classes or "").split(",") if each]
    others = read_forms(wanted.against) if wanted.against else None
    numbers = random.Random(wanted.seed)
    for op, size in shuffled(OPS, sizes, wanted.seed) if sizes else draw(OPS, wanted.seed, wanted.step):
        cases = cases_of(op, size, target, row_classes)
        if wanted.neighbours:
            cases = with_neighbours(cases, target)
        if wanted.draw_rows:
            cases = with_drawn_rows(cases, numbers)
        yield cases if others is None else compared(cases, target, others)


def measured(
    plan: Iterator[list[Case]], target: Target, jobs: int | None, deadline: float
) -> Generator[Regret, None, None]:
    """Measure planned cases until the time is up."""
    machine.seed()
    os.environ["JITNORM_JIT"] = "auto"
    load_or_build_launcher(user_cache())

    def jobs_of(cases: Sequence[Case]) -> list[Job]:
        return [Job(config, target) for case in cases for config in configs_of(case, target)]

    def build(missing: Sequence[Job]) -> Generator[Job, None, None]:
        with contextlib.closing(run(missing, worker_count(len(missing), jobs), "nvrtc")) as outcomes:
            yield from (outcome.job for outcome in outcomes)

    def meter_of(case: Case) -> DeviceMeter:
        replays = _REPLAYS.get(case.row_class, _REPLAYS_OF_OTHERS)
        return DeviceMeter(case, target, "nvrtc", replays=replays)

    with contextlib.closing(built_ahead(plan, jobs_of, build, at_once=len(OPS))) as ready:
        for cases in ready:
            for each in regrets(cases, target, meter_of, lambda what: print(what, file=sys.stderr)):
                yield each
                if time.monotonic() > deadline:
                    return


def row_text(found: Regret) -> str:
    """One measurement, as a line of a table."""
    case = found.case
    return (
        f"{case.op:18} {case.row_class:6} {case.config.hidden_size:6} {found.schedule or '(rules)':12} "
        f"{found.fastest or '(rules)':12} {found.of(found.schedule):7.1%} {found.of(''):7.1%}"
    )


def show_summary(found: Sequence[Regret]) -> None:
    """Print mean and worst regret of each op and class of rows."""
    by_case = defaultdict(list)
    for each in found:
        by_case[each.case.op, each.case.row_class].append(each.of(each.schedule))
    print(f"\n{'mean, worst':18}" + "".join(f"{row_class:>16}" for row_class in ROW_CLASSES))
    for op in OPS:
        cells = map(_mean_and_worst, (by_case[op, row_class] for row_class in ROW_CLASSES))
        print(f"{op:18}" + "".join(f"{cell:>16}" for cell in cells))
    for name, values in (("schedule", [f.of(f.schedule) for f in found]), ("rules", [f.of("") for f in found])):
        print(f"{name}: {_mean_and_worst(values)} of {len(values)} cases")


def _mean_and_worst(values: Sequence[float]) -> str:
    return f"{sum(values) / len(values):.1%}, {max(values):.1%}" if values else "-"


if __name__ == "__main__":
    main()
