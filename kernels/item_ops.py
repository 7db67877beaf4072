"""The ops that work on independent items rather than on rows: what arguments they take and how many items there are."""

from __future__ import annotations

from .arguments import (
    C_TYPES,
    CODE_DTYPES,
    ELEMENT_BYTES,
    SCALE_TYPES,
    Argument,
    Extent,
    TensorArgument,
    block_scale_shape,
    codes_argument,
    rows_argument,
    single_argument,
)
from .config import KernelConfig
from .numerics import CHUNK_SIZE, ceil_div, round_up
from .quant_spec import CODE_BITS, SWIZZLED_ROWS, QuantSpec

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
    return (_dequantize if config.axis else _dequantize_columns)(config, config.quant)


def item_count(config: KernelConfig) -> Extent:
    """How many items a kernel visits."""
    size = config.hidden_size
    if config.op == "interleave":
        quads = ceil_div(size, INTERLEAVED_COLUMNS)
        return ["*", ["*", "B", ["round_up", "R", INTERLEAVED_ROWS]], quads]
    if config.axis == 0:
        assert config.quant
        block = config.block_size if config.op == "quantize" else _block_bytes(config, config.quant)
        return ["*", ["ceil_div", "M", block], size]
    return ["*", "M", ceil_div(size, CHUNK_SIZE)]


def _block_bytes(config: KernelConfig, quant: QuantSpec) -> int:
    return config.block_size * CODE_BITS[quant.element] // 8


def _dequantize(config: KernelConfig, quant: QuantSpec) -> tuple[Argument, ...]:
    return (
        codes_argument("data", config, quant),
        _scale(config, quant),
        *_global_scales(config, quant),
        rows_argument("out", config.input, config, is_output=True),
    )


def _scale(config: KernelConfig, quant: QuantSpec) -> TensorArgument:
    if quant.block_size == "tensor":
        return single_argument("scale")
    c_type, dtypes = SCALE_TYPES[quant.scale_format]
    shape = block_scale_shape(config, quant) if quant.has_blocks else ("M",)
    return TensorArgument("scale", c_type, dtypes, shape)


def _global_scales(config: KernelConfig, quant: QuantSpec) -> list[Argument]:
    return [
        single_argument("global_scale", is_present=quant.global_scale == "given"),
        TensorArgument("row_scale", "float", ("float32",), ("M",), is_present=quant.global_scale == "row"),
        single_argument("tensor_scale", is_present=config.tensor_scale),
    ]


# Along the first dimension M counts rows of the first tensor, so its shape says that they must be whole blocks.


def _dequantize_columns(config: KernelConfig, quant: QuantSpec) -> tuple[Argument, ...]:
    size, rows = config.hidden_size, _block_bytes(config, quant)
    scale_type, scale_dtypes = SCALE_TYPES[quant.scale_format]
    values: Extent = ["*", "M", 8 // CODE_BITS[quant.element]]
    return (
        TensorArgument(
            "data", "UInt8", CODE_DTYPES[quant.element], (["round_up", "M", rows], size),
            is_strided=True, field="codes",
        ),
        TensorArgument("scale", scale_type, scale_dtypes, (["ceil_div", "M", rows], size)),
        *_global_scales(config, quant),
        TensorArgument("out", C_TYPES[config.input], (config.input,), (values, size), is_output=True),
    )  # fmt: skip


def _quantize_columns(config: KernelConfig, quant: QuantSpec) -> tuple[Argument, ...]:
    size, block = config.hidden_size, config.block_size
    scale_type, scale_dtypes = SCALE_TYPES[quant.scale_format]
    bytes_: Extent = ["ceil_div", "M", 8 // CODE_BITS[quant.element]]
    blocks: Extent = ["ceil_div", "M", block]
    return (
        TensorArgument(
            "input", C_TYPES[config.input], (config.input,), (["round_up", "M", block], size), is_strided=True
        ),
        TensorArgument("y_fp4", "UInt8", CODE_DTYPES[quant.element], (bytes_, size), is_output=True, field="codes"),
        TensorArgument("block_scale", scale_type, scale_dtypes, (blocks, size), is_output=True),
        single_argument("global_scale", is_present=quant.global_scale == "given"),
    )


def _interleave(config: KernelConfig) -> tuple[Argument, ...]:
    c_type, columns = C_TYPES[config.input], round_up(config.hidden_size, INTERLEAVED_COLUMNS)
    size: Extent = ["*", ["*", "B", ["round_up", "R", INTERLEAVED_ROWS]], columns]
    return (
        TensorArgument("input", c_type, (config.input,), ("...", config.hidden_size), is_strided=True),
        TensorArgument(
            "out", c_type, _moved_dtypes(config), (size,), INTERLEAVED_COLUMNS * ELEMENT_BYTES[c_type], is_output=True
        ),
    )


def _shuffle(config: KernelConfig) -> tuple[Argument, ...]:
    c_type = C_TYPES[config.input]
    shape: tuple[Extent, ...] = (["round_up", "M", config.shuffle_rows], config.hidden_size)
    chunk_bytes = CHUNK_SIZE * ELEMENT_BYTES[c_type]
    return (
        TensorArgument("input", c_type, (config.input,), shape, chunk_bytes, is_strided=True),
        TensorArgument("out", c_type, _moved_dtypes(config), shape, chunk_bytes, is_output=True, is_strided=True),
    )


def _moved_dtypes(config: KernelConfig) -> tuple[str, ...]:
    """The dtypes of a copy: the input's, and uint8 in its place where a framework lacks it."""
    is_byte = C_TYPES[config.input] == "UInt8"
    return tuple(dict.fromkeys((config.input, "uint8"))) if is_byte else (config.input,)
