"""The arguments of each op: their order, dtypes, shapes and roles, defined once for every other place that needs them.

The generated source's `Arguments`, the launch recipe that the launcher checks calls against, and the dispatcher's
specialization all derive from what `interface` returns.
"""

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
_CODES = {
    "e2m1": ("y_fp4", ("float4_e2m1fnx2", "uint8")),
    "e4m3": ("out", ("float8_e4m3fn", "uint8")),
    "e5m2": ("out", ("float8_e5m2", "uint8")),
}
_SCALES = {
    "e4m3": ("UInt8", ("float8_e4m3fn", "uint8")),
    "ue8m0": ("UInt8", ("float8_e8m0fnu", "uint8")),
    "f32": ("float", ("float32",)),
    "f32_ue8m0": ("float", ("float32",)),
}

# An extent is a number, a symbol or [operator, operand, operand]. The symbols are "M", the number of rows (the product
# of the leading dimensions; of one matrix in a batch), and "B", the number of matrices.
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
        is_flat: whether a tensor of any shape will do, if it is dense and has as many elements.
        field: as the source knows it; the name by default.
        run_bytes: bytes of its shortest contiguous run within a row, whose alignment bounds accesses; 0 for the row.
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
    field: str = ""
    run_bytes: int = 0

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


def interface(config: KernelConfig) -> tuple[Argument, ...]:
    """The arguments of `config`'s kernel, in calling order.

    Which there are depends on the op and the kind of encoding alone; some are absent in some configurations.
    """
    if not config.is_row_wise:
        from .item_ops import item_arguments  # which are made out of what this module defines

        return item_arguments(config)
    arguments: list[Argument] = [_input(config)]
    if config.streams:
        arguments.append(TensorArgument("A", "float", ("float32",), ("...", config.streams), field="mix"))
    if config.normalizes:
        arguments.append(_rows("residual", config.input, config, is_present=config.residual))
        arguments.append(_weight(config))
        arguments.append(_bias(config))
    arguments += _encoded_outputs(config, config.quant) if config.quant else [_half_output(config)]
    if config.normalizes:
        sum_options: dict[str, Any] = {"is_output": True, "may_be": "residual", "is_present": config.residual}
        arguments.append(_rows("residual_out", config.input, config, **sum_options))
        arguments.append(_rows("y_out", config.input, config, is_output=True, is_present=config.keep_norm))
        arguments.append(_row_output("inv_rms", is_present=config.keep_rstd))
        arguments.append(ScalarArgument("eps"))
    return tuple(arguments)


def _rows(name: str, dtype: str, config: KernelConfig, **options: Any) -> TensorArgument:
    c_type = C_TYPES[dtype]
    chunk_bytes = CHUNK_SIZE * ELEMENT_BYTES[c_type]
    return TensorArgument(name, c_type, (dtype,), ("...", config.hidden_size), chunk_bytes, is_strided=True, **options)


def _input(config: KernelConfig) -> TensorArgument:
    rows = _rows("X" if config.streams else "input", config.input, config, field="input")
    run_bytes = (config.gate_columns or config.hidden_size) * ELEMENT_BYTES[rows.c_type]
    if config.rows_combined == 1:
        return rows
    return dataclasses.replace(rows, shape=("...", config.rows_combined * config.hidden_size), run_bytes=run_bytes)


def _weight(config: KernelConfig) -> TensorArgument:
    c_type = C_TYPES[config.weight]
    chunk_bytes = CHUNK_SIZE * ELEMENT_BYTES[c_type]
    name = "gemma" if config.op == "layernorm" else "weight"
    return TensorArgument(name, c_type, (config.weight,), (config.hidden_size,), chunk_bytes, field="weight")


def _bias(config: KernelConfig) -> TensorArgument:
    chunk_bytes = CHUNK_SIZE * ELEMENT_BYTES["float"]
    is_present = config.op == "layernorm"
    shape = (config.hidden_size,)
    return TensorArgument("beta", "float", ("float32",), shape, chunk_bytes, is_present=is_present, field="bias")


def _row_output(name: str, *, is_present: bool) -> TensorArgument:
    return TensorArgument(name, "float", ("float32",), ("M",), is_output=True, is_present=is_present)


def _half_output(config: KernelConfig) -> TensorArgument:
    return _rows("out", config.input, config, is_output=True, may_be="input")


def _encoded_outputs(config: KernelConfig, quant: QuantSpec) -> list[Argument]:
    name, dtypes = _CODES[quant.element]
    bits = CODE_BITS[quant.element]
    codes = TensorArgument(
        name, "UInt8", dtypes, ("...", config.hidden_size * bits // 8), CHUNK_SIZE * bits // 8,
        is_output=True, is_strided=True, field="codes",
    )  # fmt: skip
    row_scale = _row_output("row_scale", is_present=quant.needs_row_amax)
    if not quant.has_blocks:
        scale = TensorArgument("scale", "float", ("float32",), (1,), is_present=quant.block_size == "tensor")
        return [codes, scale, row_scale]
    return [
        codes,
        *_block_scales(config, quant),
        TensorArgument("global_scale", "float", ("float32",), (1,), is_present=quant.global_scale == "given"),
        row_scale,
    ]


def _block_scales(config: KernelConfig, quant: QuantSpec) -> list[Argument]:
    c_type, dtypes = _SCALES[quant.scale_format]
    columns = config.hidden_size // config.block_size
    linear: tuple[Extent, ...] = ("...", columns)
    first = linear
    if quant.is_swizzled:
        first = (["*", padded_rows(config), round_up(columns, 4)],)
    elif quant.is_column_major:
        first = (columns, padded_rows(config))
    return [
        TensorArgument("block_scale", c_type, dtypes, first, is_output=True),
        TensorArgument("block_scale_unswizzled", c_type, dtypes, linear, is_output=True, is_present=quant.both_layouts),
    ]


def padded_rows(config: KernelConfig) -> Extent:
    """Rows that a kernel visits: all, and those that pad the scales' layout."""
    multiple = config.quant.row_multiple if config.quant else 1
    return "M" if multiple == 1 else ["round_up", "M", multiple]


def grid_size(config: KernelConfig, rows_per_block: int) -> Extent:
    """Blocks of `rows_per_block` rows that cover all rows a kernel visits."""
    return padded_rows(config) if rows_per_block == 1 else ["ceil_div", padded_rows(config), rows_per_block]


def evaluate(extent: Extent, rows: int, matrices: int = 1) -> int:
    """The value of an extent for M = `rows` and B = `matrices`; the launcher has the same evaluator in C++."""
    if isinstance(extent, int):
        return extent
    if isinstance(extent, str):
        return {"M": rows, "B": matrices}[extent]
    operator, a, b = extent[0], *(evaluate(operand, rows, matrices) for operand in extent[1:])
    if operator == "*":
        return a * b
    return {"round_up": round_up, "ceil_div": ceil_div}[operator](a, b)
