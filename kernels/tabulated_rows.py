"""Rows whose activations are looked up: persistent blocks have a table of them in shared memory.

A bfloat16 has so few values that a block can compute the activations of all that matter while its first rows are on
the way. They are looked up by their bits (`cuda/activation_table.cuh`), so that each takes five instructions instead of
16 to 30. The function that fills the table is the one that computes activations elsewhere, so no bit of the output
depends on it.
"""

from __future__ import annotations

from collections.abc import Iterator

from .activations import numbers_of
from .config import KernelConfig
from .dtypes import DTYPES
from .numerics import CHUNK_SIZE, ceil_div, round_up
from .registers import is_four_over_six
from .row_classes import typical_elements
from .row_parts import has_separate_parts
from .row_schedule import WARP_LANES, RowSchedule
from .side_by_side import lanes_of_block, rows_that_fill
from .target import Target

# Magnitudes in the table, as powers of two. A chunk with smaller ones is computed: with a standard deviation of
# 0.001, a warp does so for one chunk in 40.
_LEAST_EXPONENT, _END_EXPONENT = -24, 7
_EXPONENT_BIAS, _MANTISSA_BITS = 127, 7
# The largest magnitude in the table: all bits of the mantissa are set.
_LARGEST = 2.0**_END_EXPONENT - 2.0 ** (_END_EXPONENT - 1 - _MANTISSA_BITS)
# Activations that take a few instructions.
_CHEAP = ("relu2", "fatrelu")
# Warps on a multiprocessor, whose registers hold the next rows, too, and the most for which a row has a single block.
_WARPS, _MOST_WARPS = 24, 28
# The most rows of a block, among those that fill warps: as many as were measured.
_MOST_ROWS = 96
# Elements of calls of which lanes have two chunks: such threads use memory better, but with fewer iterations, more
# multiprocessors are idle during the last.
_ELEMENTS_OF_TWO_CHUNKS = 24 << 20
# Classes with enough rows to divide among multiprocessors.
_CLASSES = ("several", "usual", "many")
# The GPUs on which tables were measured.
_MEASURED = (9, 0)


def tabulated_bits() -> tuple[int, int]:
    """The bits of the least magnitude in a table, and of the first above all of them.

    Example:
        >>> [f"{bits:#x}" for bits in tabulated_bits()]
        ['0x3380', '0x4300']
    """
    least, end = ((_EXPONENT_BIAS + each) << _MANTISSA_BITS for each in (_LEAST_EXPONENT, _END_EXPONENT))
    return least, end


def limits_gates(activation: str) -> bool:
    """Whether an activation takes values above a limit for the limit."""
    return activation.startswith("swiglu")


def settles_in_table(activation: str) -> bool:
    """Whether larger values need no entries in the table.

    Negative ones then share one activation, and so do positive ones unless each is its own.

    Example:
        >>> [settles_in_table(each) for each in ("silu", "gelu", "swish:0.25", "swiglu:200:1:0", "swiglu:10:1:0")]
        [True, True, False, False, True]
    """
    numbers = numbers_of(activation)
    if numbers is None:
        return True  # SiLU above 86.6 in magnitude, others from smaller values on
    return max(numbers.bound, numbers.limit if limits_gates(activation) else 0) <= _LARGEST


def table_bytes() -> int:
    """Bytes of a table, for values of both signs."""
    least, end = tabulated_bits()
    return 2 * (end - least) * DTYPES["float32"].bytes


def why_not_tabulated(config: KernelConfig, target: Target, schedule: RowSchedule) -> str:
    """Why rows cannot look up activations as in a schedule, as the end of a sentence; empty if they can."""
    several = (
        config.pair, config.batched, config.experts, config.gathers, config.masked, config.amax_parts,
        config.quant is not None and config.quant.needs_tensor_amax,
    )  # fmt: skip
    if config.combine not in ("gated", "activated") or not has_separate_parts(config) or any(several):
        return "only activations of one tensor are looked up, where nothing is found of a row or of the tensor"
    if config.input != "bfloat16":
        return f"only those of bfloat16 fit in a table, not of {config.input}"
    if config.activation.partition(":")[0] in _CHEAP or (config.quant is None and not config.gate_columns):
        return "this activation takes few instructions, without a table"
    if config.gate_columns % CHUNK_SIZE and config.gate_columns != config.hidden_size:
        return f"gates that are looked up come in runs of {CHUNK_SIZE}, not of {config.gate_columns}"
    others = (schedule.loads_ahead, schedule.stays_resident, schedule.splits_chunks, schedule.skips_chunks)
    if any(others) or schedule.rows_at_once > 1:
        return "blocks with a table have no options but how they divide rows"
    if not schedule.resident_blocks:
        return "blocks with a table are as many as run at once: say how many with o"
    most = target.shared_bytes // table_bytes()
    return f"a multiprocessor has shared memory for {most} tables" if schedule.resident_blocks > most else ""


