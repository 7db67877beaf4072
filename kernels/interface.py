"""The arguments of each op: their order, dtypes, shapes and roles, defined once for every other place that needs them.

The generated source's `Arguments`, the launch recipe that the launcher checks calls against, and the dispatcher's
specialization all derive from what `interface` returns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .config import KernelConfig
from .numerics import CHUNK_SIZE, ceil_div, round_up
from .quant_spec import QuantSpec

C_TYPES = {"float16": "Float16", "bfloat16": "BFloat16", "float32": "float"}
ELEMENT_BYTES = {"Float16": 2, "BFloat16": 2, "float": 4, "UInt8": 1}

# An extent is a number, the symbol "M" (the product of the leading dimensions) or [operator, operand, ...].
Extent = int | str | list[Any]


@dataclass(frozen=True, slots=True)
class TensorArgument:
    """One tensor of an op.

    Args:
        name: as the caller and the source know it.
        c_type: type of its elements in the source.
        dtypes: the DLPack dtypes it may have.
        shape: its extents; a first extent "..." stands for the leading dimensions that all such tensors share.
        chunk_bytes: bytes that belong to one chunk of a row; 0 if it is not accessed by chunks.
        is_output: whether the kernel writes it.
        is_strided: whether its rows may lie at any stride; otherwise it is dense.
        may_be: name of the input that this output may be, for an operation in place.
        is_present: False if this configuration does without it: the caller passes None.
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

    def access_bytes(self, vector_bytes: int) -> int:
        """Bytes of one access when 16-byte accesses of the input are narrowed to `vector_bytes`."""
        return max(ELEMENT_BYTES[self.c_type], min(16, self.chunk_bytes) * vector_bytes // 16)


@dataclass(frozen=True, slots=True)
class ScalarArgument:
    """One float32 number passed by value."""

    name: str
    c_type: str = field(default="float", init=False)


Argument = TensorArgument | ScalarArgument


def interface(config: KernelConfig) -> tuple[Argument, ...]:
    """The arguments of `config`'s kernel, in calling order."""
    outputs = _fp4_outputs(config, config.quant) if config.quant else (_half_output(config),)
    return (_rows("input", config.input, config), _weight(config), *outputs, ScalarArgument("eps"))


def _rows(name: str, dtype: str, config: KernelConfig, **options: Any) -> TensorArgument:
    c_type = C_TYPES[dtype]
    chunk_bytes = CHUNK_SIZE * ELEMENT_BYTES[c_type]
    return TensorArgument(name, c_type, (dtype,), ("...", config.hidden_size), chunk_bytes, is_strided=True, **options)


def _weight(config: KernelConfig) -> TensorArgument:
    c_type = C_TYPES[config.weight]
    chunk_bytes = CHUNK_SIZE * ELEMENT_BYTES[c_type]
    return TensorArgument("weight", c_type, (config.weight,), (config.hidden_size,), chunk_bytes)


def _half_output(config: KernelConfig) -> TensorArgument:
    return _rows("out", config.input, config, is_output=True, may_be="input")


def _fp4_outputs(config: KernelConfig, quant: QuantSpec) -> tuple[TensorArgument, ...]:
    columns = config.hidden_size // quant.block_size
    linear: tuple[Extent, ...] = ("...", columns)
    swizzled: tuple[Extent, ...] = (swizzled_scale_bytes(columns),)
    scale_dtype = {"e4m3": "float8_e4m3fn", "ue8m0": "float8_e8m0fnu"}[quant.scale_format]
    codes = TensorArgument(
        "y_fp4", "UInt8", ("float4_e2m1fnx2", "uint8"), ("...", config.hidden_size // 2), CHUNK_SIZE // 2,
        is_output=True, is_strided=True,
    )  # fmt: skip
    return (
        codes,
        _scales("block_scale", scale_dtype, swizzled if quant.is_swizzled else linear),
        _scales("block_scale_unswizzled", scale_dtype, linear, quant.both_layouts),
        TensorArgument("global_scale", "float", ("float32",), (1,), is_present=quant.global_scale == "given"),
    )


def _scales(name: str, dtype: str, shape: tuple[Extent, ...], is_present: bool = True) -> TensorArgument:
    return TensorArgument(name, "UInt8", (dtype, "uint8"), shape, is_output=True, is_present=is_present)


def swizzled_scale_bytes(columns: int) -> Extent:
    """Size of the 128x4 layout of M rows of `columns` scales: both rounded up, to 128 and to 4."""
    return ["*", ["round_up", "M", 128], round_up(columns, 4)]


def padded_rows(config: KernelConfig) -> Extent:
    """Rows that a kernel visits: all, and those that pad a swizzled scale layout."""
    return ["round_up", "M", 128] if config.quant and config.quant.is_swizzled else "M"


def grid_size(config: KernelConfig, rows_per_block: int) -> Extent:
    """Blocks of `rows_per_block` rows that cover all rows a kernel visits."""
    return padded_rows(config) if rows_per_block == 1 else ["ceil_div", padded_rows(config), rows_per_block]


def evaluate(extent: Extent, rows: int) -> int:
    """The value of an extent for M = `rows`; the launcher has the same evaluator in C++."""
    if isinstance(extent, int):
        return extent
    if isinstance(extent, str):
        return rows
    operator, a, b = extent[0], evaluate(extent[1], rows), evaluate(extent[2], rows)
    return {"*": a * b, "round_up": round_up(a, b), "ceil_div": ceil_div(a, b)}[operator]
