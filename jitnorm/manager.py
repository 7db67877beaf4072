"""The JIT manager: KernelConfig + Target -> kernel, compiled at most once."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import chain
from time import perf_counter
from typing import Any, NamedTuple

from jitnorm.cache import Artifact, Cache, Store, Tier, make_key
from jitnorm.cache.aliases import source_key_of
from jitnorm.cache.events import emit
from jitnorm.errors import KernelNotWarmError
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.generator import Source, generate
from jitnorm.kernels.launch_recipe import LAUNCHER_ABI, launch_recipe
from jitnorm.kernels.target import Target
from jitnorm.launcher import launcher
from jitnorm.misses import jit_mode, record_miss, warm_command
from jitnorm.requirements import requirements, unmet
from jitnorm.store import as_cache, memo_folder, user_cache, workplaces
from jitnorm.toolchains import Toolchain, ToolchainMissingError, requested_backend, select
from jitnorm.tuning import stand_ins

_LOG = logging.getLogger("jitnorm.cache")
_OTHER_RECIPE = "its recipe is another"
_Wanted = tuple[KernelConfig, Target, str]  # the last is the backend
_kernels: dict[_Wanted, Any] = {}
_locks: dict[_Wanted, threading.Lock] = {}


def get_kernel(config: KernelConfig | str, target: Target | str = "cpu", *, backend: str = "auto") -> Any:
    """The kernel of a configuration, as a `tvm_ffi.Function`, for callers who want the least overhead.

    It takes the op's arguments in order, outputs included, None for those that the configuration does without,
    and optionally a CUDA stream as an integer at the end: `jitnorm.kernels.interface.interface(config)` lists them.
    It checks every argument, writes into the outputs and returns None. It knows addresses and shapes alone: of torch's
    tensors it sees neither that they require grad, nor negative views, nor modes that trace, and outputs keep their
    version.

    Args:
        config: a KernelConfig or its text form.
        target: a Target or its name; default ``cpu``.
        backend: what builds it: ``nvrtc``, ``nvcc`` or ``cute`` for CUDA targets, ``cxx`` for the CPU; ``auto``, the
            default, is the first of these that there is. All write the same bytes.

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
    key = (config, target, backend)
    kernel = _kernels.get(key)
    if kernel is None:
        with _lock_of(key):
            kernel = _kernels.get(key)
            if kernel is None:
                kernel = _kernels[key] = _load(*key)
    return kernel


def _lock_of(key: _Wanted) -> threading.Lock:
    # Atomic among threads, and unlike a lock it cannot be held during a fork.
    return _locks.setdefault(key, threading.Lock())


# A child has none of the threads that hold its parent's locks; what they build it shares by way of the cache.
os.register_at_fork(after_in_child=lambda: _locks.clear())


def _load(config: KernelConfig, target: Target, backend: str = "auto") -> Any:
    return _bind(load_or_build_kernel(config, target, user_cache(), backend))


def _bind(artifact: Artifact) -> Any:
    return launcher().load_kernel(artifact.manifest["recipe"], artifact.payload)


def loaded_kernel(config: KernelConfig, target: Target) -> Any:
    """The kernel of a configuration if this process has loaded it, else None."""
    return _kernels.get((config, target, "auto"))


def find_kernel(config: KernelConfig, target: Target) -> Any:
    """The kernel of a configuration if it is loaded or in any tier of the cache, else None: nothing is built."""
    key = (config, target, "auto")
    kernel = _kernels.get(key)
    if kernel is None:
        with _lock_of(key):
            kernel = _kernels.get(key)
            if kernel is None and (artifact := _find(config, target)) is not None:
                kernel = _kernels[key] = _bind(artifact)
    return kernel


def _find(config: KernelConfig, target: Target) -> Artifact | None:
    cache = user_cache()
    return _find_artifact(config, target, cache, "auto", _asker(config, target, cache, "auto"))


def build_kernel(config: KernelConfig, target: Target) -> Any:
    """`get_kernel` for threads in the background: while they compile, nobody who looks for the kernel waits."""
    kernel = _kernels.get((config, target, "auto"))
    return _kernels.setdefault((config, target, "auto"), _load(config, target)) if kernel is None else kernel


def record_missing(config: KernelConfig, target: Target) -> None:
    """Note that the kernel of a configuration was wanted and is in no tier of the cache."""
    record_miss(user_cache().store, str(config), str(target))


