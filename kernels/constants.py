"""The constants of a source: a configuration, as its stages see it."""

from __future__ import annotations

from collections.abc import Iterator

from .arguments import C_TYPES, Extent, TensorArgument, combine, expression
from .config import KernelConfig
from .config_rules import MAX_HIDDEN_SIZE
from .interface import interface
from .item_ops import INTERLEAVED_COLUMNS, INTERLEAVED_ROWS
from .numerics import CHUNK_SIZE, GROUP_CHUNKS, ceil_div, next_power_of_two, round_up
from .quant_spec import MAX_CODE, MAX_EXPONENT, QuantSpec
from .schedule import ITEM_THREADS, row_schedule, stores_in_pairs, stores_sum_early
from .target import Target


def constants(config: KernelConfig, target: Target) -> Iterator[str]:
    """The lines that define them."""
    return (_row_constants if config.is_row_wise else _item_constants)(config, target)


def _row_constants(config: KernelConfig, target: Target) -> Iterator[str]:
    chunks = combine("ceil_div", config.encoded_columns, CHUNK_SIZE)
    groups = combine("ceil_div", chunks, GROUP_CHUNKS)
    # Where any hidden size will do, the arrays have room for the largest; the zeros behind the groups change no sum.
    most_groups = groups if isinstance(groups, int) else MAX_HIDDEN_SIZE // (CHUNK_SIZE * GROUP_CHUNKS)
    yield f"typedef {C_TYPES[config.input]} Input;"
    yield f"typedef {C_TYPES[config.weight] if config.normalizes else 'float'} Weight;"
    yield _int("kHiddenSize", config.encoded_columns)
    if not config.takes_any_size:
        yield _int("kInputSize", config.hidden_size)
    yield _bool("kHasPowerOfTwoSize", not config.takes_any_size and _is_power_of_two(config.encoded_size))
    yield _int("kRowDims", config.row_dims)
    yield _int("kChunkSize", CHUNK_SIZE)
    yield _int("kGroupChunks", GROUP_CHUNKS)
    yield _int("kChunks", chunks)
    yield _int("kGroups", groups if target.is_cpu else most_groups)
    yield _int("kPaddedGroups", next_power_of_two(most_groups))
    yield _bool("kHasUnitBias", config.unit_bias)
    yield _bool("kKeepsRstd", config.keep_rstd)
    if config.gate_columns:
        yield _int("kGateColumns", config.gate_columns)
    if config.streams:
        yield _int("kStreams", config.streams)
    yield _int("kPaddedRowMultiple", config.quant.row_multiple if config.quant else 1)
    yield _bool("kStoresSum", config.residual and not config.amax_only)
    yield _bool("kNeedsRowAmax", config.amax_only or (config.quant is not None and config.quant.needs_row_amax))
    if config.quant:
        yield from _quant_constants(config, config.quant)
    if target.is_cpu:
        yield _int("kRowCapacity", MAX_HIDDEN_SIZE if config.takes_any_size else config.encoded_size)
    else:
        yield from _cuda_constants(config, target)


def _quant_constants(config: KernelConfig, quant: QuantSpec) -> Iterator[str]:
    largest = MAX_CODE[quant.element]
    columns = combine("ceil_div", config.encoded_columns, config.block_size)
    yield _int("kMaxExponent", MAX_EXPONENT[quant.element])
    yield f"constexpr float kMaxCode = {largest}f;"
    # The nearest float of the quotient: the division is one IEEE rounding, here in the compiler.
    yield f"constexpr float kReciprocalMax = 1.0f / {largest}f;"
    yield f"constexpr float kSmallestRowScale = 1.0f / (512.0f * {largest}f);"
    yield "constexpr float kSmallestAmax = 1e-4f;"
    yield _int("kBlockSize", config.block_size)
    yield _int("kScaleColumns", columns)
    yield _int("kPaddedScaleColumns", combine("round_up", columns, 4) if quant.is_swizzled else columns)
    yield _bool("kHasSwizzledScales", quant.is_swizzled)
    yield _bool("kHasLinearScales", quant.both_layouts or not quant.is_swizzled)
    yield _bool("kHasColumnMajorScales", quant.is_column_major)
    yield _bool("kHasGlobalScale", quant.global_scale != "none")
    yield _bool("kPowerOfTwoScales", quant.scale_format in ("ue8m0", "f32_ue8m0"))
    if config.rescales_input:
        yield _bool("kInvertsGlobalScale", config.inverse_global_scale)


