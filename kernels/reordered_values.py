"""Values in the order in which a lane loads the parameters of a norm.

To avoid conflicts of banks, each lane loads the quarters of a float32 chunk in an order of its own (`quarter_order` in
cuda/chunk.cuh). Sorting a chunk of a parameter takes 32 instructions, so 64 for a weight and a bias. Bringing the
values into the same order, and the results back into that of the row, takes 24.
"""

from __future__ import annotations

from .config import KernelConfig
from .dtypes import DTYPES
from .numerics import CHUNK_SIZE
from .row_schedule import RowSchedule
from .rows_ahead import AHEAD_BYTES, shares_parameters


def reorders_values(config: KernelConfig, schedule: RowSchedule) -> bool:
    """Whether lanes reorder values, not parameters: in layer normalization of 16-bit values, to these or to bytes.

    Reordering values that are kept unpacked takes as many instructions as sorting a parameter, and rows that are
    processed at once share sorted parameters.
    """
    if config.op != "layernorm" or config.weight != "float32" or config.combine != "input":
        return False
    if config.activates_norm or config.backward or config.amax_parts:
        return False
    is_whole = config.encoded_size == config.hidden_size and config.hidden_size % CHUNK_SIZE == 0
    is_wide = DTYPES[config.input].bytes == 2 and config.vector_bytes >= AHEAD_BYTES
    has_bytes = config.quant is None or (config.quant.element != "e2m1" and not config.quant.has_given_scales)
    sorts = schedule.keeps_unpacked or schedule.rows_at_once > 1
    loads_sorted = schedule.copies_parameters or shares_parameters(config, schedule)
    return is_whole and is_wide and has_bytes and not sorts and not loads_sorted
