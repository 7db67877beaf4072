"""The launch recipe: what the launcher must know to check a call and to launch the kernel, as JSON.

A kernel's parameters are plain: for each argument that is present, a pointer and, if its rows are strided, one
64-bit stride in elements for each row dimension, or for a table the strides and extents of its own dimensions; or a
float. Then for each row set the number of rows (of one matrix in a batch) and the extents of the row dimensions after
the first, if rows are heads how many a token has, in a batch the number of matrices, and for ops on items their number,
all 64-bit.
"""

from __future__ import annotations

import math
from typing import Any

from . import backward
from .arguments import WIDEST_ACCESS, Argument, ScalarArgument
from .backward import rows_of_pack, segments
from .config import KernelConfig
from .copied_parameters import copied_bytes
from .extents import ROWS, Extent, shape
from .factor_blocks import MIXING_THREADS, factor_rows
from .interface import interface, tensor_arguments
from .item_ops import item_count, item_size, item_threads
from .numerics import ceil_div
from .padding import padding_blocks, padding_turns
from .row_counts import ELEMENTS_PER_THREAD, grid_size, rows_of_part
from .row_parts import has_separate_parts
from .row_schedule import RowSchedule
from .rows_ahead import staged_bytes
from .schedule import ITEM_THREADS, MASKED_THREADS, row_schedule, shared_amax_bytes
from .target import Target

# Raised whenever an older launcher could not run a new recipe, or would run it incorrectly.
LAUNCHER_ABI = 11
ENTRY = "jitnorm_kernel"
# No tensor reaches further: no machine has longer addresses.
MOST_BYTES = 1 << 57


def launch_recipe(config: KernelConfig, target: Target) -> dict[str, Any]:
    """The recipe of a kernel; for the CPU, `grid` counts rows or items and there are no launch attributes."""
    items = None if config.is_row_wise else item_count(config)
    recipe: dict[str, Any] = {
        "abi": LAUNCHER_ABI,
        "entry": ENTRY,
        "row_dims": config.row_dims,
        "batched": config.batched,
        "heads": config.rope != "",
        "items": None if items is None else items.to_json(),
        "arguments": [_argument(argument, config) for argument in interface(config) if argument.is_present],
    }
    if target.is_cpu:
        grid = _row_grid(config, 1, padding_turns(config)) if items is None else items
        if config.amax_parts:
            grid = _row_grid(config, rows_of_part(config)).at_most(config.amax_parts)
        return {**recipe, "device": "cpu", "grid": grid.to_json(), "grain": _grain(config)}
    return {
        **recipe,
        "device": "cuda",
        "capability": list(target.capability),
        "family": target.is_family,
        **(_row_blocks(config, target) if items is None else _item_blocks(config, items)),
        "pdl": config.pdl,
    }


def _grain(config: KernelConfig) -> int:
    """Rows or items that are worth a thread."""
    if not config.is_row_wise:
        return ELEMENTS_PER_THREAD // item_size(config)
    if config.amax_parts:
        return 1
    rows = rows_of_pack(config.hidden_size) if config.backward else 1
    return ceil_div(ELEMENTS_PER_THREAD, config.hidden_size * rows)


