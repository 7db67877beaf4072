"""Fits schedules for rows of any length to measurements of `scripts/schedule_regret.py`.

    python scripts/fit_schedules.py FILE... [--again FILE...] [--target sm_90a]
        [--keep | --candidates FORMS | --neighbours] [--out FILE]

Shows how much longer calls take than with the fastest schedule, with forms fitted without the lengths at which they are
judged; `--out` says where to write the forms fitted to all lengths, by default over those that jitnorm ships. With
`--keep`, these stay where others do not gain 0.5 or 1 %: they were fitted to other measurements. What it writes are
candidates, so it needs `--out`; `schedule_regret.py --against` measures them. With `--candidates`, each range of
lengths keeps its shipped form unless that of another file gains 1.5 % in measurements of both, with `--neighbours`
unless one gains that neighbouring classes of rows have at these lengths; the files after `--again` are those that the
shipped forms were fitted to. Needs scikit-learn.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from jitnorm.kernels.row_classes import ROW_CLASSES
from jitnorm.kernels.target import Target

from jitnorm.fitted_forms import read_forms
from jitnorm.sealed import read_sealed
from jitnorm.tune.fit import Fitting, write_forms
from jitnorm.tune.samples import Sample, read_samples
from jitnorm.tune.settle import Settling, of_neighbours
from jitnorm.tuning import forms_file, forms_of


def main() -> None:
    """Judge, fit and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, help="written by schedule_regret.py")
    parser.add_argument(
        "--again", nargs="+", default=[], type=Path, metavar="FILE", help="more of them, already counted"
    )
    parser.add_argument("--target", type=Target, default=Target("sm_90a"), help="what was measured")
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--keep", action="store_true", help="start from the forms that jitnorm ships")
    start.add_argument("--candidates", type=Path, metavar="FORMS", help="choose between these and the shipped forms")
    start.add_argument("--neighbours", action="store_true", help="choose among shipped forms of neighbouring classes")
    parser.add_argument("--out", type=Path, help="file for the forms")
    wanted = parser.parse_args()
    if wanted.keep and not wanted.out:
        parser.error(
            "--keep: its forms are candidates, not to ship before schedule_regret.py --against; add --out FILE"
        )
    samples, target = read_samples([*wanted.files, *wanted.again]), wanted.target
    shipped = forms_file(str(target))
    keeps = wanted.keep or wanted.candidates or wanted.neighbours
    kept, before = (forms_of(str(target), "shipped"), shipped) if keeps else ({}, None)
    if wanted.candidates or wanted.neighbours:
        candidates = of_neighbours(kept) if wanted.neighbours else [read_forms(wanted.candidates)]
        fitting: Fitting = Settling(samples, target, kept, candidates)
    else:
        fitting = Fitting(samples, target, kept)
    show_regret(samples, {
        "rules": [sample.regrets.get("", math.nan) for sample in samples],
        "before": [sample.regrets.get(sample.chosen, math.nan) for sample in samples],
        "fitted": fitting.unseen(),
    })  # fmt: skip
    path = wanted.out or shipped
    write_forms({"target": str(target), **facts_of(wanted.files, before)}, fitting.fitted(), path)
    print(f"written: {path}")


def facts_of(files: Sequence[Path], before: Path | None) -> dict[str, object]:
    """Facts about what forms were fitted to: the measurements in files, and what the forms before were fitted to."""
    lines = [path.read_text(encoding="utf-8").splitlines() for path in files]
    machines = [json.loads(head) for head, *_ in lines]
    known = json.loads(read_sealed(before)) if before else {"devices": [], "drivers": [], "samples": 0}
    return {
        "devices": sorted({*known["devices"], *(each["device"] for each in machines)}),
        "drivers": sorted({*known["drivers"], *(each["driver"] for each in machines)}),
        "date": max(each["date"] for each in machines),
        "samples": known["samples"] + sum(len(samples) for _, *samples in lines),
    }


def show_regret(samples: Sequence[Sample], policies: dict[str, list[float]]) -> None:
    """Print mean and worst regret of each op and class of rows, and of all."""
    for name, regrets in policies.items():
        cells = defaultdict(list)
        for sample, regret in zip(samples, regrets, strict=True):
            if not math.isnan(regret):
                cells[sample.op, sample.row_class].append(regret)
                cells["all", sample.row_class].append(regret)
        print(f"\n{name:20}" + "".join(f"{row_class:>16}" for row_class in ROW_CLASSES))
        for op in dict.fromkeys(op for op, _ in cells):
            print(f"{op:20}" + "".join(f"{mean_and_worst(cells[op, row_class]):>16}" for row_class in ROW_CLASSES))
        known = [regret for row_class in ROW_CLASSES for regret in cells.pop(("all", row_class), [])]
        each_cell = [each for each in cells.values() if each]
        print(
            f"{name}: {mean_and_worst(known)} of {len(known)} cases, {len(regrets) - len(known)} not measured; "
            f"{sum(sum(each) / len(each) > 0.03 for each in each_cell)} of {len(each_cell)} ops and classes over 3 %, "
            f"{sum(max(each) > 0.1 for each in each_cell)} with a case over 10 %"
        )


def mean_and_worst(values: Sequence[float]) -> str:
    """Text of a mean and a maximum."""
    return f"{sum(values) / len(values):.1%}, {max(values):.1%}" if values else "-"


if __name__ == "__main__":
    main()
