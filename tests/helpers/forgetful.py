"""Ops as if they had never been called."""

from __future__ import annotations

import sys
from functools import cache
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

from jitnorm import ops
from jitnorm.dispatch import Dispatchers, RoundingDispatchers, dispatcher_of, rounded_dispatcher
from jitnorm.ops.forms import Known

_Remembering = Dispatchers | RoundingDispatchers | Known
_MODULES = [f"{ops.__name__}.{module.name}" for module in iter_modules(ops.__path__)]


def forget_dispatchers() -> None:
    """Make ops create new dispatchers, which know no kernels yet."""
    dispatcher_of.cache_clear()
    rounded_dispatcher.cache_clear()
    for module in filter(None, map(sys.modules.get, _MODULES)):
        for dispatchers in _dispatchers_of(module):
            dispatchers.clear()


@cache
def _dispatchers_of(module: ModuleType) -> list[Any]:
    """A module's dispatchers, created at its import; searching for them in thousands of tests would take 10 s."""
    return [value for name, value in vars(module).items() if isinstance(value, _Remembering) or name == "_CALLS"]
