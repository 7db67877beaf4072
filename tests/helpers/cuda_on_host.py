"""Kernels from CUDA C++, their PTX run on the host, beside the CPU target's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from cute_on_host import make_arrays, run_by_recipe, run_on_cpu
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.generator import generate
from jitnorm.kernels.launch_recipe import launch_recipe
from jitnorm.kernels.target import Target

from jitnorm.toolchains.nvrtc import Nvrtc
from jitnorm.toolchains.nvrtc_program import ptx_of


def assert_same(config: KernelConfig, target: Target, rows: int, kind: str, eps: float = 1e-5) -> None:
    """The kernel for `target` writes what that of the CPU target writes."""
    expected, actual = make_arrays(config, rows, kind), make_arrays(config, rows, kind)
    run_on_cpu(replace(config, schedule=""), expected, eps)
    compiler = Nvrtc()
    ptx = ptx_of(compiler.location, generate(config, target).text, "kernel.cu", compiler.flags(target))
    run_by_recipe(config, ptx, launch_recipe(config, target), actual, rows, eps)
    for name, array in expected.items():
        same = actual[name].reshape(-1).view(np.uint8) == array.reshape(-1).view(np.uint8)
        assert same.all(), f"{config} for {target}, {kind}: {name} differs first at byte {int(np.argmin(same))}"