def recipe_text(config: KernelConfig, target: Target, language: str = "c++") -> str:
    """The launch recipe as the launcher reads it and as manifests store it, by the language of the source."""
    if language == "cute":
        from jitnorm.kernels.cute.recipe import cute_recipe as make_recipe
    else:
        make_recipe = launch_recipe
    return json.dumps(make_recipe(config, target), separators=(",", ":"))


def load_or_build_kernel(config: KernelConfig, target: Target, cache: Cache | Store, backend: str = "auto") -> Artifact:
    """The artifact of a configuration, from the cache or built into it by `backend`.

    Where there is no such toolchain, or JITNORM_JIT is ``deny``, any artifact of the same source serves: every
    toolchain gives the same bits. If the caller or JITNORM_BACKEND names a backend, it must be one of that backend's.
    Where the cache has nothing for the target, what it has for the target's family serves in the same way; nothing is
    built for a family unless that is the target.

    Raises:
        ToolchainMissingError: the kernel is not cached and no compiler for the target is installed.
        KernelNotWarmError: the kernel is not cached and JITNORM_JIT is ``deny``.
        CompileError: the compiler failed.
        ValueError: the backend or the value of JITNORM_JIT is not allowed.
    """
    cache, mode = as_cache(cache), jit_mode()
    ask, began = _asker(config, target, cache, backend), perf_counter()
    if backend != "auto":
        ask()  # refuses a backend that lacks the kernel, whatever the cache holds
    if mode == "deny" or target.family is not None or not ask().toolchain:
        found = _find_artifact(config, target, cache, backend, ask)
        if found is not None:
            return found
    toolchain, missing = ask()
    is_cute = toolchain.name == "cute" if toolchain else requested_backend(target, backend) == "cute"
    source = source_for(config, target, "cute" if is_cute and not _why_not(config) else "c++")
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


class _Answer(NamedTuple):
    """The toolchain that builds a kernel, or why there is none."""

    toolchain: Toolchain | None
    missing: ToolchainMissingError | None


def _asker(config: KernelConfig, target: Target, cache: Cache, backend: str) -> Callable[[], _Answer]:
    """What asks for a kernel's toolchain, once and not before it is called: looking takes 2 ms of a first call."""

    @lru_cache(maxsize=1)
    def ask() -> _Answer:
        try:
            return _Answer(toolchain_for(config, target, cache.store, backend), None)
        except ToolchainMissingError as error:
            return _Answer(None, error)

    return ask


class Candidate(NamedTuple):
    """What would serve a call: the artifact of a key, or any artifact of a source.

    Attributes:
        source: what it is generated from; its configuration or target may be one that stands in for the call's.
        key: of what the toolchain builds from it; empty where any toolchain's artifact serves.
        source_key: of the artifacts that serve then, else empty.
        backend: whose artifacts serve; ``auto`` for those of all.
    """

    source: Source
    key: str
    source_key: str
    backend: str

    @classmethod
    def of_toolchain(cls, source: Source, toolchain: Toolchain) -> Candidate:
        """What a toolchain builds from a source."""
        return cls(source, kernel_key(source, toolchain), "", "auto")

    def find(self, cache: Cache) -> Artifact | None:
        """The artifact in the first tier that has one to which there is no objection, or None."""
        if self.key:
            return cache.load(self.key, self.serves)
        return cache.load_source(self.source_key, self.serves)

    def keys_in(self, tier: Tier) -> Sequence[str]:
        """The keys under which `find` looks in a tier, in their order."""
        return (self.key,) if self.key else tier.keys_of(self.source_key)[::-1]

    def serves(self, artifact: Artifact) -> bool:
        """Whether there is no objection to an artifact."""
        objection = self.objection(artifact)
        if objection == _OTHER_RECIPE:
            _LOG.warning("ignoring an artifact of %s for %s: %s", self.source.config, self.source.target, objection)
        return not objection

    def objection(self, artifact: Artifact) -> str:
        """Why an artifact that was found cannot be used here, in words; empty if it can be."""
        if needed := unmet(artifact):
            return f"it needs {needed}, which this machine does not have"
        if self.source_key and source_key_of(artifact) != self.source_key:
            return "an alias leads to another source"
        built_by = artifact.manifest.get("backend")
        if self.backend not in ("auto", built_by):
            return f"built by {built_by}, and {self.backend} is asked for"
        # Keys say what an artifact was made of, but by the word of whoever stored it, and a recipe decides what is read
        # and written.
        recipe = recipe_text(self.source.config, self.source.target, self.source.language)
        return "" if artifact.manifest.get("recipe") == recipe else _OTHER_RECIPE


