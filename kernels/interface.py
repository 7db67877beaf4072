"""The arguments of each op: their order, dtypes, shapes and roles, defined once for every other place that needs them.

The generated source's `Arguments`, the launch recipe that the launcher checks calls against, and the dispatcher's
specialization all derive from what `interface` returns.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from operator import add, mul
from typing import Any

from .config import KernelConfig
from .numerics import CHUNK_SIZE, ceil_div, round_up
from .quant_spec import CODE_BITS, QuantSpec, smallest_fp8_scale

C_TYPES = {"float16": "Float16", "bfloat16": "BFloat16", "float32": "float", "float8_e4m3fn": "Float8E4M3"}
ELEMENT_BYTES = {"Float16": 2, "BFloat16": 2, "float": 4, "Float8E4M3": 1, "UInt8": 1, "Int32": 4}
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
# of the leading dimensions; of one matrix in a batch), "M2", that of the second row set, and "B", that of matrices.
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


def interface(config: KernelConfig) -> tuple[Argument, ...]:
    """The arguments of `config`'s kernel, in calling order.

    Which there are depends on the op and the kind of encoding alone; some are absent in some configurations.
    """
    if config.pair:
        return _pair_interface(config)
    arguments: list[Argument] = [_input(config)]
    if config.masked:
        arguments.append(TensorArgument("mask", "Int32", ("int32",), ("B",)))
    if config.streams:
        arguments.append(TensorArgument("A", "float", ("float32",), ("...", config.streams), field="mix"))
    if config.normalizes:
        arguments.append(_rows("residual", config.input, config, is_present=config.residual))
        arguments.append(_weight(config))
        arguments.append(_bias(config))
    if config.amax_only:
        arguments.append(_number("amax", is_output=True, is_zeroed=True))
    else:
        arguments += _encoded_outputs(config, config.quant) if config.quant else [_half_output(config)]
    if config.normalizes:
        stores_sum = config.residual and not config.amax_only
        sum_options: dict[str, Any] = {"is_output": True, "may_be": "residual", "is_present": stores_sum}
        arguments.append(_rows("residual_out", config.input, config, **sum_options))
        arguments.append(_rows("y_out", config.input, config, is_output=True, is_present=config.keep_norm))
        arguments.append(_row_output("inv_rms", config, is_present=config.keep_rstd))
        arguments.append(ScalarArgument("eps"))
    return tuple(arguments)


def _pair_interface(config: KernelConfig) -> tuple[Argument, ...]:
    """Those of a plain norm, twice."""
    names = ("q", "k")
    return (
        *(_rows(name, config.input, config, field="input", row_set=i) for i, name in enumerate(names)),
        *(_weight(config, name=f"{name}_weight", row_set=i) for i, name in enumerate(names)),
        _bias(config),
        *(_half_output(config, f"{name}_out", name, field="out", row_set=i) for i, name in enumerate(names)),
        _row_output("inv_rms", config, is_present=False),
        ScalarArgument("eps"),
    )


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


def _weight(config: KernelConfig, name: str = "", **options: Any) -> TensorArgument:
    c_type = C_TYPES[config.weight]
    chunk_bytes = CHUNK_SIZE * ELEMENT_BYTES[c_type]
    name = name or ("gemma" if config.op == "layernorm" else "weight")
    shape = (config.hidden_size,)
    return TensorArgument(name, c_type, (config.weight,), shape, chunk_bytes, field="weight", **options)


def _bias(config: KernelConfig) -> TensorArgument:
    chunk_bytes = CHUNK_SIZE * ELEMENT_BYTES["float"]
    is_present = config.op == "layernorm"
    shape = (config.hidden_size,)
    return TensorArgument("beta", "float", ("float32",), shape, chunk_bytes, is_present=is_present, field="bias")


def _row_output(name: str, config: KernelConfig, *, is_present: bool) -> TensorArgument:
    shape = _of_matrices(config, "M")
    return TensorArgument(name, "float", ("float32",), shape, is_output=True, is_present=is_present, is_flat=True)


def _half_output(config: KernelConfig, name: str = "out", may_be: str = "input", **options: Any) -> TensorArgument:
    return _rows(name, config.input, config, is_output=True, may_be=may_be, **options)


def _number(name: str, **options: Any) -> TensorArgument:
    """A float32 tensor of one element."""
    return TensorArgument(name, "float", ("float32",), (1,), **options)


def _given_scale(name: str, config: KernelConfig, *, is_present: bool) -> TensorArgument:
    """A float32 scale, or one for each matrix."""
    number = _number(name, is_present=is_present)
    return dataclasses.replace(number, shape=("B",)) if config.scale_per_matrix else number


def _encoded_outputs(config: KernelConfig, quant: QuantSpec) -> list[Argument]:
    name, dtypes = _CODES[quant.element]
    bits = CODE_BITS[quant.element]
    codes = TensorArgument(
        name, "UInt8", dtypes, ("...", config.encoded_size * bits // 8), CHUNK_SIZE * bits // 8,
        is_output=True, is_strided=True, field="codes",
    )  # fmt: skip
    is_found = quant.needs_tensor_amax
    scale_of_nothing = 0.0 if quant.has_blocks else smallest_fp8_scale(quant.element)
    found = [
        _row_output("row_scale", config, is_present=quant.needs_row_amax),
        _number("amax", is_present=is_found),
        _number("tensor_scale", is_output=True, is_present=is_found, if_empty=scale_of_nothing),
    ]
    bound = _number("scale_ub", is_present=config.scale_ub)
    if not quant.has_blocks:
        is_given = quant.block_size == "tensor" and not is_found
        return [codes, _given_scale("scale", config, is_present=is_given), *found, bound]
    global_scale = _given_scale("global_scale", config, is_present=quant.global_scale == "given")
    return [codes, *_block_scales(config, quant), global_scale, *found, bound]


def _block_scales(config: KernelConfig, quant: QuantSpec) -> list[Argument]:
    c_type, dtypes = _SCALES[quant.scale_format]
    columns = config.encoded_size // config.block_size
    linear: tuple[Extent, ...] = ("...", columns)
    first = linear
    if quant.is_swizzled:
        first = _of_matrices(config, ["*", padded_rows(config), round_up(columns, 4)])
    elif quant.is_column_major:
        first = _of_matrices(config, columns, padded_rows(config))
    return [
        TensorArgument("block_scale", c_type, dtypes, first, is_output=True, is_flat=True),
        TensorArgument(
            "block_scale_unswizzled",
            c_type,
            dtypes,
            linear,
            is_output=True,
            is_present=quant.both_layouts,
            is_flat=True,
        ),
    ]


def _of_matrices(config: KernelConfig, *extents: Extent) -> tuple[Extent, ...]:
    """The shape of what each matrix of a batch has for itself."""
    return ("B", *extents) if config.batched else extents


def padded_rows(config: KernelConfig) -> Extent:
    """The rows and those that pad the scales' layout; of each matrix in a batch."""
    multiple = config.quant.row_multiple if config.quant else 1
    return "M" if multiple == 1 else ["round_up", "M", multiple]


def grid_size(config: KernelConfig, rows_per_block: int) -> Extent:
    """Blocks of `rows_per_block` rows, each of one row set or matrix, that cover all rows a kernel visits."""
    # What a mask leaves out is not padded either.
    rows = "M" if config.masked else padded_rows(config)
    blocks = rows if rows_per_block == 1 else ["ceil_div", rows, rows_per_block]
    if config.batched:
        return ["*", "B", blocks]
    return ["+", blocks, "M2" if rows_per_block == 1 else ["ceil_div", "M2", rows_per_block]] if config.pair else blocks


def evaluate(extent: Extent, rows: int, matrices: int = 1, second_rows: int = 0) -> int:
    """The value of an extent for M = `rows`; the launcher has the same evaluator in C++."""
    if isinstance(extent, int):
        return extent
    if isinstance(extent, str):
        return {"M": rows, "B": matrices, "M2": second_rows}[extent]
    operator, *operands = extent
    return _OPERATORS[operator](*(evaluate(operand, rows, matrices, second_rows) for operand in operands))


_OPERATORS: dict[str, Callable[[int, int], int]] = {
    "+": add,
    "*": mul,
    "min": min,
    "round_up": round_up,
    "ceil_div": ceil_div,
}
