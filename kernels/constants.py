"""The constants of a source: a configuration, as the headers see it.

Headers name most constants in every source; a constant that a configuration does not need has a harmless value.
Constants that only few sources need, such as kRounding, are missing from the others, together with the code that names
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from zlib import crc32

from . import enumerators
from .activations import Numbers, numbers_of
from .arguments import WIDEST_ACCESS
from .backward import (
    ACCUMULATORS,
    SUMMED_COLUMNS,
    SUMMING_THREADS,
    most_segments,
    rows_of_pack,
    segments_of_cluster,
    shared_sum_bytes,
    stages,
    summed_rows,
    sums_gradients,
)
from .config import KernelConfig
from .constant import Constant, boolean, choice, floating, integer
from .dtypes import BYTE, DTYPES
from .interface import tensor_arguments
from .item_ops import INTERLEAVED_COLUMNS, INTERLEAVED_ROWS, STREAM_COLUMNS, item_threads
from .numerics import AMAX_PARTS, CHUNK_SIZE, GROUP_CHUNKS, ceil_div, next_power_of_two, round_up
from .padding import padding_turns, pads_scales
from .quant_spec import MANTISSA_BITS, MAX_CODE, MAX_EXPONENT, QuantSpec
from .row_counts import rows_of_part
from .row_ops import angle_type, angles_in_run, has_frequencies
from .schedule import ITEM_THREADS
from .schedule_constants import schedule_constants
from .short_rows import awaits_positions, holds_halves, splits_heads
from .target import Target


def constants(config: KernelConfig, target: Target) -> Iterator[str]:
    """The lines that define them."""
    found = [
        *_row_constants(config),
        *_quant_constants(config, config.quant or QuantSpec(), target),
        *_layout_constants(config, config.quant or QuantSpec()),
        *_sum_constants(config, target),
        *_access_constants(config),
        *(_rotation_constants(config, target) if config.rope else ()),
        *_launch_constants(config, target),
    ]
    yield from _types(config)
    # NVRTC creates a symbol for each variable, even constexpr ones: with these as variables, cubins were 15 % larger.
    for kind in ("int", "bool"):
        yield f"enum : {kind} {{"
        yield from (f"  {name} = {value}," for each, name, value in found if each == kind)
        yield "};"
    yield from (f"constexpr {each} {name} = {value};" for each, name, value in found if each not in ("int", "bool"))


def sample() -> str:
    """The text of common/configuration.h."""
    config = KernelConfig("rmsnorm", 4096, residual=True, quant=QuantSpec(scale_layout="128x4", global_scale="given"))
    return (
        "// A sample of the constants that a source has here, for editors: those of\n"
        f"// {config}\n"
        "// for sm_90a. kernels/constants.py writes them.\n"
        '#pragma once\n\n#include "types.h"\n\n'
        "// clang-format off\n" + "".join(f"{line}\n" for line in constants(config, Target("sm_90a")))
    )


def _types(config: KernelConfig) -> Iterator[str]:
    c_type = DTYPES[config.input].c_type
    quant = config.quant
    has_float_scales = quant is not None and quant.scale_format.startswith("f32") and not quant.is_packed
    yield f"typedef {c_type} Input;"
    yield f"typedef {DTYPES[config.weight].c_type if config.op == 'sum_rows' else c_type} Output;"
    yield f"typedef {DTYPES[config.weight].c_type if config.normalizes else 'float'} Weight;"
    yield f"typedef {'float' if has_float_scales else 'UInt8'} Scale;"
    if config.rope:
        yield f"typedef {angle_type(config)} Angle;"
        yield f"typedef {DTYPES[config.positions].c_type} Position;"
    if config.paged:
        yield f"typedef {DTYPES[config.slots].c_type} Slot;"
        yield f"typedef {BYTE.c_type if quant else c_type} Page;"


def _row_constants(config: KernelConfig) -> Iterator[Constant]:
    yield from _kind_constants(config)
    yield from _size_constants(config)
    yield from _part_constants(config)
    yield from _optional_constants(config)
    if config.all_reduce:
        yield from _rank_constants(config)
    yield from _stage_constants(config)


def _kind_constants(config: KernelConfig) -> Iterator[Constant]:
    """The op and its stages."""
    yield choice("Op", "kOp", enumerators.OPS[config.op])
    yield choice("Combine", "kCombine", f"k{config.combine.capitalize()}")
    activation = config.activation or "silu"
    yield choice("Activation", "kActivation", enumerators.ACTIVATIONS[activation.partition(":")[0]])
    if numbers := numbers_of(activation):
        yield from _activation_constants(numbers)
    if config.values_first:
        yield boolean("kValuesFirst", True)
    is_several = config.batched or config.experts
    yield choice("RowSets", "kRowSets", "kPair" if config.pair else "kMatrices" if is_several else "kOne")
    yield choice("Encoding", "kEncoding", _encoding(config))


def _size_constants(config: KernelConfig) -> Iterator[Constant]:
    """The row's length and the parts that it is divided into."""
    chunks = ceil_div(config.encoded_size, CHUNK_SIZE)
    groups = ceil_div(chunks, GROUP_CHUNKS)
    yield integer("kHiddenSize", config.encoded_size)
    yield integer("kInputSize", config.encoded_size if config.pair else config.hidden_size)
    yield boolean("kHasPowerOfTwoSize", _is_power_of_two(config.encoded_size))
    yield integer("kRowDims", config.row_dims)
    yield integer("kChunkSize", CHUNK_SIZE)
    yield integer("kGroupChunks", GROUP_CHUNKS)
    yield integer("kChunks", chunks)
    yield boolean("kHasPartialChunk", config.encoded_size % CHUNK_SIZE != 0)
    yield integer("kGroups", groups)
    yield integer("kPaddedGroups", next_power_of_two(groups))
    yield integer("kGateColumns", config.gate_columns or 1)
    yield integer("kStreams", config.streams or 1)
    yield integer("kShuffleRows", config.shuffle_rows or 8)


