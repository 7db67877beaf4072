#!/usr/bin/env python3
"""Writes the README's table of ops from their records.

scripts/readme_ops.py
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from jitnorm.catalogue import OPS

README = Path(__file__).parents[1] / "README.md"
HEAD = "| op | computes |\n| --- | --- |\n"


def page(present: str) -> str:
    """The README with the table as the records have it."""
    before, head, rest = present.partition(HEAD)
    if not head:
        raise SystemExit(f"{README} has no table {HEAD!r}")
    _, _, after = rest.partition("\n\n")
    return f"{before}{HEAD}{table()}\n{after}"


def table() -> str:
    """A row for the ops, one after another, that compute the same."""
    public = [op for op in OPS.values() if op.computes]
    rows = [(computes, [op.name for op in ops]) for computes, ops in groupby(public, lambda op: op.computes)]
    return "".join(f"| {', '.join(f'`{name}`' for name in names)} | {computes} |\n" for computes, names in rows)


if __name__ == "__main__":
    README.write_text(page(README.read_text(encoding="utf-8")), encoding="utf-8")
