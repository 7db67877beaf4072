"""The ops that work on whole rows: their arguments."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from .arguments import Argument, ScalarArgument, TensorArgument
from .config import KernelConfig
from .config_rules import name_of_first
from .dtypes import BYTE, DTYPE_OF_FORMAT, DTYPES
from .extents import LEADING, MATRICES, ROWS, TOKENS, Extent, Shape, shape
from .numerics import AMAX_PARTS, CHUNK_SIZE, ceil_div
from .quant_spec import CODE_BITS, PACKED_COLUMNS, QuantSpec
from .rope_rules import FREQUENCIES
from .row_counts import padded_rows, written_rows

# Words in the control block of a workspace; its members are those of `Workspace` in common/workspace.h.
CONTROL_WORDS = 32
# The fields of tensors from which the entry point computes an expert's rows; stages see only the result.
OFFSETS = ("offsets", "scale_offsets")


def row_arguments(config: KernelConfig) -> tuple[Argument, ...]:
    """The arguments of a row-wise kernel, in calling order."""
    if config.pair:
        return _pair_interface(config)
    if config.sinkhorn:
        return _mapping(config)
    arguments: list[Argument] = [first_tensor(config)]
    if config.masked:
        arguments.append(TensorArgument("mask", ("int32",), shape(MATRICES)))
    if config.experts:
        arguments += _offsets(config)
    if config.all_reduce:
        arguments.append(TensorArgument("workspace", ("int64",), shape(CONTROL_WORDS)))
    if config.scatters:
        arguments.append(strided_rows("whole", config.input, config, row_set=1))
    if config.gathers:
        arguments.append(TensorArgument("input_rows", ("int32",), shape(LEADING, 1), is_strided=True, row_set=1))
    if config.streams:
        arguments.append(TensorArgument("A", ("float32",), shape(LEADING, config.streams), field="mix"))
    if config.normalizes:
        arguments.append(strided_rows("residual", config.input, config, is_present=config.residual))
        arguments.append(strided_rows("gate", config.input, config, is_present=config.gate != ""))
        arguments.append(_parameter("input_weight", config.weight, config, is_present=config.sandwich))
        arguments.append(weight_argument(config))
        arguments.append(_bias(config))
        arguments += _branch(config)
    if config.amax_parts:
        arguments.append(TensorArgument("amax", ("float32",), shape(config.amax_parts), is_output=True))
    else:
        arguments += _encoded_outputs(config, config.quant) if config.quant else [_half_output(config)]
    if config.normalizes:
        stores_sum = config.residual and not config.amax_parts
        sum_options: dict[str, Any] = {"is_output": True, "may_be": "residual", "is_present": stores_sum}
        arguments.append(strided_rows("residual_out", config.input, config, **sum_options))
        arguments.append(strided_rows("y_out", config.input, config, is_output=True, is_present=config.keep_norm))
        arguments += _statistics(config)
        arguments.append(ScalarArgument("eps"))
    return tuple(arguments)


def _mapping(config: KernelConfig) -> tuple[Argument, ...]:
    """The arguments of hyper-connections before a layer: from projections to the factors of streams."""
    streams = config.streams
    mixes = streams * (2 + streams)
    parts = [config.splits] if config.splits > 1 else []
    float32: dict[str, Any] = {"dtypes": ("float32",)}
    given = () if config.prenorm else (ScalarArgument("k"),)
    return (
        first_tensor(config),
        TensorArgument("dot_mix", shape=shape(*parts, ROWS, mixes), is_flat=True, **float32),
        TensorArgument("sqrsum", shape=shape(*parts, ROWS), is_flat=True, is_present=not config.prenorm, **float32),
        TensorArgument("mhc_scale", shape=shape(3), **float32),
        TensorArgument("mhc_base", shape=shape(mixes), **float32),
        TensorArgument("post_mix", shape=shape(LEADING, streams), is_output=True, is_flat=True, **float32),
        TensorArgument("comb_mix", shape=shape(LEADING, streams, streams), is_output=True, is_flat=True, **float32),
        _half_output(config),
        *given,
        *map(ScalarArgument, ("eps", "pre_eps", "sinkhorn_eps", "post_factor")),
    )


def _branch(config: KernelConfig) -> list[TensorArgument]:
    """The factors of a branch, to which a residual is added, and the modulation of the norm of their sum."""
    if config.combine != "branch":
        return []
    has_biases = config.modulation_bias
    return [
        strided_rows("branch_gate", config.input, config, is_present=config.branch_gate),
        strided_rows("modulation_scale", config.input, config, is_present=config.modulated),
        strided_rows("modulation_shift", config.input, config, is_present=config.modulated),
        _parameter("gate_bias", "float32", config, is_present=config.gate_bias),
        _parameter("scale_bias", "float32", config, is_present=has_biases),
        _parameter("shift_bias", "float32", config, is_present=has_biases),
        number("branch_scale", is_present=config.branch_scale),
    ]


def _offsets(config: KernelConfig) -> list[TensorArgument]:
    """The offsets of each expert's rows, and of its scales if these are padded, followed by the end of the last."""
    borders = shape(config.experts + 1)
    is_padded = config.row_multiple > 1
    return [
        TensorArgument(OFFSETS[0], ("int32",), borders),
        TensorArgument(OFFSETS[1], ("int32",), borders, is_present=is_padded),
    ]


