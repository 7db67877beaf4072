"""What a kernel's argument is: its type, dtypes, shape and role; and the shapes that ops of both kinds share."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from .config import KernelConfig
from .numerics import CHUNK_SIZE, ceil_div, round_up
from .quant_spec import CODE_BITS, QuantSpec

C_TYPES = {
    "float16": "Float16",
    "bfloat16": "BFloat16",
    "float32": "float",
    **dict.fromkeys(("uint8", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float4_e2m1fnx2"), "UInt8"),
}
ELEMENT_BYTES = {"Float16": 2, "BFloat16": 2, "float": 4, "UInt8": 1}
CODE_DTYPES = {
    "e2m1": ("float4_e2m1fnx2", "uint8"),
    "e4m3": ("float8_e4m3fn", "uint8"),
    "e5m2": ("float8_e5m2", "uint8"),
}
# C type and dtypes of a scale.
SCALE_TYPES = {
    "e4m3": ("UInt8", ("float8_e4m3fn", "uint8")),
    "ue8m0": ("UInt8", ("float8_e8m0fnu", "uint8")),
    "f32": ("float", ("float32",)),
    "f32_ue8m0": ("float", ("float32",)),
}

# An extent is a number, a symbol or [operator, operand, ...]. Symbols are "M", the product of the first tensor's
# leading dimensions; "R", the last of these (1 if there is none), rows of a matrix; "B", the product of the others.
Extent = int | str | list[Any]


@dataclass(frozen=True, slots=True)
class TensorArgument:
    """One tensor of an op.

    Args:
        name: as the caller knows it.
        c_type: type of its elements in the source.
        dtypes: the DLPack dtypes it may have.
        shape: its extents; a first extent "..." stands for the leading dimensions that all such tensors share.
        chunk_bytes: bytes that belong to one chunk of a row; 0 if it is not accessed by chunks.
        is_output: whether the kernel writes it.
        is_strided: whether its rows may lie at any stride; otherwise it is dense.
        may_be: name of the input that this output may be, for an operation in place.
        is_present: False if this configuration does without it: the caller passes None.
        field: as the source knows it; the name by default.
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
    field: str = ""

    def __post_init__(self) -> None:
        if not self.field:
            object.__setattr__(self, "field", self.name)

    def access_bytes(self, vector_bytes: int) -> int:
        """Bytes of one access when 16-byte accesses of the input are narrowed to `vector_bytes`."""
        return max(ELEMENT_BYTES[self.c_type], min(16, self.chunk_bytes) * vector_bytes // 16)


@dataclass(frozen=True, slots=True)
class ScalarArgument:
    """One float32 number passed by value."""

    name: str
    c_type: str = dataclasses.field(default="float", init=False)
    is_present: bool = dataclasses.field(default=True, init=False)


Argument = TensorArgument | ScalarArgument


def rows_argument(name: str, dtype: str, config: KernelConfig, **options: Any) -> TensorArgument:
    """A tensor of rows of values, at any stride."""
    c_type = C_TYPES[dtype]
    chunk_bytes = CHUNK_SIZE * ELEMENT_BYTES[c_type]
    return TensorArgument(name, c_type, (dtype,), ("...", config.hidden_size), chunk_bytes, is_strided=True, **options)


def codes_argument(name: str, config: KernelConfig, quant: QuantSpec, **options: Any) -> TensorArgument:
    """The codes of rows, at any stride."""
    bits = CODE_BITS[quant.element]
    return TensorArgument(
        name, "UInt8", CODE_DTYPES[quant.element], ("...", config.hidden_size * bits // 8), CHUNK_SIZE * bits // 8,
        is_strided=True, field="codes", **options,
    )  # fmt: skip


def single_argument(name: str, *, is_present: bool = True) -> TensorArgument:
    """A float32 tensor of one element, which is only read."""
    return TensorArgument(name, "float", ("float32",), (1,), is_present=is_present)


def block_scale_shape(config: KernelConfig, quant: QuantSpec) -> tuple[Extent, ...]:
    """The shape of block scales in the layout of `quant`; the swizzled one if there are two."""
    columns = config.hidden_size // config.block_size
    if quant.is_swizzled:
        return (["*", padded_rows(config), round_up(columns, 4)],)
    return (columns, padded_rows(config)) if quant.is_column_major else ("...", columns)


def padded_rows(config: KernelConfig) -> Extent:
    """Rows with those that pad the scales' layout."""
    multiple = config.quant.row_multiple if config.quant else 1
    return "M" if multiple == 1 else ["round_up", "M", multiple]


def evaluate(extent: Extent, rows: int, matrix_rows: int | None = None) -> int:
    """The value of an extent for M = `rows` and R = `matrix_rows`; the launcher has the same evaluator in C++."""
    if isinstance(extent, int):
        return extent
    matrix_rows = rows if matrix_rows is None else matrix_rows
    if isinstance(extent, str):
        return {"M": rows, "R": matrix_rows, "B": rows // matrix_rows if matrix_rows else 0}[extent]
    operator, a, b = extent[0], evaluate(extent[1], rows, matrix_rows), evaluate(extent[2], rows, matrix_rows)
    return {"*": a * b, "round_up": round_up(a, b), "ceil_div": ceil_div(a, b)}[operator]
