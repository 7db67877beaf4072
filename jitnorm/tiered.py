"""Tiered mode: the first calls of a hidden size run a generic kernel while their own is built in the background.

No byte of output depends on which of the two runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Any

from jitnorm.background import builds
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.generic import generic_config
from jitnorm.kernels.target import Target
from jitnorm.manager import find_kernel, get_kernel, loaded_kernel, record_missing
from jitnorm.misses import jit_mode
from jitnorm.tuning import stand_ins

# A generic kernel has a block for each row, of which a launch takes fewer than 2^31, with those that pad them.
_MOST_ROWS = 1 << 30


def is_tiered() -> bool:
    """Whether ``JITNORM_TIERED`` is 1; by default it is 0."""
    text = os.environ.get("JITNORM_TIERED") or "0"
    if text not in ("0", "1"):
        raise ValueError(f"JITNORM_TIERED: is {text!r}; use 0 or 1")
    return text == "1"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a dispatcher keeps the kernel of a call.

    Args:
        learn: stores the first kernel, and returns a number.
        replace: stores another one, for that number.
        device: the CUDA device of the call, if it is on one.
    """

    learn: Callable[[Any], int]
    replace: Callable[[int, Any], None]
    device: int | None


def learn_tiered(config: KernelConfig, target: Target, rows: int, place: Place) -> None:
    """Have a dispatcher learn the best kernel that there is without building one, and later the one that is built.

    Where there is no generic kernel yet, building it would take as long as building the kernel itself. So that is what
    happens, and the generic one is built in the background, for the next hidden size. Where JITNORM_JIT is ``deny``,
    nothing is built, and the generic kernel stays.

    Args:
        config: of the kernel that the call should have.
        target: what it is built for.
        rows: how many rows the call has.
        place: where the kernel is to be stored.
    """
    kernel = find_kernel(config, target)
    generic = _stand_in_config(config, rows) if kernel is None else None
    stand_in = find_kernel(generic, target) if generic else None
    if stand_in is None:
        place.learn(get_kernel(config, target) if kernel is None else kernel)
        if generic:
            builds.submit(generic, target, lambda built: _load_on(place.device, built))
        return
    number = place.learn(stand_in)
    if jit_mode() == "deny":
        record_missing(config, target)
    elif not builds.submit(config, target, lambda built: place.replace(number, built)):
        place.replace(number, get_kernel(config, target))


def _load_on(device: int | None, kernel: Any) -> None:
    """Have a kernel ready on a device, also for the capture of a graph."""
    if device is not None:
        kernel(device)


def loaded_stand_in(config: KernelConfig, target: Target, rows: int) -> Any:
    """What this process has loaded that gives a kernel's bits: with any schedule, in tiered mode the generic one."""
    generic = _stand_in_config(config, rows) if is_tiered() else None
    configs = chain([config], stand_ins(config, target), [generic] if generic else [])
    return next(filter(None, (loaded_kernel(each, target) for each in configs)), None)


def _stand_in_config(config: KernelConfig, rows: int) -> KernelConfig | None:
    return generic_config(config) if rows <= _MOST_ROWS else None
