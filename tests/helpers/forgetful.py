"""Ops that have seen no call before."""

from __future__ import annotations

import sys


def forget_dispatchers() -> None:
    """Have ops make their dispatchers anew, which then have learned no kernel."""
    for name, module in list(sys.modules.items()):
        if name.startswith("jitnorm.ops."):
            for value in vars(module).values():
                if hasattr(value, "cache_clear"):
                    value.cache_clear()