def candidates(config: KernelConfig, target: Target, cache: Cache, backend: str = "auto") -> Iterator[Candidate]:
    """What would serve a call without building, in the order of preference.

    That is the artifact of the toolchain, for the target or else for its family. Where compiling is impossible or
    forbidden, any toolchain's serves, and one of another schedule, warmed before tuning, or after.

    Args:
        config: the kernel.
        target: what it is needed for.
        cache: whose folder remembers toolchains.
        backend: as of `get_kernel`.
    """
    return _candidates(config, target, backend, _asker(config, target, cache, backend))


def _candidates(config: KernelConfig, target: Target, backend: str, ask: Callable[[], _Answer]) -> Iterator[Candidate]:
    is_final = jit_mode() == "deny" or not ask().toolchain
    for each in chain([config], stand_ins(config, target) if is_final else ()):
        for of in [target] if target.family is None else [target, target.family]:
            if is_final:
                yield from _built_anywhere(each, of, requested_backend(target, backend))
            if toolchain := ask().toolchain:
                yield Candidate.of_toolchain(source_for(each, of, toolchain.name), toolchain)


def _built_anywhere(config: KernelConfig, target: Target, backend: str) -> Iterator[Candidate]:
    """Artifacts of the source in any language that the backend allows."""
    if target.is_cpu or _why_not(config):
        languages, backend = ["c++"], "auto" if backend == "cute" else backend
    else:
        languages = [*["c++"] * (backend != "cute"), *["cute"] * (backend in ("auto", "cute"))]
    for language in languages:
        source = source_for(config, target, language)
        yield Candidate(source, "", kernel_source_key(source), backend)


def _find_artifact(
    config: KernelConfig, target: Target, cache: Cache, backend: str, ask: Callable[[], _Answer]
) -> Artifact | None:
    """The artifact of the first candidate that has one."""
    found = (each.find(cache) for each in _candidates(config, target, backend, ask))
    return next(filter(None, found), None)


def toolchain_for(config: KernelConfig, target: Target, store: Store, backend: str = "auto") -> Toolchain:
    """The toolchain that builds a kernel: what `select` says, but for kernels that CuTe-DSL lacks.

    Asked for by name, it raises ValueError for them; chosen by JITNORM_BACKEND or for want of others, CUDA C++ replaces
    it.
    """
    memos, places = memo_folder(store), workplaces(store)
    toolchain = select(target, backend, memo_dir=memos, workplaces=places)
    if toolchain.name != "cute":
        return toolchain
    reason = _why_not(config)
    if not reason:
        return toolchain
    if backend == "cute":
        source_for(config, target, "cute")  # raises
    _log_replacement(reason)
    return select(target, without=("cute",), memo_dir=memos, workplaces=places)


def _why_not(config: KernelConfig) -> str:
    from jitnorm.kernels.cute.offer import why_not

    return why_not(config)


@cache
def _log_replacement(reason: str) -> None:
    logging.getLogger("jitnorm").warning("kernels that cute cannot build are built from CUDA C++: %s", reason)


def source_for(config: KernelConfig, target: Target, backend: str) -> Source:
    """The source that a backend builds a kernel from; ValueError if there is none."""
    if backend == "cute":
        from jitnorm.kernels.cute.source import cute_source

        return cute_source(config, target)
    return generate(config, target)


def kernel_key(source: Source, toolchain: Toolchain) -> str:
    """The key of a kernel: everything that its artifact is made of, by content."""
    return make_key(
        {
            **_source_fields(source),
            "toolchain": toolchain.identity(),
            "flags": "\0".join(toolchain.flags(source.target)),
        }
    )


def kernel_source_key(source: Source) -> str:
    """What the artifacts of one kernel have in common, whatever compiled them."""
    return make_key(_source_fields(source))


def source_digest(source: Source) -> str:
    """The SHA-256 of a source, which tells whether another version of jitnorm has generated an artifact's."""
    return hashlib.sha256(source.text.encode("utf-8")).hexdigest()


def _source_fields(source: Source) -> dict[str, str]:
    return {
        "kind": "kernel",
        "source": source.text,
        "recipe": recipe_text(source.config, source.target, source.language),
        "target": str(source.target),
        "launcher_abi": str(LAUNCHER_ABI),
    }


def compile_kernel(source: Source, toolchain: Toolchain) -> Artifact:
    """Compile a kernel, whatever the cache holds."""
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
