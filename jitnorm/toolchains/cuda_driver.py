"""Asks the CUDA driver for its version, without initializing it."""

from __future__ import annotations

import re
from functools import cache


@cache
def driver_version() -> tuple[int, int] | None:
    """The newest CUDA that the driver supports, as (major, minor); None without a driver."""
    import ctypes

    try:
        driver, number = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
        failed = driver.cuDriverGetVersion(ctypes.byref(number))
    except (OSError, AttributeError):
        return None
    return None if failed or number.value <= 0 else (number.value // 1000, number.value % 1000 // 10)


def too_old_for(toolchain: str, driver: tuple[int, int] | None) -> str:
    """Why a driver cannot load the code of a toolchain with this identity, with the remedy; empty if it can."""
    built = re.search(r"\b(?:release |cuda_)(\d+)\.\d", toolchain)
    if built is None or driver is None or int(built[1]) <= driver[0]:
        return ""
    return (
        f"the driver supports CUDA {driver[0]}.{driver[1]}, and a compiler of CUDA {built[1]} built this kernel; "
        'pip install "jitnorm[cuda12]", or install a driver of branch 580 or later'
    )
