"""The JIT manager: KernelConfig + Target -> kernel, compiled at most once."""

from __future__ import annotations

import json
import threading
from typing import Any

from jitnorm.cache import Artifact, Store, load_or_build, make_key
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.generator import Source, generate
from jitnorm.kernels.launch_recipe import LAUNCHER_ABI, launch_recipe
from jitnorm.kernels.target import Target
from jitnorm.launcher import launcher
from jitnorm.store import memo_folder, user_store
from jitnorm.toolchains import Toolchain, select

_kernels: dict[tuple[KernelConfig, Target], Any] = {}
_locks: dict[tuple[KernelConfig, Target], threading.Lock] = {}
_locks_guard = threading.Lock()


def get_kernel(config: KernelConfig | str, target: Target | str = "cpu") -> Any:
    """The kernel of a configuration, as a `tvm_ffi.Function`, for callers who want the least overhead.

    It takes the op's arguments in order, outputs included, None for those that the configuration does without,
    and optionally a CUDA stream as an integer at the end: `jitnorm.kernels.interface.interface(config)` lists them.
    It checks every argument, writes into the outputs and returns None.

    Args:
        config: a KernelConfig or its text form.
        target: a Target or its name; default ``cpu``.

    Raises:
        ValueError: the configuration or the target is not valid.
        ToolchainMissingError: the kernel is not cached and no compiler for the target is installed.
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
    key = (config, target)
    kernel = _kernels.get(key)
    if kernel is None:
        with _lock_of(key):
            kernel = _kernels.get(key)
            if kernel is None:
                kernel = _kernels[key] = _load(config, target)
    return kernel


def _lock_of(key: tuple[KernelConfig, Target]) -> threading.Lock:
    with _locks_guard:
        return _locks.setdefault(key, threading.Lock())


def _load(config: KernelConfig, target: Target) -> Any:
    artifact = load_or_build_kernel(config, target, user_store())
    return launcher().load_kernel(artifact.manifest["recipe"], artifact.payload)


def recipe_text(config: KernelConfig, target: Target) -> str:
    """The launch recipe as the launcher reads it and as manifests store it."""
    return json.dumps(launch_recipe(config, target), separators=(",", ":"))


def load_or_build_kernel(config: KernelConfig, target: Target, store: Store, backend: str = "auto") -> Artifact:
    """The artifact of a configuration, from the store or built into it by `backend`."""
    source = generate(config, target)
    toolchain = select(target, backend, memo_dir=memo_folder(store))
    return load_or_build(store, kernel_key(source, toolchain), lambda: _build(source, toolchain))


def kernel_key(source: Source, toolchain: Toolchain) -> str:
    """The key of a kernel: everything that its artifact is made of, by content."""
    return make_key(
        {
            "kind": "kernel",
            "source": source.text,
            "recipe": recipe_text(source.config, source.target),
            "toolchain": toolchain.identity(),
            "flags": "\0".join(toolchain.flags(source.target)),
            "target": str(source.target),
            "launcher_abi": str(LAUNCHER_ABI),
        }
    )


def _build(source: Source, toolchain: Toolchain) -> Artifact:
    manifest = {
        "kind": "kernel",
        "config": str(source.config),
        "target": str(source.target),
        "backend": toolchain.name,
        "toolchain": toolchain.identity(),
        "flags": list(toolchain.flags(source.target)),
        "recipe": recipe_text(source.config, source.target),
    }
    return Artifact(toolchain.compile(source.text, source.target), manifest)
