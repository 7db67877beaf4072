"""Tells torch.compile what to trace in place of a public function, without importing torch.

Dynamo would otherwise trace an op's Python code, down to the compiler that builds its kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from types import FunctionType
from typing import Any

_functions: dict[str, Callable[..., Any]] = {}
# By the names of functions; made when Dynamo first meets one.
_stand_ins: dict[str, Callable[..., Any]] = {}


def replace_in_graphs(functions: Iterable[object]) -> None:
    """Have Dynamo trace `jitnorm.torch.graphs.stand_in` of public functions in their place."""
    for function in functions:
        if isinstance(function, FunctionType) and function.__module__.startswith("jitnorm.ops."):
            _functions[function.__name__] = function
            attributes = vars(function)
            attributes["_torchdynamo_inline"] = _stand_in(function.__name__)
            attributes["_torchdynamo_orig_callable"] = _caller_of(function)
            attributes["_torchdynamo_wrapper_id"] = id(function)


def _caller_of(function: FunctionType) -> Callable[..., Any]:
    """Return what ``torch.compile(function)`` compiles: a stand-in is traced only where it is called."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    # Dynamo keeps what it compiles by the code.
    call.__code__ = call.__code__.replace(co_name=function.__name__)
    return call


def _stand_in(name: str) -> Callable[..., Any]:
    def stand_in(*args: Any, **kwargs: Any) -> Any:
        _make_stand_ins()
        return _stand_ins[name](*args, **kwargs)

    return stand_in


def _make_stand_ins() -> None:
    if not _stand_ins:
        made = import_module("jitnorm.torch.graphs").stand_in
        _stand_ins.update({name: made(function) for name, function in _functions.items()})


vars(_make_stand_ins)["_dynamo_marked_constant"] = True  # Dynamo calls it while it traces
