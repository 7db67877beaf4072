#!/usr/bin/env python3
"""Writes the table of docs/ops.md from the ops' records.

scripts/ops_table.py
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from jitnorm.catalogue import OPS

PAGE = Path(__file__).parents[1] / "docs" / "ops.md"
HEAD = "| op | computes |\n| --- | --- |\n"


def page(present: str) -> str:
    """Generate the page, with a table from the records."""
    before, head, rest = present.partition(HEAD)
    if not head:
        raise SystemExit(f"{PAGE} has no table {HEAD!r}")
    _, _, after = rest.partition("\n\n")
    return f"{before}{HEAD}{table()}\n{after}"


def table() -> str:
    """Tabulate the ops: consecutive ones that compute the same share a row."""
    public = [op for op in OPS.values() if op.computes]
    rows = [(computes, [op.name for op in ops]) for computes, ops in groupby(public, lambda op: op.computes)]
    return "".join(f"| {', '.join(f'`{name}`' for name in names)} | {computes} |\n" for computes, names in rows)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
