"""Gives readers mutated inputs, and continues from those that reach new code.

    scripts/fuzz_readers SECONDS SEED [READER ...] [--last FILE]

The exit status is 1 if an input made a reader fail; it is printed. An input that ends the process is left in FILE.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import NamedTuple

import jitnorm
from readers.coverage import Coverage
from readers.mutations import mutated
from readers.readers import READERS, Reader

_LONGEST = 1 << 20  # bytes of an input
_CODE = Path(jitnorm.__file__).parent


class Outcome(NamedTuple):
    """The outcome of a reader: inputs, branches reached at first and at last, and how an input failed, or nothing."""

    inputs: int
    branches_at_first: int
    branches: int
    failure: str


def main() -> int:
    """Fuzz the readers that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seconds", type=float, help="for all readers together")
    parser.add_argument("seed", type=int)
    parser.add_argument("readers", nargs="*", metavar="READER", help=f"default: all of {', '.join(READERS)}")
    parser.add_argument("--last", type=Path, metavar="FILE", help="keep the input under way in a file")
    chosen = parser.parse_args()
    unknown = set(chosen.readers) - set(READERS)
    if unknown:
        parser.error(f"no such reader: {', '.join(sorted(unknown))}; there are {', '.join(READERS)}")
    logging.disable(logging.CRITICAL)
    names = chosen.readers or list(READERS)
    print("| reader | inputs | branches of valid inputs | branches | failures |\n| --- | ---: | ---: | ---: | ---: |")
    failures = []
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            reader, chance = READERS[name](Path(folder)), random.Random(f"{chosen.seed} {name}")
            outcome = fuzz(reader, chance, chosen.seconds / len(names), chosen.last)
        failures += filter(None, [outcome.failure])
        counts = f"{outcome.inputs} | {outcome.branches_at_first} | {outcome.branches}"
        print(f"| {name} | {counts} | {bool(outcome.failure):d} |", flush=True)
    print("".join(f"\n{failure}" for failure in failures), end="")
    return bool(failures)


def fuzz(reader: Reader, chance: random.Random, seconds: float, last: Path | None = None) -> Outcome:
    """Give a reader its corpus, then mutated inputs for some time or until the first failure."""
    coverage, corpus = Coverage(_CODE, _CODE.parent / "cache", _CODE.parent / "kernels"), reader.corpus()
    for data in corpus:
        coverage.extended_by(lambda data=data: reader.read(data))  # type: ignore[misc]
    first, inputs, end = coverage.size, len(corpus), time.monotonic() + seconds
    while time.monotonic() < end:
        data = mutated(chance.choice(corpus), corpus, chance)[:_LONGEST]
        inputs += 1
        if last:
            last.write_bytes(data)
        try:
            is_new = coverage.extended_by(lambda data=data: reader.read(data))  # type: ignore[misc]
        except Exception:
            return Outcome(inputs, first, coverage.size, f"{traceback.format_exc()}input: {data!r}\n")
        if is_new:
            corpus.append(data)
    return Outcome(inputs, first, coverage.size, "")


if __name__ == "__main__":
    sys.exit(main())