def _pair_interface(config: KernelConfig) -> tuple[Argument, ...]:
    """The arguments of a norm or a rotation, twice."""
    sizes = (config.hidden_size, config.second_size or config.hidden_size)
    names = (name_of_first(config), "k")
    of = [dataclasses.replace(config, hidden_size=size, second_size=0) for size in sizes]
    return (
        *(strided_rows(name, config.input, of[i], field="input", row_set=i) for i, name in enumerate(names)),
        *((strided_rows("v", config.input, config, field="values", row_set=1),) if config.paged else ()),
        *(weight_argument(of[i], name=f"{name}_weight", row_set=i) for i, name in enumerate(names)),
        _bias(config),
        *(_rotation(config) if config.rope else ()),
        *(_paging(config) if config.paged else _pair_scales(config, names)),
        *(_pair_output(of[i], name, i) for i, name in enumerate(names)),
        *((_kept_heads(config, "v", field="values_out"),) if config.paged else ()),
        *_statistics(config),
        *((ScalarArgument("eps"),) if config.normalizes else ()),
    )


def _statistics(config: KernelConfig) -> tuple[TensorArgument, ...]:
    """The outputs for the statistic of each row."""
    if config.keep_statistics:
        return row_statistic("mean", is_output=True), row_statistic("rstd", is_output=True)
    return (_row_output("inv_rms", config, is_present=config.keep_rstd, field="rstd"),)


def row_statistic(name: str, **options: Any) -> TensorArgument:
    """A number for each row, in the shape of the rows."""
    return TensorArgument(name, ("float32",), shape(LEADING), is_flat=True, **options)


def _pair_scales(config: KernelConfig, names: tuple[str, ...]) -> list[TensorArgument]:
    """The scale of each of a pair's codes."""
    has_codes = config.quant is not None
    return [
        number(f"{name}_scale", is_present=has_codes, field="scale", row_set=i) for i, name in enumerate(names)
    ]  # fmt: skip


def _pair_output(config: KernelConfig, name: str, row_set: int) -> TensorArgument:
    if config.paged:
        return _kept_heads(config, name, field="out") if row_set else _half_output(config, "q_out", "q", field="out")
    if config.quant:
        return _codes(config, config.quant, name=f"{name}_out", row_set=row_set)
    return _half_output(config, f"{name}_out", name, field="out", row_set=row_set)


def _kept_heads(config: KernelConfig, name: str, field: str) -> TensorArgument:
    """The output for heads that are also inserted into pages."""
    return _half_output(config, f"{name}_out", name, field=field, row_set=1, is_present=config.keep_heads)


def _paging(config: KernelConfig) -> list[TensorArgument]:
    """The slot of each token, the caches of keys and values, and the scales of their codes: one, or one per head."""
    dtypes = _encoded_dtypes(config.quant.element) if config.quant else (config.input,)
    options: dict[str, Any] = {"is_output": True, "table_dims": 3, "row_set": 1}
    if config.quant:
        options["c_type"] = BYTE.c_type
    pages, caches = shape(config.hidden_size), ("key_cache", "value_cache")
    scales: dict[str, Any] = {"is_present": config.quant is not None, "table_dims": 1, "row_set": 1}
    chunk_bytes = CHUNK_SIZE * DTYPES[dtypes[0]].bytes
    return [
        TensorArgument("slot_mapping", (config.slots,), shape(), field="slots", table_dims=1, row_set=1),
        *(TensorArgument(name, dtypes, pages, chunk_bytes, field=f"{name}.pages", **options) for name in caches),
        *(
            TensorArgument(f"{name[0]}_scale", ("float32",), shape(), field=f"{name}.scales", **scales)
            for name in caches
        ),
    ]


def _rotation(config: KernelConfig) -> tuple[TensorArgument, ...]:
    """The table of cosines followed by sines, or of frequencies in a single row, and each token's position."""
    size, run_bytes = config.rotary_size, angles_in_run(config) * DTYPES[config.angles].bytes
    is_row = has_frequencies(config)
    table = TensorArgument(
        "cos_sin_cache", (config.angles,), shape(1, size) if is_row else shape(size), run_bytes, field="angles",
        table_dims=0 if is_row else 1, c_type=angle_type(config),
    )  # fmt: skip
    return table, TensorArgument("positions", (config.positions,), shape(TOKENS), is_flat=True)


