"""Which files make up a source: the stages of a configuration, in the order in which they build on each other."""

from __future__ import annotations

from collections.abc import Iterator

from .config import KernelConfig
from .quant_spec import QuantSpec
from .schedule import row_schedule
from .target import Target


def language_files(target: Target) -> tuple[str, ...]:
    """The files that every source begins with."""
    if target.is_cpu:
        return "common/types.h", "cpu/intrinsics.h", "cpu/half_types.h"
    return "common/types.h", "cuda/intrinsics.cuh", "cuda/half_types.cuh"


def stage_files(config: KernelConfig, target: Target) -> Iterator[str]:
    """The files between the `Arguments` and the entry point, relative to this folder."""
    return (_row_files if config.is_row_wise else _item_files)(config, target)


def _row_files(config: KernelConfig, target: Target) -> Iterator[str]:
    """The stages in the order of the data: load, combine, normalize, encode and store, under one schedule."""
    folder, suffix = _variant(target)
    yield "common/row_offset.h"
    yield f"common/rows_{'masked' if config.masked else 'all'}.h"
    yield from _e4m3_input_files(config)
    if config.takes_any_size:
        yield f"{folder}/any_size.{suffix}"
    if target.is_cpu:
        yield from ("cpu/transpose.h", "cpu/tile.h")
    if not target.is_cpu:
        yield from _chunk_files(config)
    if config.gate_columns:
        yield "common/silu.h"
    if config.rescales_input:
        yield "common/input_rescaled.h"
    yield f"{folder}/combine_{_combine(config)}.{suffix}"
    yield "common/row_statistic.h"
    yield from _statistic_files(config, target)
    if config.normalizes:
        yield "common/norm_arguments.h"
    yield f"common/{config.op if config.normalizes else 'identity'}.h"
    if not target.is_cpu:
        yield f"cuda/row_{'block' if row_schedule(config, target).blocks_per_row == 1 else 'cluster'}.cuh"
    yield f"{folder}/row_reduce.{suffix}"
    yield f"{folder}/norm_kept.{suffix}" if config.keep_norm else "common/norm_dropped.h"
    if config.quant:
        yield from _encode_files(config, config.quant, target)
    else:
        yield "common/given_none.h"
        yield f"{folder}/encode_{'amax' if config.amax_only else 'half'}.{suffix}"
    if target.is_cpu:
        yield "cpu/row_statistic_of.h"
    yield "cpu/rows.h" if target.is_cpu else f"cuda/rows{'_any' * config.takes_any_size}.cuh"
    yield f"{folder}/row_sets_{_row_sets(config, target)}.{suffix}"


def _is_quick(config: KernelConfig, target: Target) -> bool:
    return not target.is_cpu and row_schedule(config, target).is_quick


def _statistic_files(config: KernelConfig, target: Target) -> Iterator[str]:
    if _is_quick(config, target):
        yield from ("cuda/quick_division.cuh", "cuda/quick_statistic.cuh")
    else:
        yield "common/exact_statistic.h"


def _chunk_files(config: KernelConfig) -> Iterator[str]:
    """Chunks of a row on the GPU."""
    yield "cuda/vector_access.cuh"
    if not config.takes_any_size:
        yield "cuda/whole_chunks.cuh"
    yield "cuda/row_chunks.cuh"


def _item_files(config: KernelConfig, target: Target) -> Iterator[str]:
    """The stages of an op on independent items: how one is processed, under one schedule."""
    folder, suffix = _variant(target)
    yield "common/row_offset.h"
    yield f"{folder}/memory_copy.{suffix}"
    yield "common/arrays.h"
    if config.op == "interleave":
        yield "common/scale_layout.h"
    if config.moves:
        yield f"common/{config.op}.h"
    elif config.quant:
        yield from _e4m3_input_files(config)
        yield from (_encode_column_files if config.op == "quantize" else _decode_files)(config, config.quant, target)
    yield f"{folder}/items.{suffix}"


def _variant(target: Target) -> tuple[str, str]:
    """Folder and suffix of files that there are for the host and for GPUs."""
    return ("cpu", "h") if target.is_cpu else ("cuda", "cuh")


def _e4m3_input_files(config: KernelConfig) -> Iterator[str]:
    """Conversions from E4M3: of scales, which are no NaN where they are read, and of any values."""
    formats = {config.quant.element, config.quant.scale_format} if config.quant else set()
    reads_values = config.input == "float8_e4m3fn" or (config.op == "dequantize" and "e4m3" in formats)
    if reads_values or (config.quant and config.quant.scale_format == "e4m3"):
        yield "common/e4m3_decode.h"
    if reads_values:
        yield "common/e4m3_input.h"


def _row_sets(config: KernelConfig, target: Target) -> str:
    if config.pair:
        return "pair"
    if config.masked and not target.is_cpu:
        return "masked"
    if config.batched:
        return "matrices"
    return "ahead" if not target.is_cpu and row_schedule(config, target).loads_ahead else "one"


def _combine(config: KernelConfig) -> str:
    if config.residual:
        return "add"
    if config.gate_columns:
        return "silu"
    if config.streams:
        return "mix"
    return "rescaled" if config.rescales_input else "none"