def row_blocks(config: KernelConfig, schedule: RowSchedule, most: int | None = None) -> dict[str, Any]:
    """Grid, block and cluster of a kernel of rows, with at most so many blocks or clusters."""
    if config.amax_parts:
        most = max(1, config.amax_parts // schedule.blocks_per_row)
    # Blocks of which there are at most so many go from row to row, and pad scales together.
    padding = padding_blocks(config, schedule) if most is None else 0
    of_block = 1 if schedule.loads_ahead or config.amax_parts else schedule.rows_per_block * schedule.rows_at_once
    rows = _row_grid(config, of_block, padding)
    if config.masked:
        most = MASKED_THREADS // schedule.threads
    if config.prenorm:
        most = most or MIXING_THREADS // (schedule.threads * schedule.blocks_per_row)
    elif config.sinkhorn:
        rows = ROWS.ceil_div(factor_rows(schedule)) + rows
    if most is not None:
        rows = rows.at_most(most)
    grid = rows if schedule.blocks_per_row == 1 else rows * schedule.blocks_per_row
    cluster = 1 if has_separate_parts(config) else schedule.blocks_per_row
    return {"grid": grid.to_json(), "block": schedule.threads, "cluster": cluster}


def _row_grid(config: KernelConfig, rows_per_block: int, padding: int = 0) -> Extent:
    """Blocks of a kernel of rows; for gradients, segments, and for an amax, parts of the tensor, even without rows."""
    if config.amax_parts:
        return (ROWS + 1).ceil_div(rows_per_block)
    return segments(config) if config.backward else grid_size(config, rows_per_block, padding)


def _row_blocks(config: KernelConfig, target: Target) -> dict[str, Any]:
    schedule = row_schedule(config, target)
    if config.backward:
        clusters, blocks = backward.clusters(config, target)
        return {
            "grid": (clusters if blocks == 1 else clusters * blocks).to_json(),
            "block": schedule.threads,
            "cluster": blocks,
            "shared_bytes": backward.staged_bytes(config, target),
        }
    # Persistent blocks, and those that compute the factors of all their rows at the end, are as many as run at once.
    stays = schedule.is_persistent or config.prenorm
    most = schedule.resident_blocks * target.multiprocessors if stays else 0
    if schedule.is_persistent:
        most //= schedule.blocks_per_row
    return {**row_blocks(config, schedule, most or None), "shared_bytes": _shared_bytes(config, schedule)}


def _shared_bytes(config: KernelConfig, schedule: RowSchedule) -> int:
    if schedule.copies_parameters:
        return copied_bytes(config, schedule)
    return staged_bytes(config, schedule) if schedule.loads_ahead else shared_amax_bytes(config, schedule)


def _item_blocks(config: KernelConfig, items: Extent) -> dict[str, Any]:
    threads = max(ITEM_THREADS, item_threads(config))
    grid = items.ceil_div(threads // item_threads(config))
    return {"grid": grid.to_json(), "block": threads, "cluster": 1, "shared_bytes": 0}


def _argument(argument: Argument, config: KernelConfig) -> dict[str, Any]:
    if isinstance(argument, ScalarArgument):
        return {"name": argument.name, "kind": "float32"}
    return {
        "name": argument.name,
        "kind": "tensor",
        "dtypes": list(argument.dtypes),
        "shape": [extent.to_json() for extent in argument.shape],
        "row_set": argument.row_set,
        "table_dims": argument.table_dims,
        # Not a sum over rows of one column, which may be narrower.
        "single": argument.shape == shape(1) and not (argument.is_output and argument.element_bytes < 4),
        "flat": argument.is_flat,
        "if_empty": argument.if_empty,
        "alignment": argument.access_bytes(config.vector_bytes),
        "output": argument.is_output,
        "strided": argument.is_strided,
        "may_be": argument.may_be or "",
    }


def dispatch_signature(config: KernelConfig) -> dict[str, Any]:
    """The facts about an op's arguments by which a dispatcher determines which kernel a call needs.

    It holds for every configuration whose kernel takes the same arguments, of any hidden size, which is proportional to
    the columns of the first tensor.
    """
    arguments = [
        {"name": argument.name, "kind": "float32"}
        if isinstance(argument, ScalarArgument)
        else {
            "name": argument.name,
            "kind": "tensor",
            "row_set": argument.row_set,
            "strided": argument.is_strided,
            "chunk_bytes": min(WIDEST_ACCESS, argument.chunk_bytes),
        }
        for argument in interface(config)
        if argument.is_present
    ]
    columns = tensor_arguments(config)[0].shape[-1].evaluate(rows=0)
    common = math.gcd(config.hidden_size, columns)
    return {"hidden_size": config.hidden_size // common, "columns": columns // common, "arguments": arguments}
