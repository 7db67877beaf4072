"""Rules on the fields of a KernelConfig: their values, and which combinations are allowed."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING

from .all_reduce_rules import ALL_REDUCE, check_all_reduce
from .branch_rules import BRANCH, check_branch
from .finish_rules import FINISHED, check_activation, check_finish
from .mhc_rules import MAPPED, check_mapping
from .numerics import AMAX_PARTS, CHUNK_SIZE, GROUP_CHUNKS
from .quant_rules import check_quant
from .quant_spec import QuantSpec, require_one_of, to_text
from .rope_rules import check_rope
from .row_schedule import RowSchedule

if TYPE_CHECKING:
    from .config import KernelConfig

FLOAT_DTYPES = ("float16", "bfloat16", "float32")
# Inputs of quantize.
INPUT_DTYPES = (*FLOAT_DTYPES, "float8_e4m3fn")
# Inputs of ops that move elements without interpreting them.
MOVED_DTYPES = (*INPUT_DTYPES, "uint8", "float8_e5m2", "float8_e8m0fnu", "float4_e2m1fnx2")
VECTOR_BYTES = (1, 2, 4, 8, 16)
SHUFFLE_ROWS = (16, 32)
ROUNDINGS = ("once", "output", "hf", "vllm")
MAX_HIDDEN_SIZE = 262144
MAX_ROW_DIMS = 8
MAX_STREAMS = 4
MAX_EXPERTS = 1024
FP8_ELEMENTS = ("e4m3", "e5m2")

# The options that each op has; the others keep their defaults.
_COMBINED = ("residual", "gate_columns", "values_first", "streams", "activation")
_ROWS = ("many_rows", "batched", "masked", "scale_per_matrix", "schedule")
_ENCODED = ("quant", "amax_parts", "scale_ub", "inverse_global_scale")
_OPTIONS = {
    "rmsnorm": (
        *_COMBINED, *FINISHED, *_ROWS, *_ENCODED, "weight_per_matrix", "unit_bias", "bias", "rounding", "keep_norm",
        "keep_rstd", "backward", "frozen", *ALL_REDUCE,
    ),
    "layernorm": (
        *_COMBINED, *BRANCH, "activates_norm", *_ROWS, *_ENCODED, "rounding", "keep_norm", "keep_rstd",
        "keep_statistics", "backward", "frozen", *ALL_REDUCE,
    ),
    "quantize": (
        "gate_columns", "values_first", "streams", "activation", *MAPPED, *_ROWS, *_ENCODED, "rounding", "axis",
        "experts", "gathers", *ALL_REDUCE,
    ),
    "dequantize": ("quant", "axis", "tensor_scale", "batched", "scale_per_matrix"),
    "interleave": ("batched",),
    "shuffle": ("shuffle_rows",),
    "sum_rows": ("bias", "sums_of"),
    "mhc_post": ("streams",),
}  # fmt: skip
OPS = tuple(_OPTIONS)
# The fields that determine what is encoded.
VALUE_FIELDS = ("op", "weight", *_COMBINED, *FINISHED, *BRANCH, "unit_bias", "bias", "rounding")
NORMS = ("rmsnorm", "layernorm")
MOVES = ("interleave", "shuffle")


def default_weight(op: str, input: str) -> str:
    """The dtype of the weight by default."""
    return {"rmsnorm": input, "layernorm": "float32", "sum_rows": input}.get(op, "none")


def distinct_rounding(config: KernelConfig) -> str:
    """The first rounding with the same bits: without an encoding, the result is rounded anyway; float32 never is."""
    if config.input == "float32":
        return "once"
    rounding = config.rounding
    if rounding == "vllm" and not config.residual:
        rounding = "hf"
    if rounding in ("hf", "vllm") and not _rounds_steps(config):
        rounding = "output"
    is_encoded = config.quant is not None or config.amax_parts
    return "once" if rounding == "output" and not is_encoded else rounding


def _rounds_steps(config: KernelConfig) -> bool:
    """Whether Transformers or vLLM rounds more than the result."""
    if config.op == "quantize":
        return config.gate_columns != 0 or config.rope != ""
    # With weight + 1, everything between the sum and the norm is in float32.
    rounds_norm = bool(config.rope or config.finish or config.sandwich)
    return not config.unit_bias or rounds_norm or (config.residual and config.rounding == "hf")


def default_activation(gate_columns: int, gate: str) -> str:
    """The activation by default: SiLU for gates; else none."""
    return "silu" if gate_columns or gate else ""


def check(config: KernelConfig) -> None:
    """Raise ValueError or TypeError if a field has a value that is not allowed, or not with the others."""
    _check_fields(config)
    _check_options(config)
    _check_alignment(config)
    _check_second_size(config)
    _check_hidden_size(config)
    _check_combine(config)
    check_finish(config)
    check_mapping(config)
    check_branch(config)
    check_all_reduce(config)
    _check_experts(config)
    _check_gathering(config)
    _check_row_sets(config)
    check_rope(config)
    _check_backward(config)
    _check_schedule(config)
    check_quant(config)


def _check_fields(config: KernelConfig) -> None:
    require_one_of("op", config.op, OPS)
    if not isinstance(config.quant, QuantSpec | None):
        raise TypeError(f"quant: is {config.quant!r}; expected a QuantSpec or None")
    writes_values = config.quant is None and not config.amax_parts
    is_computed = config.rope or ((config.activation or config.sinkhorn or config.all_reduce) and writes_values)
    takes_codes = config.op == "quantize" and not is_computed
    inputs = MOVED_DTYPES if config.moves else INPUT_DTYPES if takes_codes else FLOAT_DTYPES
    require_one_of("input dtype", config.input, ("float32",) if config.op == "sum_rows" else inputs)
    weights: tuple[str, ...] = FLOAT_DTYPES if config.op == "sum_rows" else ("none",)
    if config.normalizes:
        weights = (config.input, "float32", "none")
    require_one_of("weight dtype", config.weight, tuple(dict.fromkeys(weights)))
    if config.normalizes and config.weight == "none" and (config.unit_bias or config.bias):
        name = "unit_bias" if config.unit_bias else "bias"
        raise ValueError(f"{name}: needs a weight, but there is none; omit it, or pass a weight")
    require_one_of("sums_of", config.sums_of, ("", *FLOAT_DTYPES))
    require_one_of("row_dims", config.row_dims, tuple(range(1, MAX_ROW_DIMS + 1)))
    require_one_of("vector_bytes", config.vector_bytes, VECTOR_BYTES)
    require_one_of("streams", config.streams, tuple(range(MAX_STREAMS + 1)))
    require_one_of("axis", config.axis, (-1, 0))
    require_one_of("rounding", config.rounding, ROUNDINGS if config.op != "layernorm" else ROUNDINGS[:2])
    check_activation(config)


@cache
def _defaults_of_others(op: str) -> tuple[tuple[str, object], ...]:
    """The fields that other ops have and this one lacks, with their defaults."""
    from .config import KernelConfig  # which imports this module

    others = {option for options in _OPTIONS.values() for option in options}.difference(_OPTIONS[op])
    return tuple((field.name, field.default) for field in fields(KernelConfig) if field.name in others)


def _check_options(config: KernelConfig) -> None:
    for name, default in _defaults_of_others(config.op):
        if getattr(config, name) != default:
            users = [op for op in OPS if name in _OPTIONS[op]]
            raise ValueError(
                f"op: is {config.op!r}, which has no {name}; leave it {to_text(default)}, "
                f"or use {', '.join(map(repr, users))}"
            )
    quant = config.quant
    if config.op == "mhc_post" and not config.streams:
        raise ValueError("streams: is 0, but mhc_post mixes 1 to 4 with the output of a layer")
    if config.op == "shuffle":
        require_one_of("shuffle_rows", config.shuffle_rows, SHUFFLE_ROWS)
    needs_quant = config.op in ("quantize", "dequantize") and not (
        config.amax_parts or config.activation or config.sinkhorn or config.rope or config.all_reduce
    )
    if quant is None and (config.keep_norm or needs_quant):
        raise ValueError(
            "quant: is None, but dequantize, keep_norm and, without an activation, rope or all_reduce, quantize need a "
            "QuantSpec"
        )
    if config.amax_parts and (quant is not None or config.keep_rstd or config.axis == 0):
        raise ValueError(
            f"amax_parts: is {config.amax_parts}, but quant is {quant}, keep_rstd {config.keep_rstd}, "
            f"axis {config.axis}; use None, False, -1"
        )
    is_short = config.hidden_size <= CHUNK_SIZE * GROUP_CHUNKS
    require_one_of("amax_parts", config.amax_parts, (0, 1, AMAX_PARTS) if is_short else (0, AMAX_PARTS))
    if config.keep_statistics and (config.keep_rstd or config.amax_parts):
        raise ValueError(
            "keep_statistics: is True, which writes rstd beside the mean of rows; leave keep_rstd False, amax_parts 0"
        )
    if config.scale_ub and (quant is None or not quant.may_be_bounded):
        raise ValueError(
            f"scale_ub: is given, but only FP8 and INT8 scales of rows or groups are bounded; quant is {quant}"
        )
    if config.inverse_global_scale and (quant is None or quant.global_scale != "given" or quant.has_given_scales):
        raise ValueError(f"inverse_global_scale: is True, but no global scale is given; quant is {quant}")


def _check_alignment(config: KernelConfig) -> None:
    alignment, quant = config.alignment, config.quant
    if type(alignment) is not int or alignment < 1:
        raise ValueError(f"alignment: is {alignment!r}; expected a positive int")
    if alignment == 1:
        return
    if alignment % config.block_size and config.block_size % alignment:
        raise ValueError(
            f"alignment: is {alignment}; allowed are divisors and multiples of block_size {config.block_size}"
        )
    pads = config.op == "quantize" and config.combine in ("input", "rescaled") and config.axis != 0
    if not pads or quant is None or quant.scale_format not in ("e4m3", "ue8m0"):
        raise ValueError(f"alignment: is {alignment}, but only quantize with block scales of one byte pads rows")


def _check_hidden_size(config: KernelConfig) -> None:
    size, first = config.hidden_size, name_of_first(config)
    if type(size) is not int:
        raise TypeError(f"hidden_size: is {size!r}; expected an int")
    if not 1 <= size <= MAX_HIDDEN_SIZE:
        raise ValueError(f"{first}: its last dimension (hidden size) is {size}; 1 to {MAX_HIDDEN_SIZE} is supported")
    if config.axis and size % config.block_size and not config.has_square_blocks:
        raise ValueError(
            f"{first}: its last dimension (hidden size) is {size}, "
            f"not a multiple of block_size {config.block_size}; pad the input or change block_size"
        )
    if config.encoded_size > MAX_HIDDEN_SIZE:
        raise ValueError(
            f"alignment: is {config.alignment}, which makes rows of {config.encoded_size} codes; "
            f"up to {MAX_HIDDEN_SIZE} is supported"
        )


def name_of_first(config: KernelConfig) -> str:
    """The name of the tensor that callers pass first."""
    if config.pair:
        return "q"
    if config.op == "mhc_post" or config.sinkhorn:
        return "residual"
    if config.streams:
        return "X"
    if config.op == "quantize" and config.axis == 0:
        return "w"
    return {"dequantize": "data", "interleave": "unswizzled_sf", "shuffle": "input_tensor"}.get(config.op, "input")


def _check_combine(config: KernelConfig) -> None:
    if type(config.gate_columns) is not int:
        raise TypeError(f"gate_columns: is {config.gate_columns!r}; expected an int")
    if config.gate_columns and not 1 <= config.gate_columns <= config.hidden_size:
        raise ValueError(f"granularity: is {config.gate_columns}; 1 to {config.hidden_size} is allowed")
    if config.values_first and not config.gate_columns:
        raise ValueError("values_first: is True, but there are no gates; leave it False")
    if config.gate_columns and config.hidden_size % config.gate_columns:
        raise ValueError(
            f"granularity: is {config.gate_columns}, which does not divide the hidden size {config.hidden_size}"
        )
    activates_input = config.activation and not config.activates_norm
    if sum(map(bool, (config.residual, activates_input, config.streams))) > 1:
        raise ValueError("op: can have only one of residual, gate_columns or activation, and streams")
    if config.op != "quantize" or config.rounding == "once":
        return
    if not (config.gate_columns or config.activation or config.rope) or config.input not in FLOAT_DTYPES:
        raise ValueError(
            f"rounding: is {config.rounding!r}, but without an activation of an input in {', '.join(FLOAT_DTYPES)} "
            "nothing is rounded; use 'once'"
        )


def _check_row_sets(config: KernelConfig) -> None:
    others = (
        *_COMBINED, "keep_norm", "keep_rstd", "batched", "amax_parts", "bias", "experts", "gathers", "sinkhorn",
    )  # fmt: skip
    has_op = config.op == "rmsnorm" or (config.op == "quantize" and config.rope != "")
    is_plain = has_op and not any(getattr(config, name) for name in others)
    quant = config.quant
    is_given = quant is None or (
        quant.element in FP8_ELEMENTS and quant.needs_given_scale and quant.block_size == "tensor"
    )
    if config.pair and not (is_plain and is_given):
        raise ValueError("pair: is True, which needs a plain rmsnorm or a rotation, or one in FP8 with given scales")
    if (config.masked or (config.scale_per_matrix and not config.experts)) and not config.batched:
        raise ValueError("masked, scale_per_matrix: need batched=True")
    if config.weight_per_matrix and (not config.batched or config.bias or config.weight == "none"):
        raise ValueError("weight_per_matrix: is True, which needs batched=True and a weight without a bias")
    if config.batched and config.amax_parts:
        raise ValueError("batched: is True, but the amax of a tensor is that of all its matrices; use False")
    if config.masked and config.quant and config.quant.needs_tensor_amax:
        raise ValueError("masked: is True, but the amax of a tensor is that of all its rows; use False")
    if config.scale_per_matrix and not (config.quant and config.quant.needs_given_scale):
        raise ValueError("scale_per_matrix: is True, but quant has no scale that is given")


def _check_gathering(config: KernelConfig) -> None:
    if not config.gathers:
        return
    _check_chosen_rows(config, "gathers: is given", "are gathered", "gathered")


def _check_experts(config: KernelConfig) -> None:
    if type(config.experts) is not int or not 0 <= config.experts <= MAX_EXPERTS:
        raise ValueError(f"experts: is {config.experts!r}; 0 to {MAX_EXPERTS} is allowed")
    if not config.experts:
        return
    _check_chosen_rows(config, f"experts: is {config.experts}", "belong to experts", "experts'")
    if config.quant and config.quant.is_column_major:
        raise ValueError(
            f"scale_layout: is {config.quant.scale_layout!r}, which does not keep experts' scales apart; "
            "quantize all rows at once"
        )


def _check_chosen_rows(config: KernelConfig, head: str, are_chosen: str, whose: str) -> None:
    """Check the options that all rows would have in common; the texts become part of an error."""
    if config.batched or config.has_square_blocks:
        raise ValueError(f"{head}, which excludes batched and blocks that span rows")
    if config.quant is None or config.axis == 0 or config.row_dims != 1:
        raise ValueError(f"{head}, but only encoded rows at one stride {are_chosen}")
    if config.quant.needs_tensor_amax:
        raise ValueError(f"{head}, but the amax of a tensor is that of all its rows")
    if config.quant.has_given_scales:
        raise ValueError(
            f"scale: is that of rows, columns or blocks, but {whose} rows compute theirs; pass one or none"
        )


def _check_second_size(config: KernelConfig) -> None:
    sizes = config.hidden_size, config.second_size
    if config.second_size == 0:
        return
    if not config.pair:
        raise ValueError(f"second_size: is {config.second_size!r}, but only a pair has a second input; leave it 0")
    if config.quant:
        raise ValueError(f"second_size: is {config.second_size!r}, which needs a plain rmsnorm; leave it 0")
    if type(config.second_size) is not int or not 1 <= config.second_size <= MAX_HIDDEN_SIZE:
        raise ValueError(f"k: its last dimension is {config.second_size!r}; 1 to {MAX_HIDDEN_SIZE} is supported")
    if any(size % CHUNK_SIZE for size in sizes):
        raise ValueError(
            f"k: its last dimension is {sizes[1]}, that of {name_of_first(config)} {sizes[0]}; rows of two lengths are "
            f"multiples of {CHUNK_SIZE}, so normalize others one by one"
        )


def _check_backward(config: KernelConfig) -> None:
    if config.frozen and not (config.backward and config.has_weight):
        raise ValueError("frozen: is True, which needs backward and a weight; leave it False")
    if not config.backward:
        return
    others = (
        "quant", "keep_norm", "keep_rstd", "keep_statistics", "batched", "amax_parts", "pair", "gate_columns",
        "streams", "activates_norm", "gate", "sandwich", "schedule",
    )  # fmt: skip
    if wrong := [name for name in others if getattr(config, name)]:
        raise ValueError(f"backward: is True, which excludes {wrong[0]}; only plain norms have gradients")
    if config.rounding != "once":
        raise ValueError(f"rounding: is {config.rounding!r}, which has the gradient of 'once'; leave it")


def _check_schedule(config: KernelConfig) -> None:
    """Check the form; schedule.py checks whether it fits the row and the target."""
    if config.schedule == "":
        return
    RowSchedule.parse(config.schedule)
    if not config.is_row_wise:
        raise ValueError(f"schedule: is {config.schedule!r}, but no threads share a row; leave it empty")
