"""The table of docs/ops.md is current and has all of them."""

from __future__ import annotations

import ops_table

import jitnorm
from jitnorm.catalogue import OPS

TEXT = ops_table.PAGE.read_text(encoding="utf-8")


def test_the_table_is_what_the_records_say() -> None:
    assert ops_table.page(TEXT) == TEXT, "run scripts/ops_table.py"


def test_every_public_op_has_a_row() -> None:
    public = {name for name in jitnorm.__all__ if getattr(jitnorm, name).__module__.startswith("jitnorm.ops.")}
    ops = {name for name in public if name.islower()}
    assert {op.name for op in OPS.values() if op.computes} == ops
    assert all(TEXT.count(f"`{name}`") >= 1 for name in ops)
