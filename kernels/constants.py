"""The constants of a source: a configuration, as the headers see it.

Headers name most constants in every source; what a configuration does without has a value that does no harm there. A
source lacks the constants that only few sources need, such as kRounding, together with the code that names them.
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
    stages_statistic,
    summed_rows,
)
from .config import KernelConfig
from .dtypes import BYTE, DTYPES
from .interface import tensor_arguments
from .item_ops import INTERLEAVED_COLUMNS, INTERLEAVED_ROWS, STREAM_COLUMNS, item_threads
from .numerics import AMAX_PARTS, CHUNK_SIZE, GROUP_CHUNKS, ceil_div, next_power_of_two, round_up
from .quant_spec import MANTISSA_BITS, MAX_CODE, MAX_EXPONENT, QuantSpec
from .registers import MAX_PREFETCHED_BYTES
from .row_counts import rows_of_part
from .row_ops import angles_in_run
from .row_parts import has_separate_parts
from .row_schedule import CHUNKS_AT_ONCE
from .rows_ahead import shared_chunks, shares_parameters, staged_row_bytes, staged_rows
from .schedule import ITEM_THREADS, row_schedule, stores_in_pairs, stores_sum_early
from .short_rows import awaits_positions, holds_halves
from .signals import late_blocks
from .target import Target

Constant = tuple[str, str, str]  # type, name, value


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
        yield f"typedef {DTYPES[config.angles].c_type} Angle;"
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
    yield _choice("Op", "kOp", enumerators.OPS[config.op])
    yield _choice("Combine", "kCombine", f"k{config.combine.capitalize()}")
    activation = config.activation or "silu"
    yield _choice("Activation", "kActivation", enumerators.ACTIVATIONS[activation.partition(":")[0]])
    if numbers := numbers_of(activation):
        yield from _activation_constants(numbers)
    if config.values_first:
        yield _bool("kValuesFirst", True)
    is_several = config.batched or config.experts
    yield _choice("RowSets", "kRowSets", "kPair" if config.pair else "kMatrices" if is_several else "kOne")
    yield _choice("Encoding", "kEncoding", _encoding(config))


def _size_constants(config: KernelConfig) -> Iterator[Constant]:
    """The row's length and the parts that it is divided into."""
    chunks = ceil_div(config.encoded_size, CHUNK_SIZE)
    groups = ceil_div(chunks, GROUP_CHUNKS)
    yield _int("kHiddenSize", config.encoded_size)
    yield _int("kInputSize", config.encoded_size if config.pair else config.hidden_size)
    yield _bool("kHasPowerOfTwoSize", _is_power_of_two(config.encoded_size))
    yield _int("kRowDims", config.row_dims)
    yield _int("kChunkSize", CHUNK_SIZE)
    yield _int("kGroupChunks", GROUP_CHUNKS)
    yield _int("kChunks", chunks)
    yield _bool("kHasPartialChunk", config.encoded_size % CHUNK_SIZE != 0)
    yield _int("kGroups", groups)
    yield _int("kPaddedGroups", next_power_of_two(groups))
    yield _int("kGateColumns", config.gate_columns or 1)
    yield _int("kStreams", config.streams or 1)
    yield _int("kShuffleRows", config.shuffle_rows or 8)


def _part_constants(config: KernelConfig) -> Iterator[Constant]:
    """Inputs and results besides a row, and where rows come from."""
    yield _bool("kIsMasked", config.counts_rows)
    yield _bool("kAlongColumns", config.axis == 0)
    yield _bool("kHasUnitBias", config.unit_bias)
    yield _bool("kHasBias", config.has_bias)
    yield _bool("kKeepsNorm", config.keep_norm)
    yield _bool("kKeepsMean", config.keep_statistics)
    yield _bool("kKeepsRstd", config.keep_rstd or config.keep_statistics)
    yield _bool("kStoresSum", config.residual and not config.amax_parts and not config.backward)
    yield _bool("kAddsGrad", config.residual and config.backward)
    yield _bool("kNeedsRowAmax", config.needs_row_amax or config.amax_parts > 0)
    if config.amax_parts or (config.quant and config.quant.needs_tensor_amax):
        yield _int("kAmaxParts", config.amax_parts or AMAX_PARTS)
        yield _int("kRowsPerPart", rows_of_part(config))
    if config.experts:
        yield _int("kExperts", config.experts)
    if config.gathers:
        yield _bool("kGathers", True)


def _optional_constants(config: KernelConfig) -> Iterator[Constant]:
    """Constants that only the sources that need them have."""
    if config.op == "mhc_post":
        yield _bool("kMixesLayer", True)
        yield _int("kStreamColumns", STREAM_COLUMNS)
    if config.second_size:
        yield _bool("kHasTwoSizes", True)
    if config.rounding != "once":
        yield _choice("Rounding", "kRounding", enumerators.ROUNDINGS[config.rounding])
    if config.quant and config.quant.crosses_warps:
        yield _bool("kBlocksCrossWarps", True)
    if config.finish:
        yield _choice("Finish", "kFinish", f"k{config.finish.capitalize()}")
    if config.weight_rows > 1:
        yield _int("kWeightRows", config.weight_rows)
    if config.sums_first:
        yield _bool("kSumsFirst", True)


