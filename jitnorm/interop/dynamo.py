"""Keeps torch.compile from tracing ops: it breaks the graph around them, or raises with ``fullgraph=True``.

Tracing an op would descend into everything it calls, down to the compiler that builds its kernel.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import FunctionType
from typing import Any

_REASON = "jitnorm's ops are not torch operators yet; call them outside, or omit fullgraph=True"
# Modules whose frames have tensors, which Dynamo would otherwise compile.
_OURS = ("jitnorm.ops", "jitnorm.interop", "jitnorm.dispatch", "jitnorm.outputs")


class _Reason:
    """The reason why ops are not traced. Dynamo reads it on the first op, and then also skips our frames."""

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
    """Mark functions like `torch.compiler.disable`, but without an extra frame and without importing torch."""
    reason = _Reason()
    for op in ops:
        if isinstance(op, FunctionType) and op.__module__.startswith("jitnorm.ops."):
            vars(op).update(_torchdynamo_disable=True, _torchdynamo_disable_msg=reason)
