"""The arguments of each op: their order, dtypes, shapes and roles, defined once for every other place that needs them.

The generated source's `Arguments`, the launch recipe that the launcher checks calls against, and the dispatcher's
specialization all derive from what `interface` returns.
"""

from __future__ import annotations

from functools import lru_cache

from .arguments import Argument, TensorArgument
from .backward import backward_arguments
from .config import KernelConfig
from .item_ops import item_arguments
from .row_ops import row_arguments


@lru_cache(maxsize=256)  # a first call uses it ten times, which without a cache took 1 of its 8 ms
def interface(config: KernelConfig) -> tuple[Argument, ...]:
    """The arguments of `config`'s kernel, in calling order.

    The list depends only on the op and the kind of encoding; some arguments are absent in some configurations.
    """
    if config.backward:
        return backward_arguments(config)
    return row_arguments(config) if config.is_row_wise else item_arguments(config)


def tensor_arguments(config: KernelConfig) -> list[TensorArgument]:
    """The tensors among them that are present."""
    return [a for a in interface(config) if isinstance(a, TensorArgument) and a.is_present]