def _part_constants(config: KernelConfig) -> Iterator[Constant]:
    """Inputs and results besides a row, and where rows come from."""
    yield boolean("kIsMasked", config.counts_rows)
    yield boolean("kAlongColumns", config.axis == 0)
    yield boolean("kHasUnitBias", config.unit_bias)
    yield boolean("kHasBias", config.has_bias)
    yield boolean("kKeepsNorm", config.keep_norm)
    yield boolean("kKeepsMean", config.keep_statistics)
    yield boolean("kKeepsRstd", config.keep_rstd or config.keep_statistics)
    yield boolean("kStoresSum", config.residual and not config.amax_parts and not config.backward)
    yield boolean("kAddsGrad", config.residual and config.backward)
    yield boolean("kNeedsRowAmax", config.needs_row_amax or config.amax_parts > 0)
    if config.amax_parts or (config.quant and config.quant.needs_tensor_amax):
        yield integer("kAmaxParts", config.amax_parts or AMAX_PARTS)
        yield integer("kRowsPerPart", rows_of_part(config))
    if config.experts:
        yield integer("kExperts", config.experts)
    if config.gathers:
        yield boolean("kGathers", True)


def _optional_constants(config: KernelConfig) -> Iterator[Constant]:
    """Constants that only the sources that need them have."""
    if config.op == "mhc_post":
        yield boolean("kMixesLayer", True)
        yield integer("kStreamColumns", STREAM_COLUMNS)
    if config.second_size:
        yield boolean("kHasTwoSizes", True)
    if config.rounding != "once":
        yield choice("Rounding", "kRounding", enumerators.ROUNDINGS[config.rounding])
    if config.quant and config.quant.crosses_warps:
        yield boolean("kBlocksCrossWarps", True)
    if config.finish:
        yield choice("Finish", "kFinish", f"k{config.finish.capitalize()}")
    if config.weight_rows > 1:
        yield integer("kWeightRows", config.weight_rows)
    if config.sums_first:
        yield boolean("kSumsFirst", True)


def _rank_constants(config: KernelConfig) -> Iterator[Constant]:
    """The ranks, and how they sum rows."""
    yield integer("kRanks", config.ranks)
    yield integer("kCallHash", _hash_of_call(config))
    yield boolean("kRoundsSum", config.rounds_sum)
    if config.passes_sums:
        yield boolean("kPassesSums", True)
    elif config.divides_rows:
        yield boolean("kSharesSum", config.all_reduce == "two_shot")
        yield boolean("kSharesRows", config.all_reduce != "reduce_scatter")
        yield boolean("kSumsRanks", config.all_reduce != "all_gather")
    else:
        yield boolean("kSendsRows", True)
        if config.scatters:
            yield boolean("kScattersRows", True)


