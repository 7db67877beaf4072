"""Runs every kernel of an installed wheel on the GPU, and compares the bytes with the CPU's kernels.

    JITNORM_JIT=deny PATH= python scripts/gpu_wheel.py sm90a

The CPU's kernels come from the wheel jitnorm-kernels-cpu or from any other tier. Meant for an environment without
compilers. Exit status 0 means that nothing was missing and no byte differed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jitnorm.cache.readonly import open_read_only
from jitnorm.cache.wheels import wheel_folders
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.target import Target

import jitnorm

sys.path.append(str(Path(__file__).parents[1] / "tests" / "helpers"))
from kernel_calls import call, make_arguments, outputs_of

ROWS, MATRICES = 3, 2


def main(name: str) -> None:
    missing, wrong, right = [], [], 0
    for config, target in kernels_of(name):
        try:
            differing = compare(config, target)
        except RuntimeError as error:
            missing.append(f"{config}: {error}")
            continue
        right += not differing
        wrong += [f"{config}: {output} differs" for output in differing]
    print(f"{name}: {right} kernels right, {len(wrong)} outputs wrong, {len(missing)} not run")
    print(*missing[:5], *wrong[:5], sep="\n")
    sys.exit(bool(missing or wrong or not right))


def kernels_of(name: str) -> Iterator[tuple[KernelConfig, Target]]:
    (wheel,) = (wheel for wheel in wheel_folders() if wheel.name == f"jitnorm-kernels-{name}")
    for entry in open_read_only(wheel.path, name).entries():
        if "config" in entry.manifest:
            yield KernelConfig.parse(entry.manifest["config"]), Target(entry.manifest["target"])


def compare(config: KernelConfig, target: Target) -> list[str]:
    """The outputs that differ between the GPU and the CPU."""
    on_cpu = replace(config, pdl=False, many_rows=False, schedule="")
    expected = make_arguments(on_cpu, "random", ROWS, MATRICES)
    call(jitnorm.get_kernel(on_cpu, "cpu"), *expected)
    arguments = make_arguments(config, "random", ROWS, MATRICES)
    tensors = [to_gpu(a) for a in arguments]
    jitnorm.get_kernel(config, target)(*tensors)
    found = {id(a): to_bytes(t) for a, t in zip(arguments, tensors, strict=True) if isinstance(a, np.ndarray)}
    wanted = outputs_of(on_cpu, expected)
    actual = outputs_of(config, arguments)
    return [each for each in wanted if found[id(actual[each])] != wanted[each].tobytes()]


def to_gpu(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    dtype = getattr(torch, value.dtype.name)
    return torch.from_numpy(value.view(np.uint8).copy()).cuda().view(dtype).reshape(value.shape)


def to_bytes(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.reshape(-1).view(torch.uint8).cpu().numpy().tobytes())


if __name__ == "__main__":
    main(sys.argv[1])
