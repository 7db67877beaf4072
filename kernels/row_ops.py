"""The ops that work on whole rows: what arguments they take and which rows they visit."""

from __future__ import annotations

import dataclasses
from typing import Any

from .arguments import C_TYPES, ELEMENT_BYTES, Argument, Extent, ScalarArgument, TensorArgument, combine
from .config import KernelConfig
from .numerics import CHUNK_SIZE
from .quant_spec import CODE_BITS, QuantSpec, smallest_fp8_scale

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


def row_arguments(config: KernelConfig) -> tuple[Argument, ...]:
    """The arguments of a kernel of rows, in calling order."""
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
        arguments.append(number("amax", is_output=True, is_zeroed=True))
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
    return TensorArgument(name, c_type, (dtype,), ("...", config.columns), chunk_bytes, is_strided=True, **options)


def _input(config: KernelConfig) -> TensorArgument:
    rows = _rows("X" if config.streams else "input", config.input, config, field="input")
    if config.rows_combined == 1:
        return rows
    run_bytes = (config.gate_columns or config.hidden_size) * ELEMENT_BYTES[rows.c_type]
    return dataclasses.replace(rows, shape=("...", config.rows_combined * config.hidden_size), run_bytes=run_bytes)


def _weight(config: KernelConfig, name: str = "", **options: Any) -> TensorArgument:
    c_type = C_TYPES[config.weight]
    chunk_bytes = CHUNK_SIZE * ELEMENT_BYTES[c_type]
    name = name or ("gemma" if config.op == "layernorm" else "weight")
    shape = (config.columns,)
    return TensorArgument(name, c_type, (config.weight,), shape, chunk_bytes, field="weight", **options)


def _bias(config: KernelConfig) -> TensorArgument:
    chunk_bytes = CHUNK_SIZE * ELEMENT_BYTES["float"]
    is_present = config.op == "layernorm"
    shape = (config.columns,)
    return TensorArgument("beta", "float", ("float32",), shape, chunk_bytes, is_present=is_present, field="bias")


def _row_output(name: str, config: KernelConfig, *, is_present: bool) -> TensorArgument:
    shape = _of_matrices(config, "M")
    return TensorArgument(name, "float", ("float32",), shape, is_output=True, is_present=is_present, is_flat=True)


def _half_output(config: KernelConfig, name: str = "out", may_be: str = "input", **options: Any) -> TensorArgument:
    return _rows(name, config.input, config, is_output=True, may_be=may_be, **options)


def number(name: str, **options: Any) -> TensorArgument:
    """A float32 tensor of one element."""
    return TensorArgument(name, "float", ("float32",), (1,), **options)


def _given_scale(name: str, config: KernelConfig, *, is_present: bool) -> TensorArgument:
    """A float32 scale, or one for each matrix."""
    scale = number(name, is_present=is_present)
    return dataclasses.replace(scale, shape=("B",)) if config.scale_per_matrix else scale


def _encoded_outputs(config: KernelConfig, quant: QuantSpec) -> list[Argument]:
    name, dtypes = _CODES[quant.element]
    bits = CODE_BITS[quant.element]
    codes = TensorArgument(
        name, "UInt8", dtypes, ("...", combine("ceil_div", config.encoded_columns, 8 // bits)), CHUNK_SIZE * bits // 8,
        is_output=True, is_strided=True, field="codes",
    )  # fmt: skip
    is_found = quant.needs_tensor_amax
    scale_of_nothing = 0.0 if quant.has_blocks else smallest_fp8_scale(quant.element)
    found = [
        _row_output("row_scale", config, is_present=quant.needs_row_amax),
        number("amax", is_present=is_found),
        number("tensor_scale", is_output=True, is_present=is_found, if_empty=scale_of_nothing),
    ]
    bound = number("scale_ub", is_present=config.scale_ub)
    if not quant.has_blocks:
        is_given = quant.block_size == "tensor" and not is_found
        return [codes, _given_scale("scale", config, is_present=is_given), *found, bound]
    global_scale = _given_scale("global_scale", config, is_present=quant.global_scale == "given")
    return [codes, *_block_scales(config, quant), global_scale, *found, bound]


def _block_scales(config: KernelConfig, quant: QuantSpec) -> list[Argument]:
    c_type, dtypes = _SCALES[quant.scale_format]
    columns = combine("ceil_div", config.encoded_columns, config.block_size)
    linear: tuple[Extent, ...] = ("...", columns)
    first = linear
    if quant.is_swizzled:
        first = _of_matrices(config, ["*", padded_rows(config), combine("round_up", columns, 4)])
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