def _stage_constants(config: KernelConfig) -> Iterator[Constant]:
    """Branches, modulation, hyper-connections and several weights."""
    if config.combine in ("branch", "reduced"):
        yield boolean("kHasResidual", config.residual)
    if config.combine == "branch":
        yield boolean("kHasBranchGate", config.branch_gate)
        yield boolean("kHasGateBias", config.gate_bias)
        yield boolean("kHasBranchScale", config.branch_scale)
    if config.modulated:
        yield boolean("kHasModulationBias", config.modulation_bias)
    if config.sinkhorn:
        yield integer("kSinkhornRounds", config.sinkhorn)
        yield integer("kSplits", config.splits)
    if config.weights > 1:
        yield integer("kWeights", config.weights)


def _hash_of_call(config: KernelConfig) -> int:
    """A number that is equal on ranks with equal calls; it ignores alignment, strides and targets."""
    defaults: dict[str, Any] = {
        "row_dims": 1,
        "vector_bytes": WIDEST_ACCESS,
        "pdl": False,
        "many_rows": False,
        "schedule": "",
    }
    return crc32(str(replace(config, **defaults)).encode()) >> 1


def _activation_constants(numbers: Numbers) -> Iterator[Constant]:
    """The numbers that an activation computes with."""
    factor, low = numbers.exponents
    named = {
        "kSwishFactor": factor, "kSwishLow": low, "kSwishBound": numbers.bound, "kGateLimit": numbers.limit,
        "kValueOffset": numbers.beta, "kThreshold": numbers.threshold,
    }  # fmt: skip
    yield from (floating(name, f"{value.hex()}f") for name, value in named.items())


def _encoding(config: KernelConfig) -> str:
    if config.paged:
        return "kPages"
    if config.quant:
        kinds = {"kGivenScales": config.quant.has_given_scales, "kBlocks": config.quant.has_blocks}
        return next((name for name, is_it in kinds.items() if is_it), "kOneScale")
    return "kAmax" if config.amax_parts else "kValues"


def _quant_constants(config: KernelConfig, quant: QuantSpec, target: Target) -> Iterator[Constant]:
    largest = MAX_CODE[quant.element]
    global_scale = "tensor" if config.tensor_scale else quant.global_scale
    yield choice("Element", "kElement", enumerators.ELEMENTS[quant.element])
    yield boolean("kHasNativeE2M1", target.has_native_e2m1)
    yield boolean("kHasNativeFp8", target.has_native_e4m3)
    yield integer("kMaxExponent", MAX_EXPONENT[quant.element])
    yield floating("kMaxCode", f"{largest}f")
    # The float nearest to the quotient: a single IEEE rounding, done here by the compiler.
    yield floating("kReciprocalMax", f"1.0f / {largest}f")
    yield floating("kSmallestScale", f"{quant.smallest_scale:.8e}f")
    yield choice("ScaleFormat", "kScaleFormat", enumerators.SCALE_FORMATS[quant.scale_format])
    yield choice("ScaleOwner", "kScaleOwner", enumerators.SCALE_OWNERS.get(str(quant.block_size), "kBlock"))
    yield choice("ScaleRounding", "kScaleRounding", enumerators.SCALE_ROUNDINGS[quant.scale_rounding])
    if quant.scale_rounding == "even":
        yield integer("kHalfOfLastBit", 1 << (22 - MANTISSA_BITS[quant.element]))
    yield choice("ScaleChoice", "kScaleChoice", "kFourOverSix" if quant.four_over_six else "kOnly")
    yield boolean("kSumsAbsoluteErrors", quant.four_over_six == "mae")
    yield floating("kMaxBlockScale", f"{quant.e4m3_max:.8e}f" if quant.e4m3_max % 1 else f"{quant.e4m3_max}.0f")
    yield choice("GlobalScaleKind", "kGlobalScale", enumerators.GLOBAL_SCALES[global_scale])
    yield boolean("kPowerOfTwoScales", quant.scale_format in ("ue8m0", "f32_ue8m0"))
    yield boolean("kInvertsGlobalScale", config.inverse_global_scale)
    yield boolean("kScalePerMatrix", config.scale_per_matrix)
    yield boolean("kHasAmaxBound", config.scale_ub)


