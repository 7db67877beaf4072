"""Ops that have seen no call before."""

from __future__ import annotations

import sys

from jitnorm.dispatch import Dispatchers, RoundingDispatchers, dispatcher_of, rounded_dispatcher


def forget_dispatchers() -> None:
    """Have ops make their dispatchers anew, which then have learned no kernel."""
    dispatcher_of.cache_clear()
    rounded_dispatcher.cache_clear()
    for module in [module for name, module in sys.modules.items() if name.startswith("jitnorm.ops.")]:
        for value in vars(module).values():
            if isinstance(value, Dispatchers | RoundingDispatchers):
                value.clear()
