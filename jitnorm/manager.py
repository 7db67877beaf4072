"""The JIT manager: KernelConfig + Target -> kernel, compiled at most once."""

from __future__ import annotations

import os
import threading
from itertools import chain
from time import perf_counter
from typing import Any

from jitnorm.building import compile_kernel, lazy_selection
from jitnorm.cache import Artifact, Cache, Store
from jitnorm.cache.events import emit
from jitnorm.errors import KernelNotWarmError
from jitnorm.kernel_source import kernel_source_key, source_for, why_not_cute
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.generator import Source
from jitnorm.kernels.target import Target
from jitnorm.launcher import launcher
from jitnorm.lookup import Candidate, find_artifact
from jitnorm.misses import jit_mode, record_miss, warm_command
from jitnorm.store import as_cache, user_cache
from jitnorm.toolchains import Toolchain, requested_backend
from jitnorm.toolchains.cuda_driver import driver_version, too_old_for
from jitnorm.tuning import stand_ins

_Wanted = tuple[KernelConfig, Target, str]  # the last is the backend
_kernels: dict[_Wanted, Any] = {}
_locks: dict[_Wanted, threading.Lock] = {}


def get_kernel(config: KernelConfig | str, target: Target | str = "cpu", *, backend: str = "auto") -> Any:
    """Get the kernel of a configuration as a `tvm_ffi.Function`, for minimal overhead.

    It takes the op's arguments in order, including outputs, with None for those that the configuration does not use,
    and optionally a CUDA stream as an integer at the end: `jitnorm.kernels.interface.interface(config)` lists them. It
    checks every argument, writes to the outputs and returns None. It only sees addresses and shapes: for torch tensors,
    it notices neither that they require grad, nor negative views, nor tracing modes, and does not update the version of
    outputs.

    Args:
        config: a KernelConfig or its text form.
        target: a Target or its name; default ``cpu``.
        backend: what builds it: ``nvrtc``, ``nvcc`` or ``cute`` for CUDA targets, ``cxx`` or ``zig`` for the CPU;
            ``auto``, the default, is the first of these that is installed. All write the same bytes.

    Returns:
        the function.

    Raises:
        ValueError: the configuration, the target or the backend is not valid, or that backend lacks this kernel.
        ToolchainMissingError: the kernel is not cached and no compiler for the target is installed.
        KernelNotWarmError: the kernel is not cached and JITNORM_JIT is ``deny``.
        CompileError: the compiler failed.

    Example:
        >>> import numpy as np
        >>> kernel = get_kernel("rmsnorm:hidden_size=64,input=float16")
        >>> x, w = np.ones((2, 64), np.float16), np.ones(64, np.float16)
        >>> out = np.empty_like(x)
        >>> kernel(x, w, out, 0.0)
        >>> float(out.sum())
        128.0
    """
    config = KernelConfig.parse(config) if isinstance(config, str) else config
    target = Target(target) if isinstance(target, str) else target
    if not isinstance(config, KernelConfig):
        raise TypeError(f"config: is {config!r}; expected a KernelConfig or its text, 'rmsnorm:hidden_size=4096'")
    if not isinstance(target, Target):
        raise TypeError(f"target: is {target!r}; expected a Target or its name, such as 'sm_90a'")
    key = (config, target, backend)
    kernel = _kernels.get(key)
    if kernel is None:
        with _lock_of(key):
            kernel = _kernels.get(key)
            if kernel is None:
                artifact = load_or_build_kernel(config, target, user_cache(), backend)
                kernel = _kernels[key] = _bind(artifact)
    return kernel


def _lock_of(key: _Wanted) -> threading.Lock:
    # Atomic among threads, and unlike a lock it cannot be held during a fork.
    return _locks.setdefault(key, threading.Lock())


# A child has none of the threads that hold its parent's locks; it gets what they build through the cache.
os.register_at_fork(after_in_child=lambda: _locks.clear())


def _bind(artifact: Artifact) -> Any:
    try:
        return launcher().load_kernel(artifact.manifest["recipe"], artifact.payload)
    except RuntimeError as error:
        reason = too_old_for(str(artifact.manifest.get("toolchain")), driver_version())
        if not reason:
            raise
        raise RuntimeError(f"{error}: {reason}") from error


def loaded_kernel(config: KernelConfig, target: Target) -> Any:
    """The kernel of a configuration, with any schedule, if this process has loaded one; else None."""
    loaded = (_kernels.get((each, target, "auto")) for each in chain([config], stand_ins(config, target)))
    return next(filter(None, loaded), None)


def load_or_build_kernel(config: KernelConfig, target: Target, cache: Cache | Store, backend: str = "auto") -> Artifact:
    """Load the artifact of a configuration from the cache, or build it into the cache with `backend`.

    If that toolchain is missing or only stands in for another, or JITNORM_JIT is ``deny``, any artifact of the same
    source serves: every toolchain gives the same bits. If the caller or JITNORM_BACKEND names a backend, it must be one
    of that backend's. If the cache has nothing for the target, an artifact for the target's family serves in the same
    way; nothing is built for a family unless that is the target.

    Raises:
        ToolchainMissingError: the kernel is not cached and no compiler for the target is installed.
        KernelNotWarmError: the kernel is not cached and JITNORM_JIT is ``deny``.
        CompileError: the compiler failed.
        ValueError: the backend or the value of JITNORM_JIT is not allowed.
    """
    cache, mode = as_cache(cache), jit_mode()
    select, began = lazy_selection(config, target, cache, backend), perf_counter()
    if backend != "auto":
        select()  # rejects a backend that lacks the kernel, regardless of the cache
    if mode == "deny" or target.family is not None or (toolchain := select().toolchain) is None or toolchain.stands_in:
        found = find_artifact(config, target, cache, backend, select)
        if found is not None:
            return found
    toolchain, missing = select()
    is_cute = toolchain.name == "cute" if toolchain else requested_backend(target, backend) == "cute"
    source = source_for(config, target, "cute" if is_cute and not why_not_cute(config) else "c++")
    if toolchain is not None and mode != "deny":
        return _load_or_build(source, toolchain, cache, is_recorded=mode == "record")
    emit("miss", key=kernel_source_key(source), seconds=perf_counter() - began)
    if missing is not None and mode != "deny":
        raise missing
    record_miss(cache.store, str(config), str(target))
    raise KernelNotWarmError(str(config), str(target), warm_command(str(config), str(target)))


def _load_or_build(source: Source, toolchain: Toolchain, cache: Cache, *, is_recorded: bool) -> Artifact:
    def build() -> Artifact:
        if is_recorded:
            record_miss(cache.store, str(source.config), str(source.target))
        return compile_kernel(source, toolchain)

    wanted = Candidate.of_toolchain(source, toolchain)
    return cache.load_or_build(wanted.key, build, accept=wanted.serves)