def tabulated_schedule(config: KernelConfig, target: Target, row_class: str) -> str:
    """The schedule of calls that gain from a table, as text; empty for others.

    Only on Hopper, where it was measured; on other GPUs, `jitnorm tune` may find that a table pays.

    Example:
        >>> gelu = KernelConfig.parse("quantize:hidden_size=4096,weight=none,quant=e2m1/16/e4m3,activation=gelu")
        >>> [tabulated_schedule(gelu, Target("sm_90a"), each) for each in ("several", "usual", "many")]
        ['', '8x1mp3o1', '4x2mp6o1']
    """
    least, elements = _least_elements(config), typical_elements(row_class, config.hidden_size)
    if target.capability != _MEASURED or row_class not in _CLASSES or least is None or elements < least:
        return ""
    schedule = tabulated(config, 2 if not config.gate_columns and elements >= _ELEMENTS_OF_TWO_CHUNKS else 1)
    return "" if why_not_tabulated(config, target, schedule) else str(schedule)


def _least_elements(config: KernelConfig) -> int | None:
    """The typical elements of calls that gain from a table, None if none do; docs/choices.md has figures.

    In smaller calls, filling the tables takes as long as they save, and where memory takes longer than computing the
    activations, they save nothing.
    """
    name, quant = config.activation.partition(":")[0] or "silu", config.quant
    if quant is None:
        return None
    is_fp4 = quant.element == "e2m1"
    if not config.gate_columns:
        return (3 << 20 if name.startswith("gelu") else 8 << 20) * (2 if is_four_over_six(config) else 1)
    if name == "gelu":
        return 3 << 20
    if name == "gelu_tanh" or (name == "swigluoai" and is_fp4):
        return 6 << 20
    return 12 << 20 if is_four_over_six(config) or (is_fp4 and name != "silu") else None


def tabulated(config: KernelConfig, chunks: int) -> RowSchedule:
    """Blocks with a table and so many chunks per lane, one block on each multiprocessor unless rows are long.

    Example:
        >>> sizes = (640, 1536, 6656, 24576)
        >>> [str(tabulated(KernelConfig("quantize", size, gate_columns=size), 1)) for size in sizes]
        ['1x1mp20o1n40', '3x1mp8o1', '13x1mp2o1', '48x1mb2o1']
    """
    count = ceil_div(config.encoded_size, CHUNK_SIZE)
    whole = round_up(ceil_div(count, chunks), WARP_LANES)
    beside = next(filter(_fill_a_block, _lanes_beside(config, ceil_div(count, chunks))), whole)
    if 8 * beside >= 7 * whole:
        return _of_warps(whole // WARP_LANES, chunks)
    filling = rows_that_fill(beside)
    rows = min(filling * max(1, round(_WARPS * WARP_LANES / (beside * filling))), _MOST_ROWS // filling * filling)
    return RowSchedule(
        1, ceil_div(count, beside), tabulates=True, rows_per_block=rows, lanes_per_row=beside,
        resident_blocks=max(1, round(_WARPS * WARP_LANES / (rows * beside))),
    )  # fmt: skip


def _lanes_beside(config: KernelConfig, least: int) -> Iterator[int]:
    """Lanes of rows side by side that need so many at least: pairs, which store together, with whole blocks."""
    return (round_up(least, max(lanes, lanes_of_block(config))) for lanes in (2, 4, 8))


def _fill_a_block(lanes: int) -> bool:
    """Whether rows of so many lanes fill warps of a block."""
    return lanes * rows_that_fill(lanes) <= _MOST_WARPS * WARP_LANES


def _of_warps(warps: int, chunks: int) -> RowSchedule:
    """The same for rows of whole warps, of which long ones have several blocks."""
    blocks = ceil_div(warps, _MOST_WARPS)
    rows = max(1, round(_WARPS / warps)) if blocks == 1 else 1
    return RowSchedule(
        round_up(warps, blocks), chunks, tabulates=True, rows_per_block=rows, blocks_per_row=blocks,
        resident_blocks=max(1, round(_WARPS * blocks / (warps * rows))),
    )  # fmt: skip
