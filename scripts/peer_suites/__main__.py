"""Runs a peer's own tests against jitnorm: its imports lead to `jitnorm.compat`.

    python scripts/peer_suites flashinfer FOLDER [--tests N] [--seed S] [--workers N] [--seconds N]
    python scripts/peer_suites vllm FOLDER
    python scripts/peer_suites sglang FOLDER

FOLDER holds the peer's sources, `tests/` among them: an unpacked source distribution, or a clone of the repository
where the distribution has no tests. Nothing of the peer is imported but its tests. Tests that skip GPUs without FP4
find one that has it. Without a GPU, everything they put on ``cuda`` is on the CPU.

Prints how many tests passed, failed and were skipped, by file, and the reason of every failure, most frequent first;
`--report FILE` writes that, and every failed test by its name. A process that a test ends is started again, behind that
test.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from names import PEERS
from report import Report
from worker import run

LAST_TEST_SECONDS = 30
MOST_STARTS = 20  # of one process


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/peer_suites", description="Runs a peer's tests against jitnorm.")
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("folder", type=Path, help="the peer's sources, with tests/")
    parser.add_argument("--tests", type=int, help="run so many, drawn by the seed; functions take turns")
    parser.add_argument("--seed", type=int, default=0, help="of the draw (default: 0)")
    parser.add_argument("--workers", type=int, default=1, help="processes (default: 1)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no test later than that")
    parser.add_argument("--report", type=Path, help="write what is printed, and every failed test, to that file")
    parser.add_argument("--files", default="", help="run the files whose name has this alone")
    parser.add_argument("-k", default="", help="as of pytest")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)  # one of the processes
    parser.add_argument("--until", type=float, default=float("inf"), help=argparse.SUPPRESS)  # for them
    parser.add_argument("--results", type=Path, help=argparse.SUPPRESS)  # where they write what they saw
    return parser.parse_args()


def main() -> int:
    options = arguments()
    if options.worker is not None:
        return run(options)
    with tempfile.TemporaryDirectory() as folder:
        run_workers(options.workers, time.time() + options.seconds, Path(folder))
        report = Report.read(sorted(Path(folder).glob("*.jsonl")))
    print(report.text())
    if options.report:
        options.report.write_text(f"{report.text()}\n{report.list_of_failures()}", encoding="utf-8")
    return 0


def run_workers(workers: int, until: float, results: Path) -> None:
    """Run this program as so many processes, each in a thread that looks after it."""
    environment = os.environ | {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // workers))}
    command = [sys.executable, *sys.argv, "--results", str(results), "--until", str(until)]

    def start(i: int) -> subprocess.Popen[bytes]:
        worker = [*command, "--worker", str(i)]
        return subprocess.Popen(worker, env=environment, stdout=subprocess.DEVNULL if i else None)

    with ThreadPoolExecutor(workers) as threads:
        list(threads.map(lambda i: look_after(lambda: start(i), until), range(workers)))


def look_after(start: Callable[[], subprocess.Popen[bytes]], until: float) -> None:
    """Start a process again when a test ended it; end it when it is in one test for too long after that time."""
    for _ in range(MOST_STARTS):
        process = start()
        try:
            status = process.wait(None if until == float("inf") else max(0, until + LAST_TEST_SECONDS - time.time()))
        except subprocess.TimeoutExpired:
            print(f"a worker did not end in time: {process.args!r}", file=sys.stderr)
            process.kill()
            return
        if not status or time.time() > until:
            return


if __name__ == "__main__":
    sys.exit(main())