def _layout_constants(config: KernelConfig, quant: QuantSpec) -> Iterator[Constant]:
    """Blocks and where their scales are stored: `interleave` has scales that nothing is encoded with."""
    block_size = quant.block_columns if quant.has_blocks else CHUNK_SIZE
    columns, padded = config.scale_columns, config.padded_scale_columns
    row_multiple = config.row_multiple
    if config.op == "interleave":
        columns, padded = config.hidden_size, round_up(config.hidden_size, INTERLEAVED_COLUMNS)
        row_multiple = INTERLEAVED_ROWS
    block_rows = quant.block_rows
    if quant.has_given_scales:  # 0 stands for all rows
        block_rows = quant.given_block[0] or 0
        block_size = config.block_size if config.block_size > 1 else CHUNK_SIZE
    yield integer("kBlockSize", block_size)
    yield integer("kBlockRows", block_rows)
    yield integer("kScaleColumns", columns)
    yield integer("kPaddedScaleColumns", padded)
    yield integer("kPaddedRowMultiple", row_multiple)
    yield boolean("kHasSwizzledScales", quant.is_swizzled)
    yield boolean("kHasLinearScales", quant.both_layouts or not quant.is_swizzled)
    yield boolean("kHasColumnMajorScales", quant.is_column_major)
    yield boolean("kHasPackedScales", quant.is_packed)


def _sum_constants(config: KernelConfig, target: Target) -> Iterator[Constant]:
    """The division of sums over rows."""
    yield integer("kAccumulators", ACCUMULATORS)
    yield integer("kMostSegments", most_segments(config.hidden_size))
    yield integer("kRowsOfPack", rows_of_pack(config.hidden_size))
    yield integer("kStages", stages(config, target))
    yield integer("kFoldedSegments", segments_of_cluster(config, target))
    yield boolean("kFoldsSums", shared_sum_bytes(config, target) > 0)
    yield boolean("kSumsGradients", sums_gradients(config))
    yield integer("kMostSummedRows", summed_rows(config, target))
    yield integer("kSummedColumns", SUMMED_COLUMNS)
    yield integer("kSummingThreads", SUMMING_THREADS)


def _access_constants(config: KernelConfig) -> Iterator[Constant]:
    """Bytes of one access of each tensor that is accessed by chunks."""
    accesses = {"codes": 8, **dict.fromkeys(("input", "weight", "bias", "partials", "out"), WIDEST_ACCESS)}
    if config.quant and config.quant.has_given_scales:
        accesses["scale"] = WIDEST_ACCESS
    is_narrow = False
    for argument in tensor_arguments(config):
        if argument.chunk_bytes and argument.field in (*accesses, "gate"):
            accesses[argument.field] = argument.access_bytes(config.vector_bytes)
            is_narrow |= accesses[argument.field] < min(WIDEST_ACCESS, argument.chunk_bytes)
        if config.quant and argument.field == "key_cache.pages":
            accesses["codes"] = argument.access_bytes(config.vector_bytes)
    for field, count in accesses.items():
        yield integer(f"k{field.capitalize()}AccessBytes", count)
    yield boolean("kHasNarrowAccesses", is_narrow)


def _rotation_constants(config: KernelConfig, target: Target) -> Iterator[Constant]:
    (table,) = (each for each in tensor_arguments(config) if each.field == "angles")
    yield choice("Rotation", "kRotation", enumerators.ROPES[config.rope])
    yield integer("kRotarySize", config.rotary_size)
    yield integer("kHeadSize", config.head_size or config.hidden_size)
    yield boolean("kHoldsHalves", holds_halves(config) and not target.is_cpu)
    yield boolean("kSplitsHeads", splits_heads(config) and not target.is_cpu)
    yield boolean("kAwaitsPositions", awaits_positions(config))
    if has_frequencies(config):
        yield boolean("kHasFrequencies", True)
    if config.paged:
        yield boolean("kHasEncodedPages", config.quant is not None)
        yield boolean("kKeepsHeads", config.keep_heads)
    yield integer("kAnglesInRun", angles_in_run(config))
    yield integer("kAnglesAccessBytes", table.access_bytes(config.vector_bytes))


def _launch_constants(config: KernelConfig, target: Target) -> Iterator[Constant]:
    yield boolean("kHasPdl", config.pdl)
    if not target.is_cpu:
        yield integer("kThreadsPerItem", item_threads(config))
        yield boolean("kHasMaxOfThree", target.has_max_of_three)
        if target.has_packed_floats:
            yield boolean("kPacksFloats", True)
        if target.has_mixed_precision:
            yield boolean("kMixesPrecisions", True)
    if not target.is_cpu and config.is_row_wise:
        yield from schedule_constants(config, target)
        return
    if config.is_row_wise and pads_scales(config):
        yield integer("kPaddingBlocks", padding_turns(config))
    yield boolean("kTakesFastPath", False)
    yield boolean("kKeepsUnpacked", False)
    if not target.is_cpu:
        yield integer("kThreads", max(ITEM_THREADS, item_threads(config)))


def _is_power_of_two(number: int) -> bool:
    return number & (number - 1) == 0
