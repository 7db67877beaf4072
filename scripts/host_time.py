"""Measures the host time of a call at 1x64, on the GPU if there is one and on the CPU target.

    python scripts/host_time.py [FRAMEWORK...]    torch by default; numpy, cupy, jax

Prints microseconds per call in this process: the best of ten batches of 200 calls. Processes differ more than batches
do, so quote the median of several processes and their number. JAX always allocates its outputs. For comparison, the
script also measures the framework's own addition, which is a compiled program in JAX.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from typing import Any

import ml_dtypes
import numpy as np

import jitnorm

X = np.random.default_rng(0).standard_normal((1, 64)).astype(np.float32)
W = np.random.default_rng(1).standard_normal(64).astype(np.float32)
# For each framework, functions that make a tensor, wait for its device, and add.
Tensors = tuple[Callable[[Any], Any], Callable[[], object], Callable[[Any, Any], object]]


def best_batch(call: Callable[[], Any], synchronize: Callable[[], object]) -> float:
    times = []
    for _ in range(11):
        synchronize()
        start = time.perf_counter()
        for _ in range(200):
            call()
        times.append((time.perf_counter() - start) / 200 * 1e6)
    return min(times[1:])


def torch_tensors() -> Iterator[tuple[str, Tensors]]:
    import torch

    yield "cpu", (lambda a: torch.tensor(a).bfloat16(), lambda: None, torch.add)
    if torch.cuda.is_available():
        yield "cuda", (lambda a: torch.tensor(a).bfloat16().cuda(), torch.cuda.synchronize, torch.add)


def numpy_tensors() -> Iterator[tuple[str, Tensors]]:
    yield "cpu", (lambda a: a.astype(np.float16), lambda: None, np.add)


def cupy_tensors() -> Iterator[tuple[str, Tensors]]:
    import cupy

    yield "cuda", (lambda a: cupy.asarray(a.astype(np.float16)), cupy.cuda.runtime.deviceSynchronize, cupy.add)


def jax_tensors() -> Iterator[tuple[str, Tensors]]:
    import jax

    device = jax.devices()[0]
    put = lambda a: jax.device_put(a.astype(ml_dtypes.bfloat16), device)  # noqa: E731
    last = put(X)
    yield device.platform, (put, lambda: (last + 0).block_until_ready(), jax.jit(jax.numpy.add))


@cache
def library() -> Any:
    """A Python operator that does nothing, with the arguments of RMSNorm's operator."""
    import torch

    made = torch.library.Library("host_time", "DEF")
    made.define("nothing(" + str(torch.ops.jitnorm.rmsnorm.out._schema).partition("(")[2])
    for device in ("CPU", "CUDA"):
        made.impl("nothing", lambda *_, **__: None, device)
    return made


def operators(x: Any, w: Any, out: Any) -> dict[str, Callable[[], Any]]:
    """Calls through torch's dispatcher."""
    import torch

    import_module("jitnorm.torch")  # registers the operators
    library()
    rmsnorm, nothing = torch.ops.jitnorm.rmsnorm, torch.ops.host_time.nothing.default
    return {
        "torch.ops, outputs given": lambda: rmsnorm.out(x, w, 1e-6, out=out),
        "torch.ops, allocating": lambda: rmsnorm.default(x, w, 1e-6),
        "torch.ops, doing nothing": lambda: nothing(x, w, 1e-6, out=out),
    }


FRAMEWORKS = {"torch": torch_tensors, "numpy": numpy_tensors, "cupy": cupy_tensors, "jax": jax_tensors}


def measure(framework: str, device: str, tensors: Tensors) -> None:
    make, synchronize, add = tensors
    x, w = make(X), make(W)
    out = jitnorm.rmsnorm(x, w)
    codes, scales = jitnorm.rmsnorm_fp4quant(x, w)
    calls: dict[str, Callable[[], Any]] = {
        "rmsnorm, outputs given": lambda: jitnorm.rmsnorm(x, w, out=out),
        "rmsnorm_fp4quant, outputs given": lambda: jitnorm.rmsnorm_fp4quant(x, w, codes, scales),
        "rmsnorm, allocating": lambda: jitnorm.rmsnorm(x, w),
        "rmsnorm_fp4quant, allocating": lambda: jitnorm.rmsnorm_fp4quant(x, w),
        "the framework's addition": lambda: add(x, w),
    }
    if framework == "torch":
        calls |= operators(x, w, out)
    for name, call in calls.items():
        if framework != "jax" or "given" not in name:
            print(f"{framework:6} {device:5} {name:32} {best_batch(call, synchronize):7.2f} us")


if __name__ == "__main__":
    for framework in sys.argv[1:] or ["torch"]:
        for device, tensors in FRAMEWORKS[framework]():
            measure(framework, device, tensors)
