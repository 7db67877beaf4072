"""Runs a peer's own tests against jitnorm: its imports lead to `jitnorm.compat`.

    python scripts/peer_suites flashinfer FOLDER [--tests N] [--seed S] [--workers N] [--seconds N]
    python scripts/peer_suites vllm FOLDER
    python scripts/peer_suites sglang FOLDER

FOLDER holds the peer's sources, `tests/` among them: an unpacked source distribution, or a clone of the repository
where the distribution has no tests. Nothing of the peer is imported but its tests. Tests that skip GPUs without FP4
find one that has it. Without a GPU, everything they put on ``cuda`` is on the CPU.

Prints how many tests passed, failed and were skipped, by file, and the reason of every failure, most frequent first.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from names import PEERS
from report import Report
from worker import run

LAST_TEST_SECONDS = 30


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/peer_suites", description="Runs a peer's tests against jitnorm.")
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("folder", type=Path, help="the peer's sources, with tests/")
    parser.add_argument("--tests", type=int, help="run so many, drawn by the seed; functions take turns")
    parser.add_argument("--seed", type=int, default=0, help="of the draw (default: 0)")
    parser.add_argument("--workers", type=int, default=1, help="processes (default: 1)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no test later than that")
    parser.add_argument("--files", default="", help="run the files whose name has this alone")
    parser.add_argument("-k", default="", help="as of pytest")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)  # one of the processes
    parser.add_argument("--until", type=float, default=float("inf"), help=argparse.SUPPRESS)  # for them
    parser.add_argument("--results", type=Path, help=argparse.SUPPRESS)  # where they write what they saw
    return parser.parse_args()


def main() -> int:
    options = arguments()
    if options.worker is not None:
        run(options)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        run_workers(options.workers, time.time() + options.seconds, Path(folder))
        report = Report.read(sorted(Path(folder).glob("*.jsonl")))
    report.show()
    return 0


def run_workers(workers: int, until: float, results: Path) -> None:
    """Run this program as so many processes, and end those that are in one test for too long after that time."""
    environment = os.environ | {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // workers))}
    command = [sys.executable, *sys.argv, "--results", str(results), "--until", str(until)]
    running = [
        subprocess.Popen([*command, "--worker", str(i)], env=environment, stdout=subprocess.DEVNULL if i else None)
        for i in range(workers)
    ]
    for i, each in enumerate(running):
        try:
            each.wait(None if until == float("inf") else max(0, until + LAST_TEST_SECONDS - time.time()))
        except subprocess.TimeoutExpired:
            print(f"worker {i} did not end in time", file=sys.stderr)
            each.kill()


if __name__ == "__main__":
    sys.exit(main())
