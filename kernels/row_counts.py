"""How many rows a row-wise kernel writes, pads and visits, as extents."""

from __future__ import annotations

from .config import KernelConfig
from .extents import MATRICES, ROWS, SECOND_ROWS, Extent, extent
from .numerics import ceil_div

# So many elements take the CPU 0.1 ms or more, several times the cost of starting a thread.
ELEMENTS_PER_THREAD = 1 << 17


def rows_of_part(config: KernelConfig) -> int:
    """The minimum number of rows in a part of a tensor on the CPU, worth a thread."""
    return ceil_div(ELEMENTS_PER_THREAD, config.hidden_size)


def written_rows(config: KernelConfig) -> Extent:
    """The rows of the outputs: those of the input, of all ranks' inputs, or the gathered ones."""
    if config.all_reduce == "all_gather":
        return ROWS * config.ranks
    return SECOND_ROWS if config.gathers else ROWS


def padded_rows(config: KernelConfig) -> Extent:
    """The rows including padding of the scale layout, per matrix in a batch; at most a tile per expert."""
    rows = written_rows(config)
    if config.experts and config.row_multiple > 1:
        return (rows.ceil_div(config.row_multiple) + extent(config.experts)) * config.row_multiple
    return rows.round_up(config.row_multiple)


def grid_size(config: KernelConfig, rows_per_block: int, padding: int = 0) -> Extent:
    """Blocks of `rows_per_block` rows, each of one row set or matrix, that cover all rows a kernel visits.

    In addition, so many for what pads the scales of each matrix, if there is any, or of all experts.
    """
    if config.experts:
        return written_rows(config).ceil_div(rows_per_block) + padding
    if config.passes_sums:
        return ROWS.ceil_div(config.ranks) * config.ranks
    if config.all_reduce == "all_gather":
        return ROWS.ceil_div(rows_per_block)
    if config.all_reduce == "one_shot_scatter":  # also other ranks' rows, which are sent to them
        return SECOND_ROWS.round_up(config.row_multiple)
    if config.divides_rows:
        whole = SECOND_ROWS if config.scatters else ROWS
        return whole.ceil_div(config.ranks).ceil_div(rows_per_block)
    blocks = written_rows(config).ceil_div(rows_per_block)
    if padding:
        blocks = blocks + (written_rows(config) % config.row_multiple).at_most(1) * padding
    if config.batched:
        return MATRICES * blocks
    if not config.pair:
        return blocks
    second = SECOND_ROWS.ceil_div(rows_per_block)
    return blocks + second + second if config.paged else blocks + second
