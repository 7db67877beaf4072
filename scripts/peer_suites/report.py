"""The outcomes of a peer's tests."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

_NUMBER = re.compile(r"\d+(\.\d+)?(e[-+]?\d+)?")


@dataclass
class Report:
    """Counts outcomes and reasons.

    Attributes:
        selected: how many tests there were to run.
        outcomes: by file.
        reasons: by text, in which numbers do not count.
        examples: the first text of each, and a test.
        failures: every failed test, and what it says; of a CUDA error, the whole traceback.
    """

    selected: int = 0
    outcomes: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    reasons: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, files: Iterable[Path]) -> Report:
        """Read the lines that processes have written."""
        report = cls()
        for file in files:
            lines = [json.loads(line) for line in file.read_text().splitlines()]
            report.selected += sum(line.get("selected", 0) for line in lines)
            outcomes = [line for line in lines if "outcome" in line]
            ended = {line["test"] for line in outcomes}
            begun = (line["begun"] for line in lines if "begun" in line)
            outcomes += [
                {"test": test, "outcome": "failed", "reason": "did not end"} for test in begun if test not in ended
            ]
            for line in outcomes:
                report._add(**line)
        return report

    def _add(self, test: str, outcome: str, reason: str, details: str = "") -> None:
        file, _, name = test.partition("::")
        self.outcomes[file][outcome] += 1
        if outcome == "failed":
            self.failures[test] = f"{reason}\n{details}" if details else reason
        if reason:
            text = f"{outcome} {name.partition('[')[0]}: {reason}"
            alike = _NUMBER.sub("#", text)
            self.reasons[alike] += 1
            self.examples.setdefault(alike, text)

    def text(self) -> str:
        """A table of the files, then the reasons."""
        total = sum(self.outcomes.values(), Counter())
        lines = ["", "| file | passed | failed | skipped |", "|---|---|---|---|"]
        for file, counts in [*sorted(self.outcomes.items()), (f"all of {self.selected}", total)]:
            lines.append(f"| {file} | {counts['passed']} | {counts['failed']} | {counts['skipped']} |")
        lines += ["", "| tests | reason |", "|---|---|"]
        lines += [f"| {count} | {self.examples[alike]} |" for alike, count in self.reasons.most_common()]
        return "\n".join(lines) + "\n"

    def list_of_failures(self) -> str:
        """A line for each test that failed."""
        return "".join(f"{test}: {reason}\n" for test, reason in sorted(self.failures.items()))
