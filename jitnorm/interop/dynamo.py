"""Keeps torch.compile out of the ops: it calls them between its graphs, and with ``fullgraph=True`` it says why not.

Traced, an op would be taken apart down to the compiler that builds its kernel.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import FunctionType
from typing import Any

_REASON = "jitnorm's ops are no operators of torch yet; call them outside, or leave fullgraph=True out"
# Where frames have tensors, which is what Dynamo would compile of what an op calls.
_OURS = ("jitnorm.ops", "jitnorm.interop", "jitnorm.dispatch")


class _Reason:
    """Why an op is not traced. Dynamo asks when it first meets one: the moment to have it skip our frames, too."""

    def __init__(self) -> None:
        self._is_told = False

    def __str__(self) -> str:
        if not self._is_told:
            self._is_told = True
            rules: Any = sys.modules.get("torch._dynamo.trace_rules")
            for module in _OURS if hasattr(rules, "add") else ():
                rules.add(module)
        return _REASON


def keep_out(ops: Iterable[object]) -> None:
    """Mark functions as `torch.compiler.disable` does, but without a frame of its own, and without torch."""
    reason = _Reason()
    for op in ops:
        if isinstance(op, FunctionType) and op.__module__.startswith("jitnorm.ops."):
            vars(op).update(_torchdynamo_disable=True, _torchdynamo_disable_msg=reason)
