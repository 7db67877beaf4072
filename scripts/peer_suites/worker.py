"""One of the processes that run a peer's tests."""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import pytest
import torch
from devices import blackwell_or_cpu
from names import PEERS, install

_FLAGS = ["-q", "-rN", "--noconftest", "-p", "no:cacheprovider", "--rootdir", ".", "--tb=short", "-W", "ignore"]
_FLAGS += ["--continue-on-collection-errors", "--import-mode=importlib"]  # files of one name in several folders
_CACHED_BYTES = 2 << 30  # of a GPU that others share
_DETAILS = 6000  # of a CUDA error, its last characters


def run(options: argparse.Namespace) -> int:
    """Run the tests that are this process's, and write their outcomes; not 0 if others may be left."""
    peer = PEERS[options.peer]
    install(peer)
    results = options.results.absolute() / f"{options.worker:03}.jsonl"
    os.chdir(options.folder)
    sys.path.insert(0, os.getcwd())  # tests import one another
    flags = [*_FLAGS, "-c", os.devnull, *(["-k", options.k] if options.k else [])]
    part = Part(options.worker, options.workers, options.seed, options.tests, options.until, results)
    with blackwell_or_cpu():
        pytest.main([*flags, *(file for file in peer.files if options.files in file)], plugins=[part, *peer.plugins])
    return int(part.is_context_lost)


@dataclass
class Part:
    """A pytest plugin: runs one worker's part of the tests, and writes a line of JSON for each.

    Attributes:
        worker: its number.
        workers: how many there are.
        seed: of the draw.
        tests: how many all of them run; None for all.
        until: when no test is started any more.
        results: the file of lines.
        session: what `_stop` stops.
        is_context_lost: whether no other test can use the GPU.
    """

    worker: int
    workers: int
    seed: int
    tests: int | None
    until: float
    results: Path
    session: pytest.Session | None = None
    is_context_lost: bool = False

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Remember what stops."""
        self.session = session

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave the tests of this part, in the order of the draw, without those that were begun before."""
        # One file of FlashInfer's turns torch's cache of memory off, in its whole process, in which torch then cannot
        # allocate while a graph is captured. The peer runs each file in a process of its own.
        os.environ.pop("PYTORCH_NO_CUDA_MEMORY_CACHING", None)
        items[:] = drawn(items, self.seed)[: self.tests][self.worker :: self.workers]
        begun = self._begun()
        if begun:
            items[:] = [item for item in items if item.nodeid not in begun]
        else:
            self._write(selected=len(items))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Count files that cannot be read as failures, once."""
        if report.failed and self.worker == 0 and not self._begun():
            self._outcome(report.nodeid, "failed", _what_it_says(report.longreprtext))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Leave a trace of a test that does not end."""
        self._write(begun=nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a test, once."""
        if report.skipped and report.when in ("setup", "call"):
            skipped = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self._outcome(report.nodeid, "skipped", skipped)
        elif report.failed:
            is_of_cuda = "CUDA error" in report.longreprtext
            details = report.longreprtext[-_DETAILS:] if is_of_cuda else ""
            self._outcome(report.nodeid, "failed", _what_it_says(report.longreprtext), details)
            if is_of_cuda and _is_context_lost():
                self.is_context_lost = True
                self._stop("the GPU's context is lost")
        elif report.when == "call":
            self._outcome(report.nodeid, report.outcome)

    def pytest_runtest_logfinish(self) -> None:
        """Undo what tests leave behind, and stop in time."""
        torch.set_default_device(None)
        torch.set_default_dtype(torch.float32)
        if torch.cuda.memory_reserved() > _CACHED_BYTES:
            torch.cuda.empty_cache()
        if time.time() > self.until:
            self._stop("time is up")

    def _stop(self, why: str) -> None:
        if self.session is not None:
            self.session.shouldstop = why

    def _outcome(self, test: str, outcome: str, reason: str = "", details: str = "") -> None:
        self._write(test=test, outcome=outcome, reason=reason, details=details)

    def _begun(self) -> set[str]:
        """The tests of this part that a process before this one began."""
        lines = self.results.read_text().splitlines() if self.results.exists() else []
        return {each["begun"] for each in map(json.loads, lines) if "begun" in each}

    def _write(self, **line: object) -> None:
        with self.results.open("a") as file:
            file.write(json.dumps(line) + "\n")


def _is_context_lost() -> bool:
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False


def drawn(items: list[pytest.Item], seed: int) -> list[pytest.Item]:
    """Test functions take turns, each with its tests in a drawn order: whatever comes first has some of all."""
    draw, functions = random.Random(seed), defaultdict(list)
    for item in items:
        functions[item.nodeid.partition("[")[0]].append(item)
    for tests in functions.values():
        draw.shuffle(tests)
    return [test for turn in zip_longest(*functions.values()) for test in turn if test is not None]


def _what_it_says(text: str) -> str:
    """The exception and the first lines that it says."""
    lines = [line.removeprefix("E").strip() for line in text.splitlines() if line.startswith("E ")]
    said = [line for line in lines or text.strip().splitlines() if line]
    return " ".join(said[:4])[:240].replace("|", "/")