def has_frequencies(config: KernelConfig) -> bool:
    """Whether the table is a row of frequencies, from which cosines and sines are computed."""
    return config.angles == FREQUENCIES


def angle_type(config: KernelConfig) -> str:
    """The type of the table's elements in a source; what is computed from frequencies replaces them."""
    return DTYPES["float32" if has_frequencies(config) else config.angles].c_type


def angles_in_run(config: KernelConfig) -> int:
    """How many of a chunk's angles are contiguous: all of them if halves are whole chunks."""
    return math.gcd(CHUNK_SIZE if config.rope == "neox" else CHUNK_SIZE // 2, config.rotary_size // 2)


def strided_rows(name: str, dtype: str, config: KernelConfig, **options: Any) -> TensorArgument:
    """A tensor of whole rows, at any stride."""
    rows = shape(LEADING, config.hidden_size)
    return TensorArgument(name, (dtype,), rows, _chunk_bytes(dtype), is_strided=True, **options)


def _chunk_bytes(dtype: str) -> int:
    return CHUNK_SIZE * DTYPES[dtype].bytes


def first_tensor(config: KernelConfig) -> TensorArgument:
    """The tensor that callers pass first."""
    rows = strided_rows(name_of_first(config), config.input, config, field="input")
    if config.rows_combined == 1:
        return rows
    run_bytes = _run_columns(config) * rows.element_bytes
    combined = shape(LEADING, config.rows_combined * config.hidden_size)
    return dataclasses.replace(rows, shape=combined, run_bytes=run_bytes)


def _run_columns(config: KernelConfig) -> int:
    """How many columns that a lane loads are contiguous: both parts of a chunk if gates and values alternate in it."""
    if not config.gate_columns:
        return config.hidden_size
    return config.gate_columns if CHUNK_SIZE % config.gate_columns else CHUNK_SIZE


def weight_argument(config: KernelConfig, name: str = "", **options: Any) -> TensorArgument:
    """The factors of a norm."""
    name = name or ("gemma" if config.op == "layernorm" else "weight")
    weight = _parameter(name, config.weight, config, is_present=config.has_weight, field="weight", **options)
    if not config.weight_per_matrix and config.weights == 1:
        return weight
    rows = shape(MATRICES if config.weight_per_matrix else config.weights, config.hidden_size)
    return dataclasses.replace(weight, shape=rows, run_bytes=config.hidden_size * weight.element_bytes)


def _bias(config: KernelConfig) -> TensorArgument:
    name = "beta" if config.op == "layernorm" else "bias"
    return _parameter(name, config.weight, config, is_present=config.has_bias, field="bias")


def _parameter(name: str, dtype: str, config: KernelConfig, **options: Any) -> TensorArgument:
    """A vector with an element for each column, or several such rows in one."""
    columns = config.weight_rows * config.hidden_size
    run_bytes = config.hidden_size * DTYPES[dtype].bytes if config.weight_rows > 1 else 0
    return TensorArgument(name, (dtype,), shape(columns), _chunk_bytes(dtype), run_bytes=run_bytes, **options)


def _row_output(name: str, config: KernelConfig, **options: Any) -> TensorArgument:
    rows, row_set = _of_matrices(config, written_rows(config)), int(config.gathers)
    return TensorArgument(name, ("float32",), rows, is_output=True, is_flat=True, row_set=row_set, **options)


def _half_output(config: KernelConfig, name: str = "out", may_be: str = "input", **options: Any) -> TensorArgument:
    if config.weights > 1:
        return _outputs_of_weights(config, name)
    in_place = may_be if config.rows_combined == 1 else None
    return _gathered(strided_rows(name, config.input, config, is_output=True, may_be=in_place, **options), config)


def _gathered(output: TensorArgument, config: KernelConfig) -> TensorArgument:
    """An output unchanged, or as a dense one with the rows of all ranks."""
    if config.all_reduce != "all_gather":
        return output
    columns = output.shape[-1]
    run_bytes = columns.evaluate(rows=0) * output.element_bytes
    rows = shape(written_rows(config), columns)
    return dataclasses.replace(output, shape=rows, is_strided=False, may_be=None, run_bytes=run_bytes)


def _outputs_of_weights(config: KernelConfig, name: str) -> TensorArgument:
    """The outputs of all rows for the first weight, then those for the next."""
    one = strided_rows(name, config.input, config, is_output=True, is_flat=True)
    rows = shape(config.weights, ROWS, config.hidden_size)
    return dataclasses.replace(one, shape=rows, is_strided=False, run_bytes=config.hidden_size * one.element_bytes)


def number(name: str, **options: Any) -> TensorArgument:
    """A float32 tensor of one element."""
    return TensorArgument(name, ("float32",), shape(1), **options)


def _given_scale(name: str, config: KernelConfig, *, is_present: bool) -> TensorArgument:
    """A float32 scale, or one per matrix."""
    scale = number(name, is_present=is_present)
    if not config.scale_per_matrix:
        return scale
    return dataclasses.replace(scale, shape=shape(config.experts or MATRICES))


def _encoded_outputs(config: KernelConfig, quant: QuantSpec) -> list[Argument]:
    codes = _codes(config, quant, name="y_fp4" if quant.element == "e2m1" else "out", row_set=int(config.gathers))
    is_found = quant.needs_tensor_amax
    scale_of_nothing = 0.0 if quant.has_blocks else quant.smallest_scale
    found = [
        _row_output("row_scale", config, is_present=quant.needs_row_amax),
        TensorArgument("amax_parts", ("float32",), shape(AMAX_PARTS), is_present=is_found),
        number("tensor_scale", is_output=True, is_present=is_found, if_empty=scale_of_nothing),
        number("amax", is_output=True, is_present=is_found),
    ]
    bound = number("scale_ub", is_present=config.scale_ub)
    if quant.has_given_scales:
        return [codes, _given_scales(config, quant), *found, bound]
    if not quant.has_blocks:
        is_given = quant.block_size == "tensor" and not is_found
        return [codes, _given_scale("scale", config, is_present=is_given), *found, bound]
    global_scale = _given_scale("global_scale", config, is_present=quant.global_scale == "given")
    return [codes, *_block_scales(config, quant), global_scale, *found, bound]


def _given_scales(config: KernelConfig, quant: QuantSpec) -> TensorArgument:
    """Given scales of rows, columns or blocks."""
    rows, columns = quant.given_block
    per_row = [] if columns is None else [config.scale_columns]
    if rows == 1:
        extents = shape(LEADING, *per_row)
    else:
        extents = _of_matrices(config, *([] if rows is None else [ROWS.ceil_div(rows)]), *per_row)
    # Scales of columns are loaded by chunks.
    chunk_bytes = _chunk_bytes("float32") if columns == 1 else 0
    return TensorArgument("scale", ("float32",), extents, chunk_bytes, is_flat=True)


def _codes(config: KernelConfig, quant: QuantSpec, *, name: str, row_set: int = 0) -> TensorArgument:
    bits = CODE_BITS[quant.element]
    codes = TensorArgument(
        name,
        _encoded_dtypes(quant.element),
        shape(LEADING, ceil_div(config.encoded_size, 8 // bits)),
        CHUNK_SIZE * bits // 8,
        is_output=True,
        is_strided=True,
        field="codes",
        c_type=BYTE.c_type,
        row_set=row_set,
    )
    return _gathered(codes, config)


def _block_scales(config: KernelConfig, quant: QuantSpec) -> list[Argument]:
    dtypes = ("int32",) if quant.is_packed else _encoded_dtypes(quant.scale_format)
    c_type = BYTE.c_type if quant.is_packed else DTYPES[dtypes[-1]].c_type
    rows = LEADING if written_rows(config) == ROWS else written_rows(config)
    first = linear = shape(rows, config.scale_columns)
    if config.has_square_blocks:
        first = _of_matrices(config, ROWS.ceil_div(config.block_rows), config.scale_columns)
    elif quant.is_swizzled:
        first = _of_matrices(config, padded_rows(config) * config.padded_scale_columns)
    elif quant.is_column_major:
        columns = config.padded_scale_columns // PACKED_COLUMNS if quant.is_packed else config.scale_columns
        first = _of_matrices(config, columns, padded_rows(config))
    options: dict[str, Any] = {
        "is_output": True, "is_flat": True, "c_type": c_type, "row_set": int(config.gathers),
    }  # fmt: skip
    return [
        TensorArgument("block_scale", dtypes, first, **options),
        TensorArgument("block_scale_unswizzled", dtypes, linear, is_present=quant.both_layouts, **options),
    ]


def _encoded_dtypes(format: str) -> tuple[str, ...]:
    """The dtypes of codes or scales: that of their format and, for frameworks that lack it, uint8."""
    dtype = DTYPE_OF_FORMAT[format]
    return (dtype, "uint8") if dtype.startswith(("float4", "float8")) else (dtype,)


def _of_matrices(config: KernelConfig, *extents: Extent | int) -> Shape:
    """The shape of something that each matrix of a batch has separately."""
    return shape(MATRICES, *extents) if config.batched else shape(*extents)
