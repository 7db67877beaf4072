"""Building a kernel: which toolchain builds it, and the artifact that it produces."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, NamedTuple

from jitnorm.cache import Artifact, Cache, Store
from jitnorm.kernel_source import kernel_source_key, recipe_text, source_digest, source_for, why_not_cute
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.generator import Source
from jitnorm.kernels.target import Target
from jitnorm.requirements import requirements
from jitnorm.store import memo_folder, workplaces
from jitnorm.toolchains import Toolchain, ToolchainMissingError, select


def toolchain_for(config: KernelConfig, target: Target, store: Store, backend: str = "auto") -> Toolchain:
    """The toolchain that builds a kernel: the choice of `select`, except for kernels that CuTe-DSL lacks.

    For these, CuTe-DSL raises ValueError if it is requested by name; if JITNORM_BACKEND chose it, or it is the only one
    installed, CUDA C++ replaces it.
    """
    memos, places = memo_folder(store), workplaces(store)
    toolchain = select(target, backend, memo_dir=memos, workplaces=places)
    if toolchain.name != "cute":
        return toolchain
    reason = why_not_cute(config)
    if not reason:
        return toolchain
    if backend == "cute":
        source_for(config, target, "cute")  # raises
    _log_replacement(reason)
    return select(target, without=("cute",), memo_dir=memos, workplaces=places)


@cache
def _log_replacement(reason: str) -> None:
    logging.getLogger("jitnorm").warning("kernels that cute cannot build are built from CUDA C++: %s", reason)


class Selection(NamedTuple):
    """The toolchain selected for a kernel, or why there is none."""

    toolchain: Toolchain | None
    missing: ToolchainMissingError | None


def lazy_selection(config: KernelConfig, target: Target, cache: Cache, backend: str) -> Callable[[], Selection]:
    """Return a function that selects a kernel's toolchain lazily and once: searching takes 2 ms of a first call."""

    @lru_cache(maxsize=1)
    def selected() -> Selection:
        try:
            return Selection(toolchain_for(config, target, cache.store, backend), None)
        except ToolchainMissingError as error:
            return Selection(None, error)

    return selected


def compile_kernel(source: Source, toolchain: Toolchain) -> Artifact:
    """Compile a kernel, without looking in the cache."""
    flags = toolchain.flags(source.target)
    payload = toolchain.compile(source.text, source.target)
    manifest: dict[str, Any] = {
        "kind": "kernel",
        "config": str(source.config),
        "target": str(source.target),
        "backend": toolchain.name,
        "toolchain": toolchain.identity(),
        "flags": list(flags),
        "recipe": recipe_text(source.config, source.target, source.language),
        "source_key": kernel_source_key(source),
        "source_sha256": source_digest(source),
    }
    if source.target.is_cpu:
        manifest["requires"] = requirements(payload, flags, toolchain.machine)
    return Artifact(payload, manifest)
