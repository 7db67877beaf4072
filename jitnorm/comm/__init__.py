"""Sums over the GPUs of a tensor-parallel group, with what follows them, in one launch. docs/parallel.md has more."""

from jitnorm.comm.all_reduce import all_reduce_norm_quantize
from jitnorm.comm.calls import Reduced
from jitnorm.comm.sequence import norm_quantize_all_gather, reduce_scatter_norm_quantize
from jitnorm.comm.workspace import Workspace
from jitnorm.errors import CommError
from jitnorm.interop.dynamo import replace_in_graphs as _replace_in_graphs

__all__ = [
    "CommError", "Reduced", "Workspace", "all_reduce_norm_quantize", "norm_quantize_all_gather",
    "reduce_scatter_norm_quantize",
]  # fmt: skip

_replace_in_graphs(globals()[name] for name in __all__)
