"""Tells torch.compile what to trace in place of a public function, without importing torch.

Dynamo would otherwise trace an op's Python code, down to the compiler that builds its kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from types import FunctionType
from typing import Any

_functions: dict[str, Callable[..., Any]] = {}
# By the names of functions; created when Dynamo meets one.
_stand_ins: dict[str, Callable[..., Any]] = {}


def replace_in_graphs(functions: Iterable[object]) -> None:
    """Make Dynamo trace the stand-ins of `jitnorm.torch.graphs` in place of public functions."""
    for function in functions:
        if isinstance(function, FunctionType) and function.__module__.startswith(("jitnorm.ops.", "jitnorm.comm.")):
            _functions[function.__name__] = function
            attributes = vars(function)
            attributes["_torchdynamo_inline"] = _stand_in(function.__name__)
            attributes["_torchdynamo_orig_callable"] = _caller_of(function)
            attributes["_torchdynamo_wrapper_id"] = id(function)


def _caller_of(function: FunctionType) -> Callable[..., Any]:
    """Return what ``torch.compile(function)`` compiles: a stand-in is traced only where it is called."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    # Dynamo caches compiled functions by their code.
    call.__code__ = call.__code__.replace(co_name=function.__name__)
    return call


def _stand_in(name: str) -> Callable[..., Any]:
    def stand_in(*args: Any, **kwargs: Any) -> Any:
        _make_stand_ins()
        return _stand_ins[name](*args, **kwargs)

    return stand_in


def _make_stand_ins() -> None:
    graphs = import_module("jitnorm.torch.graphs")
    for name in _functions.keys() - _stand_ins.keys():
        function = _functions[name]
        is_over_ranks = function.__module__.startswith("jitnorm.comm.")
        _stand_ins[name] = (graphs.stand_in_over_ranks if is_over_ranks else graphs.stand_in)(function)


vars(_make_stand_ins)["_dynamo_marked_constant"] = True  # Dynamo calls it while it traces
