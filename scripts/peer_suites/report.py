"""The outcomes of a peer's tests."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

import pytest


@dataclass
class Report:
    """A pytest plugin: runs every Nth test and counts outcomes and reasons."""

    every: int = 1
    outcomes: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    reasons: Counter[str] = field(default_factory=Counter)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out all tests but every Nth."""
        items[:] = items[:: self.every]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Count files that cannot be read as failures."""
        if report.failed:
            self._count(report.nodeid, "failed", _last_line(report.longreprtext))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a test, once."""
        if report.skipped and report.when in ("setup", "call"):
            skipped = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self._count(report.nodeid, "skipped", skipped)
        elif report.failed:
            self._count(report.nodeid, "failed", _last_line(report.longreprtext))
        elif report.when == "call":
            self.outcomes[report.nodeid.partition("::")[0]][report.outcome] += 1

    def _count(self, test: str, outcome: str, reason: str) -> None:
        file, _, name = test.partition("::")
        self.outcomes[file][outcome] += 1
        self.reasons[f"{outcome} {name.partition('[')[0]}: {reason}"] += 1

    def show(self) -> None:
        """Print a table of the files, then the reasons."""
        print("\n| file | passed | failed | skipped |\n|---|---|---|---|")
        for file, counts in sorted(self.outcomes.items()):
            print(f"| {file} | {counts['passed']} | {counts['failed']} | {counts['skipped']} |")
        print("\n| tests | reason |\n|---|---|")
        for reason, count in self.reasons.most_common():
            print(f"| {count} | {reason} |")


def _last_line(text: str) -> str:
    """The exception and the first line that it says."""
    lines = [line.removeprefix("E").strip() for line in text.splitlines() if line.startswith("E ")]
    return (lines or text.strip().splitlines() or [""])[0][:160]