def _rank_constants(config: KernelConfig) -> Iterator[Constant]:
    """The ranks, and how they sum rows."""
    yield _int("kRanks", config.ranks)
    yield _int("kCallHash", _hash_of_call(config))
    yield _bool("kRoundsSum", config.rounds_sum)
    if config.passes_sums:
        yield _bool("kPassesSums", True)
    elif config.divides_rows:
        yield _bool("kSharesSum", config.all_reduce == "two_shot")
        yield _bool("kSharesRows", config.all_reduce != "reduce_scatter")
        yield _bool("kSumsRanks", config.all_reduce != "all_gather")
    else:
        yield _bool("kSendsRows", True)
        if config.scatters:
            yield _bool("kScattersRows", True)


def _stage_constants(config: KernelConfig) -> Iterator[Constant]:
    """Branches, modulation, hyper-connections and several weights."""
    if config.combine in ("branch", "reduced"):
        yield _bool("kHasResidual", config.residual)
    if config.combine == "branch":
        yield _bool("kHasBranchGate", config.branch_gate)
        yield _bool("kHasGateBias", config.gate_bias)
        yield _bool("kHasBranchScale", config.branch_scale)
    if config.modulated:
        yield _bool("kHasModulationBias", config.modulation_bias)
    if config.sinkhorn:
        yield _int("kSinkhornRounds", config.sinkhorn)
        yield _int("kSplits", config.splits)
    if config.weights > 1:
        yield _int("kWeights", config.weights)


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
    yield from (_float(name, f"{value.hex()}f") for name, value in named.items())


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
    # Without the instruction, the values of both codes cost less: 20.0 instructions per element, not 26.5.
    has_native_e2m1 = target.has_native_e2m1 and not (config.is_row_wise and quant.four_over_six)
    yield _choice("Element", "kElement", enumerators.ELEMENTS[quant.element])
    yield _bool("kHasNativeE2M1", has_native_e2m1)
    yield _bool("kHasNativeFp8", target.has_native_e4m3)
    yield _int("kMaxExponent", MAX_EXPONENT[quant.element])
    yield _float("kMaxCode", f"{largest}f")
    # The float nearest to the quotient: a single IEEE rounding, done here by the compiler.
    yield _float("kReciprocalMax", f"1.0f / {largest}f")
    yield _float("kSmallestScale", f"{quant.smallest_scale:.8e}f")
    yield _choice("ScaleFormat", "kScaleFormat", enumerators.SCALE_FORMATS[quant.scale_format])
    yield _choice("ScaleOwner", "kScaleOwner", enumerators.SCALE_OWNERS.get(str(quant.block_size), "kBlock"))
    yield _choice("ScaleRounding", "kScaleRounding", enumerators.SCALE_ROUNDINGS[quant.scale_rounding])
    if quant.scale_rounding == "even":
        yield _int("kHalfOfLastBit", 1 << (22 - MANTISSA_BITS[quant.element]))
    yield _choice("ScaleChoice", "kScaleChoice", "kFourOverSix" if quant.four_over_six else "kOnly")
    yield _bool("kSumsAbsoluteErrors", quant.four_over_six == "mae")
    yield _float("kMaxBlockScale", f"{quant.e4m3_max:.8e}f" if quant.e4m3_max % 1 else f"{quant.e4m3_max}.0f")
    yield _choice("GlobalScaleKind", "kGlobalScale", enumerators.GLOBAL_SCALES[global_scale])
    yield _bool("kPowerOfTwoScales", quant.scale_format in ("ue8m0", "f32_ue8m0"))
    yield _bool("kInvertsGlobalScale", config.inverse_global_scale)
    yield _bool("kScalePerMatrix", config.scale_per_matrix)
    yield _bool("kHasAmaxBound", config.scale_ub)


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
    yield _int("kBlockSize", block_size)
    yield _int("kBlockRows", block_rows)
    yield _int("kScaleColumns", columns)
    yield _int("kPaddedScaleColumns", padded)
    yield _int("kPaddedRowMultiple", row_multiple)
    yield _bool("kHasSwizzledScales", quant.is_swizzled)
    yield _bool("kHasLinearScales", quant.both_layouts or not quant.is_swizzled)
    yield _bool("kHasColumnMajorScales", quant.is_column_major)
    yield _bool("kHasPackedScales", quant.is_packed)


