"""The ops that work on independent items rather than on rows: what arguments they take and how many items there are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .arguments import C_TYPES, ELEMENT_BYTES, Argument, Extent, TensorArgument
from .config import KernelConfig
from .numerics import CHUNK_SIZE, ceil_div, round_up
from .quant_spec import CODE_BITS, SWIZZLED_ROWS, QuantSpec
from .row_ops import number, row_arguments

INTERLEAVED_ROWS = SWIZZLED_ROWS["128x4"]
INTERLEAVED_COLUMNS = 4


def item_arguments(config: KernelConfig) -> tuple[Argument, ...]:
    """The arguments of a kernel of items, in calling order."""
    if config.op == "interleave":
        return _interleave(config)
    if config.op == "shuffle":
        return _shuffle(config)
    assert config.quant
    if config.op == "quantize":
        return _quantize_columns(config, config.quant)
    return (_dequantize_columns if config.axis == 0 else _dequantize_rows)(config, config.quant)


def item_count(config: KernelConfig) -> Extent:
    """How many items a kernel visits."""
    size = config.hidden_size
    if config.op == "interleave":
        return ["*", "B", ["*", _interleaved_rows(), ceil_div(size, INTERLEAVED_COLUMNS)]]
    if config.axis == 0:
        assert config.quant
        block_rows = config.block_size if config.op == "quantize" else _block_bytes(config, config.quant)
        return ["*", ["ceil_div", "M", block_rows], size]
    rows: Extent = ["*", "B", "M"] if config.batched else "M"
    return ["*", rows, ceil_div(size, CHUNK_SIZE)]


def _quantized(config: KernelConfig, **changes: Any) -> dict[str, TensorArgument]:
    """What ``quantize`` along the rows takes, by the names of the source; decoding reads what it writes."""
    row_wise = replace(config, op="quantize", axis=-1, tensor_scale=False, **changes)
    return {a.field: a for a in row_arguments(row_wise) if isinstance(a, TensorArgument)}


def _dequantize_rows(config: KernelConfig, quant: QuantSpec) -> tuple[Argument, ...]:
    of_rows = _quantized(config)
    scale = "block_scale" if quant.has_blocks else "row_scale" if quant.block_size == "row" else "scale"
    names = {"codes": "data", scale: "scale"}
    others = ("global_scale", "row_scale") if quant.has_blocks else ()
    return (
        *(
            replace(of_rows[field], name=names.get(field, field), is_output=False)
            for field in ("codes", scale, *others)
        ),
        _tensor_scale(config),
        replace(of_rows["input"], name="out", field="out", is_output=True),
    )


def _tensor_scale(config: KernelConfig) -> TensorArgument:
    return number("tensor_scale", is_present=config.tensor_scale)


# Along the first dimension M counts rows of the first tensor; its shape says that they must be whole blocks.


def _dequantize_columns(config: KernelConfig, quant: QuantSpec) -> tuple[Argument, ...]:
    size, rows = config.hidden_size, _block_bytes(config, quant)
    of_rows = _quantized(config, hidden_size=config.block_size)
    value_rows: Extent = ["*", "M", 8 // CODE_BITS[quant.element]]
    dense: dict[str, Any] = {"chunk_bytes": 0, "is_strided": False}
    data: dict[str, Any] = {"name": "data", "chunk_bytes": 0, "is_output": False}
    return (
        replace(of_rows["codes"], shape=(["round_up", "M", rows], size), **data),
        replace(of_rows["block_scale"], name="scale", shape=(["ceil_div", "M", rows], size), is_output=False),
        of_rows["global_scale"],
        _tensor_scale(config),
        replace(of_rows["input"], name="out", field="out", shape=(value_rows, size), is_output=True, **dense),
    )


def _quantize_columns(config: KernelConfig, quant: QuantSpec) -> tuple[Argument, ...]:
    size, block = config.hidden_size, config.block_size
    of_rows = _quantized(config, hidden_size=block)
    code_rows: Extent = ["ceil_div", "M", 8 // CODE_BITS[quant.element]]
    return (
        replace(of_rows["input"], name="w", shape=(["round_up", "M", block], size), chunk_bytes=0),
        replace(of_rows["codes"], shape=(code_rows, size), chunk_bytes=0, is_strided=False),
        replace(of_rows["block_scale"], shape=(["ceil_div", "M", block], size)),
        of_rows["global_scale"],
    )


def _block_bytes(config: KernelConfig, quant: QuantSpec) -> int:
    return config.block_size * CODE_BITS[quant.element] // 8


def _interleave(config: KernelConfig) -> tuple[Argument, ...]:
    c_type = C_TYPES[config.input]
    matrix: Extent = ["*", _interleaved_rows(), round_up(config.hidden_size, INTERLEAVED_COLUMNS)]
    chunk_bytes = INTERLEAVED_COLUMNS * ELEMENT_BYTES[c_type]
    return (
        TensorArgument(
            "unswizzled_sf", c_type, (config.input,), ("...", config.hidden_size), is_strided=True, field="input"
        ),
        TensorArgument("out", c_type, _copied_dtypes(config), (["*", "B", matrix],), chunk_bytes, is_output=True),
    )


def _interleaved_rows() -> Extent:
    return ["round_up", "M", INTERLEAVED_ROWS]


def _shuffle(config: KernelConfig) -> tuple[Argument, ...]:
    c_type = C_TYPES[config.input]
    shape: tuple[Extent, ...] = (["round_up", "M", config.shuffle_rows], config.hidden_size)
    chunk_bytes = CHUNK_SIZE * ELEMENT_BYTES[c_type]
    return (
        TensorArgument("input_tensor", c_type, (config.input,), shape, chunk_bytes, is_strided=True, field="input"),
        TensorArgument("out", c_type, _copied_dtypes(config), shape, chunk_bytes, is_output=True, is_strided=True),
    )


def _copied_dtypes(config: KernelConfig) -> tuple[str, ...]:
    """The input's dtype, and uint8 in its place where a framework lacks it."""
    is_byte = ELEMENT_BYTES[C_TYPES[config.input]] == 1
    return tuple(dict.fromkeys((config.input, "uint8"))) if is_byte else (config.input,)