def _encode_files(config: KernelConfig, quant: QuantSpec, target: Target) -> Iterator[str]:
    folder, suffix = _variant(target)
    # Rounded without the instruction, the values of two codes cost less: 21.1 instructions an element, not 26.5.
    has_native_e2m1 = target.has_native_e2m1 and not quant.four_over_six
    yield from _code_files(quant, target, has_native_e2m1)
    if target.is_cpu:
        yield from (f"cpu/codes_{'e2m1' if quant.element == 'e2m1' else 'fp8'}.h", "cpu/encode_tile.h")
    else:
        yield "cuda/store_codes.cuh"
    if quant.may_be_bounded:
        yield f"common/amax_{'bounded' if config.scale_ub else 'unbounded'}.h"
    if not quant.has_blocks:
        yield from _fp8_scale_files(quant, _is_quick(config, target))
        yield f"{folder}/encode_fp8.{suffix}"
        return
    yield from _block_scale_files(quant)
    yield "common/scale_layout.h"
    yield "common/store_scales.h"
    yield from _global_scale_files(config, quant)
    if not target.is_cpu:
        yield from _ordinary_block_files(quant, has_native_e2m1)
        yield f"cuda/block_lanes{'_any' * config.takes_any_size}.cuh"
    yield f"{folder}/encode_blocks.{suffix}"


def _ordinary_block_files(quant: QuantSpec, has_native_e2m1: bool) -> Iterator[str]:
    """A short way for blocks of ordinary values, where codes are found without the instruction."""
    if quant.element != "e2m1" or has_native_e2m1:
        yield "cuda/ordinary_none.cuh"
        return
    yield "cuda/ordinary_block.cuh"
    yield f"cuda/ordinary_scale_{_format_of_scales(quant)}.cuh"
    yield f"cuda/ordinary_{'four_over_six' if quant.four_over_six else 'single'}.cuh"


def _encode_column_files(config: KernelConfig, quant: QuantSpec, target: Target) -> Iterator[str]:
    yield from _code_files(quant, target, target.has_native_e2m1)
    yield from _block_scale_files(quant)
    yield from _global_scale_files(config, quant)
    yield f"common/input_{'rescaled' if config.rescales_input else 'plain'}.h"
    yield "common/quantize_columns.h"


def _code_files(quant: QuantSpec, target: Target, has_native_e2m1: bool) -> Iterator[str]:
    """Conversions to the formats of the codes and the scales."""
    formats = {quant.element, quant.scale_format} & {"e4m3", "e5m2"}
    for name in sorted(formats):
        yield f"cuda/{name}_native.cuh" if target.has_native_e4m3 else f"common/{name}_exact.h"
    is_native = has_native_e2m1 if quant.element == "e2m1" else target.has_native_e4m3
    yield f"cuda/codes_{quant.element}_native.cuh" if is_native else f"common/codes_{quant.element}_exact.h"


def _block_scale_files(quant: QuantSpec) -> Iterator[str]:
    """The scale of a block out of its values."""
    yield "common/block_scale.h"
    if quant.scale_format == "ue8m0":
        yield f"common/ue8m0_{quant.scale_rounding}.h"
    yield f"common/scale_{_format_of_scales(quant)}.h"
    if quant.four_over_six:
        yield "common/e2m1_decode.h"
    yield f"common/{'four_over_six' if quant.four_over_six else 'single_scale'}.h"


def _format_of_scales(quant: QuantSpec) -> str:
    return quant.scale_format.partition("_")[0]


def _global_scale_files(config: KernelConfig, quant: QuantSpec) -> Iterator[str]:
    if quant.global_scale in ("row", "tensor"):
        yield "common/global_scale_of_amax.h"
    yield f"common/global_scale_{'inverse' if config.inverse_global_scale else quant.global_scale}.h"


def _fp8_scale_files(quant: QuantSpec, is_quick: bool) -> Iterator[str]:
    if quant.block_size == "tensor" and not quant.needs_tensor_amax:
        yield "common/fp8_scale_given.h"
        return
    yield "common/fp8_scale_of_amax.h"
    yield "cuda/quick_fp8_scale.cuh" if is_quick else "common/exact_fp8_scale.h"
    yield f"common/fp8_scale_{quant.block_size}.h"


def _decode_files(config: KernelConfig, quant: QuantSpec, _: Target) -> Iterator[str]:
    if quant.element == "e2m1":
        yield "common/e2m1_decode.h"
    yield f"common/values_{quant.element}.h"
    yield f"common/decode_scale_{_format_of_scales(quant)}.h"
    yield f"common/matrix_{'of_batch' if config.batched else 'one'}.h"
    yield f"common/undo_global_{'tensor' if config.tensor_scale else quant.global_scale}.h"
    yield "common/decode_codes.h"
    if config.axis == 0:
        yield "common/dequantize_columns.h"
        return
    if quant.has_blocks:
        yield "common/scale_layout.h"
    yield f"common/find_scale_{'block' if quant.has_blocks else quant.block_size}.h"
    yield "common/dequantize_rows.h"