def _sum_constants(config: KernelConfig, target: Target) -> Iterator[Constant]:
    """The division of sums over rows."""
    yield _int("kAccumulators", ACCUMULATORS)
    yield _int("kMostSegments", most_segments(config.hidden_size))
    yield _int("kRowsOfPack", rows_of_pack(config.hidden_size))
    yield _int("kStages", stages(config, target))
    yield _int("kFoldedSegments", segments_of_cluster(config, target))
    yield _bool("kStagesStatistic", stages_statistic(config, target))
    yield _bool("kFoldsSums", shared_sum_bytes(config, target) > 0)
    yield _int("kMostSummedRows", summed_rows(config, target))
    yield _int("kSummedColumns", SUMMED_COLUMNS)
    yield _int("kSummingThreads", SUMMING_THREADS)


def _access_constants(config: KernelConfig) -> Iterator[Constant]:
    """Bytes of one access of each tensor that is accessed by chunks."""
    accesses = {"codes": 8, **dict.fromkeys(("input", "weight", "bias", "partials", "out"), WIDEST_ACCESS)}
    if config.quant and config.quant.has_given_scales:
        accesses["scale"] = WIDEST_ACCESS
    for argument in tensor_arguments(config):
        if argument.chunk_bytes and argument.field in (*accesses, "gate"):
            accesses[argument.field] = argument.access_bytes(config.vector_bytes)
        if config.quant and argument.field == "key_cache.pages":
            accesses["codes"] = argument.access_bytes(config.vector_bytes)
    for field, count in accesses.items():
        yield _int(f"k{field.capitalize()}AccessBytes", count)


def _rotation_constants(config: KernelConfig, target: Target) -> Iterator[Constant]:
    (table,) = (each for each in tensor_arguments(config) if each.field == "angles")
    yield _choice("Rotation", "kRotation", enumerators.ROPES[config.rope])
    yield _int("kRotarySize", config.rotary_size)
    yield _int("kHeadSize", config.head_size or config.hidden_size)
    yield _bool("kHoldsHalves", holds_halves(config) and not target.is_cpu)
    yield _bool("kAwaitsPositions", awaits_positions(config))
    if config.paged:
        yield _bool("kHasEncodedPages", config.quant is not None)
        yield _bool("kKeepsHeads", config.keep_heads)
    yield _int("kAnglesInRun", angles_in_run(config))
    yield _int("kAnglesAccessBytes", table.access_bytes(config.vector_bytes))


def _launch_constants(config: KernelConfig, target: Target) -> Iterator[Constant]:
    yield _bool("kHasPdl", config.pdl)
    if not target.is_cpu:
        yield _int("kThreadsPerItem", item_threads(config))
    if not target.is_cpu and config.is_row_wise:
        yield from _schedule_constants(config, target)
        return
    yield _bool("kTakesFastPath", False)
    yield _bool("kKeepsUnpacked", False)
    if not target.is_cpu:
        yield _int("kThreads", max(ITEM_THREADS, item_threads(config)))


def _schedule_constants(config: KernelConfig, target: Target) -> Iterator[Constant]:
    schedule = row_schedule(config, target)
    yield _int("kLanesPerRow", schedule.lanes_per_row)
    yield _int("kWarpsPerRow", schedule.warps_per_row)
    yield _int("kThreadsPerRow", schedule.threads_per_row)
    yield _int("kChunksPerLane", schedule.chunks_per_lane)
    yield _int("kChunksUnrolled", CHUNKS_AT_ONCE)
    yield _int("kMaxPrefetchedBytes", MAX_PREFETCHED_BYTES)
    yield _int("kRowsPerBlock", schedule.rows_per_block)
    yield _int("kRowsAtOnce", schedule.rows_at_once)
    yield _int("kBlocksPerRow", schedule.blocks_per_row)
    yield _int("kThreads", schedule.threads)
    yield _int("kLateBlocks", late_blocks(config, schedule))
    yield _bool("kInClusters", schedule.blocks_per_row > 1 and not has_separate_parts(config))
    yield _bool("kHoldsRow", schedule.holds_row)
    yield _bool("kStaysShared", schedule.stays_shared)
    yield _bool("kKeepsUnpacked", schedule.keeps_unpacked)
    yield _bool("kTakesFastPath", schedule.takes_fast_path)
    yield _bool("kFavoursLatency", schedule.favours_latency)
    yield _bool("kMayPrefetchWeight", schedule.prefetches_weight)
    yield _int("kStagedRows", staged_rows(config, schedule))
    yield _int("kStagedBytes", staged_row_bytes(config))
    if shares_parameters(config, schedule):
        yield _int("kSharedChunks", shared_chunks(schedule))
    yield _bool("kStoresInPairs", stores_in_pairs(config, schedule))
    yield _bool("kStoresSumEarly", stores_sum_early(config, schedule))


def _is_power_of_two(number: int) -> bool:
    return number & (number - 1) == 0


def _choice(enumeration: str, name: str, value: str) -> Constant:
    return enumeration, name, f"{enumeration}::{value}"


def _int(name: str, value: int) -> Constant:
    return "int", name, str(value)


def _float(name: str, value: str) -> Constant:
    return "float", name, value


def _bool(name: str, value: bool) -> Constant:
    return "bool", name, str(value).lower()
