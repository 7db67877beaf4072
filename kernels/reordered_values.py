"""Values in the order in which a lane loads the parameters of a norm.

Without conflicts of banks, a lane gets the quarters of a float32 chunk in an order of its own (`quarter_order` in
cuda/chunk.cuh). To sort a chunk of a parameter takes 32 instructions. Where there are two of them, it takes
fewer to bring the values into the same order, and what is stored back into that of the row: 24 for both.
"""

from __future__ import annotations

from .config import KernelConfig
from .dtypes import DTYPES
from .numerics import CHUNK_SIZE
from .row_schedule import RowSchedule
from .rows_ahead import AHEAD_BYTES, shares_parameters


def reorders_values(config: KernelConfig, schedule: RowSchedule) -> bool:
    """Whether lanes reorder values, not parameters: in layer normalization of 16-bit values, to these or to bytes.

    Values that are kept unpacked would take as many instructions as one parameter, and rows that are processed at once
    share sorted parameters.
    """
    if config.op != "layernorm" or config.weight != "float32" or config.combine != "input":
        return False
    special = (
        config.second_size, config.weights > 1, config.weight_rows > 1, config.modulated, config.backward, config.rope,
        config.activates_norm, config.gate, config.all_reduce, config.amax_parts,
    )  # fmt: skip
    is_whole = config.encoded_size == config.hidden_size and config.hidden_size % CHUNK_SIZE == 0
    is_wide = DTYPES[config.input].bytes == 2 and config.vector_bytes >= AHEAD_BYTES
    has_bytes = config.quant is None or (config.quant.element != "e2m1" and not config.quant.has_given_scales)
    sorts = schedule.keeps_unpacked or schedule.rows_at_once > 1
    loads_sorted = schedule.copies_parameters or shares_parameters(config, schedule)
    return is_whole and is_wide and has_bytes and not any(special) and not sorts and not loads_sorted
