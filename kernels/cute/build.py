"""Builds the kernel of a configuration: the only door to cutlass."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import cutlass
from cutlass import cute
from cutlass.cute.runtime import make_ptr

from ..config import KernelConfig
from ..entry_point import parameters
from ..target import Target
from .arguments import Arguments
from .constants import Constants
from .rows import RowKernel
from .rows_pipelined import PipelinedRowKernel
from .schedule import ENTRY, cute_schedule
from .values import UInt

_PTX_TYPES = {"Int64": "u64", "float": "f32"}  # all others are pointers


def build(config: KernelConfig, target: Target, folder: Path) -> bytes:
    """The cubin of a kernel.

    Args:
        config: what the kernel computes; `jitnorm.kernels.cute.offer` says what can be built.
        target: what to build for.
        folder: an existing folder, for the files that the DSL writes.

    Raises:
        RuntimeError: what was built does not take the parameters that the launcher passes.
    """
    constants = Constants(config, target, *cute_schedule(config, target))
    kernel_class = RowKernel if constants.pipeline is None else PipelinedRowKernel
    block, blocks = (constants.schedule.threads, 1, 1), constants.pipeline.blocks if constants.pipeline else 0
    listed = list(parameters(config))

    @cute.kernel(preprocess=False)
    def kernel(traced: tuple[Any, ...]) -> None:
        values = {name: _traced(kind, value) for (kind, name), value in zip(listed, traced, strict=True)}
        kernel_class(constants, Arguments(config, values)).process()

    @cute.jit(preprocess=False)
    def launch(traced: tuple[Any, ...]) -> None:
        # Of the launch, only what bounds the registers is compiled in; the launch recipe says the rest. With a carveout
        # of shared memory, the DSL need not ask a GPU for its size.
        kernel(traced).launch(grid=(1, 1, 1), block=block, min_blocks_per_mp=blocks, preferred_smem_carveout=100)

    kernel.set_name_prefix(ENTRY.removesuffix("_0"), remove_cutlass_symbol=True, keep_mangled_name=False)
    options = f"--gpu-arch {target} --ptxas-options --fmad=false --keep-cubin --keep-ptx --dump-dir {folder}"
    compiled = cute.compile(launch, tuple(_example(kind) for kind, _ in listed), options=options)
    _check_parameters(compiled.__ptx__, [_PTX_TYPES.get(kind, "u64") for kind, _ in listed])
    return bytes(compiled.__cubin__)


def _example(kind: str) -> Any:
    """A value of a parameter's type, to be traced with."""
    if kind == "Int64":
        return cutlass.Int64(0)
    return cutlass.Float32(0.0) if kind == "float" else make_ptr(cutlass.Uint8, 0, cute.AddressSpace.gmem)


def _traced(kind: str, value: Any) -> Any:
    """A parameter as stages take it."""
    if kind == "float":
        return value.ir_value()
    return UInt((value if kind == "Int64" else value.toint()).ir_value())


def _check_parameters(ptx: str, expected: list[str]) -> None:
    entries = re.findall(r"\.entry (\w+)\(([^)]*)\)", ptx)
    found = [(name, re.findall(r"\.param \.(\w+)", parameters)) for name, parameters in entries]
    if found != [(ENTRY, expected)]:
        raise RuntimeError(f"cute: the DSL built the entry points {found}, not {ENTRY} with {expected}")
