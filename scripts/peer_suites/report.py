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
    """

    selected: int = 0
    outcomes: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    reasons: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, files: Iterable[Path]) -> Report:
        """Read the lines that processes have written."""
        report = cls()
        for file in files:
            lines = [json.loads(line) for line in file.read_text().splitlines()]
            if lines and "outcome" not in lines[-1] and "test" in lines[-1]:
                lines[-1] |= {"outcome": "failed", "reason": "did not end"}
            for line in lines:
                report.selected += line.get("selected", 0)
                if "outcome" in line:
                    report._add(**line)
        return report

    def _add(self, test: str, outcome: str, reason: str) -> None:
        file, _, name = test.partition("::")
        self.outcomes[file][outcome] += 1
        if reason:
            text = f"{outcome} {name.partition('[')[0]}: {reason}"
            alike = _NUMBER.sub("#", text)
            self.reasons[alike] += 1
            self.examples.setdefault(alike, text)

    def show(self) -> None:
        """Print a table of the files, then the reasons."""
        total = sum(self.outcomes.values(), Counter())
        print("\n| file | passed | failed | skipped |\n|---|---|---|---|")
        for file, counts in [*sorted(self.outcomes.items()), (f"all of {self.selected}", total)]:
            print(f"| {file} | {counts['passed']} | {counts['failed']} | {counts['skipped']} |")
        print("\n| tests | reason |\n|---|---|")
        for alike, count in self.reasons.most_common():
            print(f"| {count} | {self.examples[alike]} |")
