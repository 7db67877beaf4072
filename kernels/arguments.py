"""The arguments of an op as data: tensors, numbers, and extents that depend on how many rows there are."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from operator import add, mul
from typing import Any

from .numerics import ceil_div, round_up

C_TYPES = {
    "float16": "Float16",
    "bfloat16": "BFloat16",
    "float32": "float",
    "float8_e4m3fn": "Float8E4M3",
    **dict.fromkeys(("uint8", "float8_e5m2", "float8_e8m0fnu", "float4_e2m1fnx2"), "UInt8"),
}
ELEMENT_BYTES = {"Float16": 2, "BFloat16": 2, "float": 4, "Float8E4M3": 1, "UInt8": 1, "Int32": 4}

# An extent is a number, a symbol or [operator, operand, operand]. The symbols are "M", the number of rows (the product
# of the leading dimensions; of one matrix in a batch), "M2", that of the second row set, "B", that of matrices, and
# "H", the hidden size, of kernels that take any.
Extent = int | str | list[Any]


@dataclass(frozen=True, slots=True)
class TensorArgument:
    """One tensor of an op.

    Args:
        name: as the caller knows it.
        c_type: type of its elements in the source.
        dtypes: the DLPack dtypes it may have.
        shape: its extents; a first extent "..." stands for the leading dimensions that all such tensors of a row set
            share.
        chunk_bytes: bytes that belong to one chunk of a row; 0 if it is not accessed by chunks.
        is_output: whether the kernel writes it.
        is_strided: whether its rows may lie at any stride; otherwise it is dense.
        may_be: name of the input that this output may be, for an operation in place.
        is_present: False if this configuration does without it: the caller passes None.
        is_flat: whether a tensor of any shape will do, if it is dense and has as many elements.
        is_zeroed: whether the launcher fills it with zeros before the kernel runs.
        if_empty: what the launcher writes into an output of one element if there are no rows, and no kernel runs.
        field: as the source knows it; the name by default.
        run_bytes: bytes of its shortest contiguous run within a row, whose alignment bounds accesses; 0 for the row.
        row_set: which row set it belongs to, 0 or 1; in a source, both know it by one field.
    """

    name: str
    c_type: str
    dtypes: tuple[str, ...]
    shape: tuple[Extent, ...]
    chunk_bytes: int = 0
    is_output: bool = False
    is_strided: bool = False
    may_be: str | None = None
    is_present: bool = True
    is_flat: bool = False
    is_zeroed: bool = False
    if_empty: float = 0.0
    field: str = ""
    run_bytes: int = 0
    row_set: int = 0

    def __post_init__(self) -> None:
        if not self.field:
            object.__setattr__(self, "field", self.name)

    def access_bytes(self, vector_bytes: int) -> int:
        """Bytes of one access when 16-byte accesses of the input are narrowed to `vector_bytes`."""
        widest = min(16, self.chunk_bytes) * vector_bytes // 16
        if self.run_bytes:
            widest = min(widest, self.run_bytes & -self.run_bytes)
        return max(ELEMENT_BYTES[self.c_type], widest)


@dataclass(frozen=True, slots=True)
class ScalarArgument:
    """One float32 number passed by value."""

    name: str
    c_type: str = dataclasses.field(default="float", init=False)
    is_present: bool = dataclasses.field(default=True, init=False)


Argument = TensorArgument | ScalarArgument


def evaluate(extent: Extent, rows: int, matrices: int = 1, second_rows: int = 0, hidden_size: int = 0) -> int:
    """The value of an extent for M = `rows`; the launcher has the same evaluator in C++."""
    if isinstance(extent, int):
        return extent
    if isinstance(extent, str):
        return {"M": rows, "B": matrices, "M2": second_rows, "H": hidden_size}[extent]
    operator, *operands = extent
    return _OPERATORS[operator](*(evaluate(x, rows, matrices, second_rows, hidden_size) for x in operands))


def combine(operator: str, a: Extent, b: int) -> Extent:
    """The extent [operator, a, b], or its value where that is known: also of a size that may be any."""
    if isinstance(a, int):
        return _OPERATORS[operator](a, b)
    return a if b == 1 and operator in ("*", "round_up", "ceil_div") else [operator, a, b]


def expression(extent: Extent) -> str:
    """An extent in the language of the sources."""
    if not isinstance(extent, list):
        return {"M": "a.rows", "H": "kInputSize"}.get(extent, extent) if isinstance(extent, str) else str(extent)
    operator, x, y = extent[0], *map(expression, extent[1:])
    if operator in ("+", "*"):
        return f"({x} {operator} {y})"
    quotient = f"(({x} + {y} - 1) / {y})"
    return f"({quotient} * {y})" if operator == "round_up" else quotient


_OPERATORS: dict[str, Callable[[int, int], int]] = {
    "+": add,
    "*": mul,
    "min": min,
    "round_up": round_up,
    "ceil_div": ceil_div,
}
