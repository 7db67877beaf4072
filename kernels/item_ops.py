"""The ops that work on independent items rather than on rows: their arguments and the number of items."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .arguments import Argument, TensorArgument
from .backward import SUMMED_COLUMNS, SUMMING_THREADS, sum_arguments
from .config import KernelConfig
from .config_rules import name_of_first
from .dtypes import DTYPES
from .extents import LEADING, MATRICES, ROWS, Extent, Number, shape
from .numerics import CHUNK_SIZE, ceil_div, round_up
from .quant_spec import CODE_BITS, SWIZZLED_COLUMNS, SWIZZLED_ROWS, QuantSpec
from .row_ops import first_tensor, number, row_arguments, strided_rows
from .schedule import ITEM_THREADS

INTERLEAVED_ROWS = SWIZZLED_ROWS["128x4"]
INTERLEAVED_COLUMNS = SWIZZLED_COLUMNS
# Columns of an item of ``mhc_post``: with a chunk, each lane would store half sectors, and streams take 127 registers.
STREAM_COLUMNS = CHUNK_SIZE // 2


def item_arguments(config: KernelConfig) -> tuple[Argument, ...]:
    """The arguments of a kernel of items, in calling order."""
    if config.op == "interleave":
        return _interleave(config)
    if config.op == "shuffle":
        return _shuffle(config)
    if config.op == "sum_rows":
        return sum_arguments(config)
    if config.op == "mhc_post":
        return _mhc_post(config)
    assert config.quant
    if config.op == "quantize":
        return row_arguments(config) if config.has_square_blocks else _quantize_columns(config, config.quant)
    return (_dequantize_columns if config.axis == 0 else _dequantize_rows)(config, config.quant)


def item_count(config: KernelConfig) -> Extent:
    """The number of items that a kernel visits."""
    size = config.hidden_size
    if config.op == "sum_rows":
        return Number(ceil_div(config.rows_combined * size, SUMMED_COLUMNS))
    if config.op == "interleave":
        return MATRICES * (_interleaved_rows() * ceil_div(size, INTERLEAVED_COLUMNS))
    if has_square_items(config):
        blocks = ROWS.ceil_div(config.block_rows) * config.scale_columns
        return MATRICES * blocks if config.batched else blocks
    if config.axis == 0:
        assert config.quant
        block_rows = config.block_size if config.op == "quantize" else _block_bytes(config, config.quant)
        return ROWS.ceil_div(block_rows) * size
    rows = MATRICES * ROWS if config.batched else ROWS
    return rows * ceil_div(size, item_size(config))


def item_threads(config: KernelConfig) -> int:
    """Threads of a GPU that share an item."""
    if config.op == "sum_rows":
        return SUMMING_THREADS
    return ITEM_THREADS if has_square_items(config) else 1


def item_size(config: KernelConfig) -> int:
    """About how many elements an item has."""
    if config.op == "mhc_post":  # of each stream
        return STREAM_COLUMNS
    return config.block_rows * config.block_size if has_square_items(config) else CHUNK_SIZE


def has_square_items(config: KernelConfig) -> bool:
    """Whether an item is a square block, rather than some of a row or a column."""
    return config.op == "quantize" and config.has_square_blocks


def _quantized(config: KernelConfig, **changes: Any) -> dict[str, TensorArgument]:
    """The tensors of ``quantize`` along rows, by their fields; decoding reads its outputs."""
    row_wise = replace(config, op="quantize", axis=-1, tensor_scale=False, **changes)
    return {a.field: a for a in row_arguments(row_wise) if isinstance(a, TensorArgument)}


def _dequantize_rows(config: KernelConfig, quant: QuantSpec) -> tuple[Argument, ...]:
    of_rows = _quantized(config)
    scale = "block_scale" if quant.has_blocks else "row_scale" if quant.needs_row_amax else "scale"
    names = {"codes": name_of_first(config), scale: "scale"}
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
    values = shape(ROWS * (8 // CODE_BITS[quant.element]), size)
    dense: dict[str, Any] = {"chunk_bytes": 0, "is_strided": False}
    data: dict[str, Any] = {"name": name_of_first(config), "chunk_bytes": 0, "is_output": False}
    return (
        replace(of_rows["codes"], shape=shape(ROWS.round_up(rows), size), **data),
        replace(of_rows["block_scale"], name="scale", shape=shape(ROWS.ceil_div(rows), size), is_output=False),
        of_rows["global_scale"],
        _tensor_scale(config),
        replace(of_rows["input"], name="out", field="out", shape=values, is_output=True, **dense),
    )


def _quantize_columns(config: KernelConfig, quant: QuantSpec) -> tuple[Argument, ...]:
    size, block = config.hidden_size, config.block_size
    of_rows = _quantized(config, hidden_size=block)
    codes = shape(ROWS.ceil_div(8 // CODE_BITS[quant.element]), size)
    return (
        replace(of_rows["input"], name=name_of_first(config), shape=shape(ROWS.round_up(block), size), chunk_bytes=0),
        replace(of_rows["codes"], shape=codes, chunk_bytes=0, is_strided=False),
        replace(of_rows["block_scale"], shape=shape(ROWS.ceil_div(block), size)),
        of_rows["global_scale"],
    )


def _block_bytes(config: KernelConfig, quant: QuantSpec) -> int:
    return config.block_size * CODE_BITS[quant.element] // 8


def _interleave(config: KernelConfig) -> tuple[Argument, ...]:
    matrix = _interleaved_rows() * round_up(config.hidden_size, INTERLEAVED_COLUMNS)
    chunk_bytes = INTERLEAVED_COLUMNS * DTYPES[config.input].bytes
    linear = shape(LEADING, config.hidden_size)
    return (
        TensorArgument(name_of_first(config), (config.input,), linear, is_strided=True, field="input"),
        TensorArgument("out", _copied_dtypes(config), shape(MATRICES * matrix), chunk_bytes, is_output=True),
    )


def _interleaved_rows() -> Extent:
    return ROWS.round_up(INTERLEAVED_ROWS)


def _shuffle(config: KernelConfig) -> tuple[Argument, ...]:
    rows = shape(ROWS.round_up(config.shuffle_rows), config.hidden_size)
    chunk_bytes = CHUNK_SIZE * DTYPES[config.input].bytes
    return (
        TensorArgument(name_of_first(config), (config.input,), rows, chunk_bytes, is_strided=True, field="input"),
        TensorArgument("out", _copied_dtypes(config), rows, chunk_bytes, is_output=True, is_strided=True),
    )


def _mhc_post(config: KernelConfig) -> tuple[Argument, ...]:
    streams = first_tensor(config)
    factors: dict[str, Any] = {"dtypes": ("float32",)}
    return (
        streams,
        strided_rows("x", config.input, config, field="residual"),
        TensorArgument("post_layer_mix", shape=shape(LEADING, config.streams), field="layer_mix", **factors),
        TensorArgument("comb_res_mix", shape=shape(LEADING, config.streams, config.streams), field="mix", **factors),
        replace(streams, name="out", field="out", is_output=True),
    )


def _copied_dtypes(config: KernelConfig) -> tuple[str, ...]:
    """The input's dtype, and uint8 for frameworks that lack it."""
    is_byte = DTYPES[config.input].bytes == 1
    return tuple(dict.fromkeys((config.input, "uint8"))) if is_byte else (config.input,)