def _cuda_constants(config: KernelConfig, target: Target) -> Iterator[str]:
    schedule = row_schedule(config, target)
    yield _int("kLanesPerRow", schedule.lanes_per_row)
    yield _int("kWarpsPerRow", schedule.warps_per_row)
    yield _int("kThreadsPerRow", schedule.threads_per_row)
    of_any_size = combine("ceil_div", config.encoded_columns, CHUNK_SIZE * schedule.threads_per_row)
    yield _int("kChunksPerLane", of_any_size if config.takes_any_size else schedule.chunks_per_lane)
    yield _int("kRowsPerBlock", schedule.rows_per_block)
    yield _int("kRowsAtOnce", schedule.rows_at_once)
    yield _int("kBlocksPerRow", schedule.blocks_per_row)
    yield _int("kThreads", schedule.threads)
    yield _bool("kHoldsRow", schedule.holds_row)
    yield _bool("kStaysShared", schedule.stays_shared)
    yield _bool("kKeepsUnpacked", schedule.keeps_unpacked)
    yield _bool("kFavoursLatency", schedule.favours_latency)
    yield _bool("kMayPrefetchWeight", schedule.prefetches_weight)
    yield _bool("kStoresInPairs", stores_in_pairs(config, schedule))
    yield _bool("kStoresSumEarly", stores_sum_early(config, schedule))
    whole = config.block_size if config.takes_any_size else config.encoded_size
    yield _bool("kHasPartialChunk", whole % CHUNK_SIZE != 0)
    accesses = {"weight": 16, "bias": 16}
    for argument in interface(config):
        if isinstance(argument, TensorArgument) and argument.chunk_bytes:
            accesses[argument.field] = argument.access_bytes(config.vector_bytes)
    for name in ("input", "weight", "bias", "codes"):
        if name in accesses:
            yield _int(f"k{name.capitalize()}AccessBytes", accesses[name])
    yield f"#define JITNORM_PDL {int(config.pdl)}"


def _item_constants(config: KernelConfig, target: Target) -> Iterator[str]:
    size, quant = config.hidden_size, config.quant
    yield f"typedef {C_TYPES[config.input]} {'Output' if config.op == 'dequantize' else 'Input'};"
    yield _int("kHiddenSize", size)
    yield _int("kRowDims", config.row_dims)
    yield _int("kChunkSize", CHUNK_SIZE)
    yield _int("kChunks", ceil_div(size, CHUNK_SIZE))
    yield _int("kShuffleRows", config.shuffle_rows)
    if config.op == "interleave":
        yield _int("kPaddedRowMultiple", INTERLEAVED_ROWS)
        yield _int("kScaleColumns", size)
        yield _int("kPaddedScaleColumns", round_up(size, INTERLEAVED_COLUMNS))
        yield _bool("kHasColumnMajorScales", False)
    else:
        yield _int("kPaddedRowMultiple", quant.row_multiple if quant else 1)
    if quant:
        yield from _quant_constants(config, quant)
        yield _bool("kScalePerMatrix", config.scale_per_matrix)
    for argument in interface(config):
        if isinstance(argument, TensorArgument) and argument.chunk_bytes:
            yield _int(f"k{argument.field.capitalize()}AccessBytes", argument.access_bytes(config.vector_bytes))
    if not target.is_cpu:
        yield _int("kThreads", ITEM_THREADS)
        yield f"#define JITNORM_PDL {int(config.pdl)}"


def _is_power_of_two(number: int) -> bool:
    return number & (number - 1) == 0


def _int(name: str, value: Extent) -> str:
    """A constant, or what is computed wherever it is used since it depends on a hidden size that may be any."""
    return f"constexpr int {name} = {value};" if isinstance(value, int) else f"#define {name} ({expression(value)})"


def _bool(name: str, value: bool) -> str:
    return f"constexpr bool {name} = {str(value).lower()};"
