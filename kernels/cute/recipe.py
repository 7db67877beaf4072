"""The launch recipe of a kernel in CuTe-DSL; imports no cutlass."""

from __future__ import annotations

from typing import Any

from ..config import KernelConfig
from ..launch_recipe import launch_recipe, row_blocks
from ..target import Target
from .schedule import ENTRY, cute_schedule


def cute_recipe(config: KernelConfig, target: Target) -> dict[str, Any]:
    """The recipe of the kernel in CUDA C++, but for the name of the entry point and how rows are divided."""
    schedule, pipeline = cute_schedule(config, target)
    if pipeline is None:
        blocks = {**row_blocks(config, schedule), "shared_bytes": 0}
    else:
        blocks = {**row_blocks(config, schedule, pipeline.clusters), "shared_bytes": pipeline.shared_bytes}
    return {**launch_recipe(config, target), **blocks, "entry": ENTRY}
