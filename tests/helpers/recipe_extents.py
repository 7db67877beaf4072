"""Random extents, and the extents of launch recipes in JSON, evaluated by their definition."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from jitnorm.kernels.extents import MATRICES, ROWS, SECOND_ROWS, TOKENS, Extent, extent


def extents() -> st.SearchStrategy[Extent]:
    """A strategy for extents built from a few operations."""
    symbols: st.SearchStrategy[Extent] = st.sampled_from([ROWS, SECOND_ROWS, MATRICES, TOKENS])
    leaves = symbols | st.integers(0, 100000).map(extent)
    operations = (Extent.__add__, Extent.__mul__, Extent.__mod__, Extent.at_most, Extent.round_up, Extent.ceil_div)
    return st.recursive(
        leaves,
        lambda inner: st.builds(lambda of, a, b: of(a, b), st.sampled_from(operations), inner, st.integers(1, 1000)),
        max_leaves=4,
    )


def evaluate(json: Any, rows: int, matrices: int = 1, second_rows: int = 0, tokens: int = 1) -> int:
    """The value of an extent in JSON for M = `rows`, B = `matrices`, M2 = `second_rows`, T = `tokens`."""
    if isinstance(json, int):
        return json
    if isinstance(json, str):
        return {"M": rows, "B": matrices, "M2": second_rows, "T": tokens}[json]
    operator, *operands = json
    a, b = (evaluate(operand, rows, matrices, second_rows, tokens) for operand in operands)
    if operator in ("ceil_div", "round_up"):
        quotient = (a + b - 1) // b
        return quotient if operator == "ceil_div" else quotient * b
    if operator == "%":
        return a % b
    return {"+": a + b, "*": a * b, "min": min(a, b)}[operator]
