"""Generic kernels: those that learn the hidden size from each call, and so serve any, with the same bits.

They are slower than a kernel of one hidden size, and there for calls that have none yet.
"""

from __future__ import annotations

from dataclasses import replace

from .config import KernelConfig
from .config_rules import ANY_HIDDEN_SIZE, may_take_any_size

_WIDEST = 16


def generic_config(config: KernelConfig) -> KernelConfig | None:
    """The configuration of the generic kernel for calls of `config`'s; None if there is none.

    Few kernels serve many calls: accesses are as wide as they can be, or else as narrow as an element.

    Example:
        >>> str(generic_config(KernelConfig("rmsnorm", 4096, vector_bytes=4))).split(",")[0]
        'rmsnorm:hidden_size=any'
    """
    of_few_rows = replace(config, many_rows=False, schedule="")
    if not may_take_any_size(of_few_rows):
        return None
    vector_bytes = _WIDEST if config.vector_bytes == _WIDEST else 1
    return replace(of_few_rows, hidden_size=ANY_HIDDEN_SIZE, vector_bytes=vector_bytes)
