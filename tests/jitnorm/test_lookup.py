"""`jitnorm cache why` finds what a call finds: it says hit if and only if loading succeeds without building."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import cache as once
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from jitnorm.cache import Artifact, Cache, Store
from jitnorm.cache.uses import release_uses
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.target import Target

from jitnorm import KernelNotWarmError
from jitnorm.building import compile_kernel
from jitnorm.commands.why import explain
from jitnorm.kernel_source import kernel_key, source_for
from jitnorm.manager import load_or_build_kernel
from jitnorm.toolchains import Toolchain, ToolchainMissingError

# One that every backend builds, with schedules of sm_90a; one that CuTe-DSL lacks.
CONFIGS = [
    KernelConfig("rmsnorm", 4096, schedule="4x2wu"),
    KernelConfig("rmsnorm", 4096),
    KernelConfig("rmsnorm", 4096, schedule="8x1r2"),
    KernelConfig("rmsnorm", 4096, pair=True),
]
TARGETS = [Target(name) for name in ("cpu", "sm_90a", "sm_100a", "sm_103a", "sm_100f")]


class BuildingNeededError(Exception):
    """A kernel would have been compiled."""


class Compiler(Toolchain):
    """Gives its name and version for machine code, while that is wanted."""

    builds, version = True, 1
    machine = "x86_64"

    @property
    def location(self) -> Path:
        return Path("compiler")

    def identity(self) -> str:
        return f"{self.name} {self.version}"

    def flags(self, target: Target) -> tuple[str, ...]:
        return (f"--target={target}",)

    def compile(self, source: str, target: Target) -> bytes:
        if not Compiler.builds:
            raise BuildingNeededError
        return self.identity().encode()


def compiler(name_: str, version_: int = 1) -> type[Compiler]:
    class Named(Compiler):
        name, version = name_, version_

    return Named


class Stored(NamedTuple):
    """An artifact, and the key under which it lies."""

    key: str
    artifact: Artifact


@once
def stored(config: KernelConfig, target: Target, backend: str, version: int, fits: bool) -> Stored | None:
    """The artifact that a version of a backend has built, if it can; it may need another machine."""
    try:
        source = source_for(config, target, backend)
    except ValueError:
        return None
    toolchain = compiler(backend, version)()
    built = compile_kernel(source, toolchain)
    manifest = {**built.manifest, "requires": {} if fits else {"machine": "pdp11"}}
    return Stored(kernel_key(source, toolchain), Artifact(built.payload, manifest))


class Case(NamedTuple):
    """A question, where it is asked, and what is in the cache."""

    config: KernelConfig
    target: Target
    backend: str
    variable: str
    mode: str
    installed: frozenset[str]
    entries: tuple[Stored, ...]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    target = draw(st.sampled_from(TARGETS))
    backends = ["cxx"] if target.is_cpu else ["nvrtc", "nvcc", "cute"]
    config = draw(st.sampled_from(CONFIGS))
    # Most of what lies there is of this kernel, or nearly.
    configs = [each for each in CONFIGS if replace(each, schedule="") == replace(config, schedule="")]
    near = st.builds(
        stored,
        st.sampled_from(configs),
        st.sampled_from([each for each in (target, target.family) if each is not None]),
        st.sampled_from(backends),
        st.sampled_from([1, 2]),
        st.sampled_from([True, True, True, False]),
    )
    return Case(
        config,
        target,
        draw(st.sampled_from([*["auto"] * 4, *backends])),
        draw(st.sampled_from([*[""] * 6, "nvcc", "cute"])),
        draw(st.sampled_from(["auto", "record", "deny"])),
        draw(st.frozensets(st.sampled_from(backends))),
        tuple(each for each in draw(st.lists(near, min_size=1, max_size=4)) if each is not None),
    )


def outcome(case: Case, cache: Cache) -> str | Artifact:
    """The outcome of a call without building: the artifact, or why there is none."""
    try:
        return load_or_build_kernel(case.config, case.target, cache, case.backend)
    except (BuildingNeededError, KernelNotWarmError, ToolchainMissingError):
        return "missing"
    except ValueError as error:
        return str(error)


def answer(case: Case, cache: Cache) -> str | Artifact | None:
    """The outcome of a call as predicted by `why`."""
    try:
        found = explain(case.config, case.target, cache, case.backend)
    except ValueError as error:
        return str(error)
    event(f"hit: {found.is_hit}, at once: {found.found_key == found.key}, for {found.found_target}")
    return cache.load(str(found.found_key)) if found.is_hit else "missing"


@given(case=cases())
@settings(max_examples=100, deadline=None)
def test_why_finds_what_loading_finds_without_building(case: Case) -> None:
    def installed(name: str) -> Any:
        if name not in case.installed:
            raise ToolchainMissingError(name, [], f"install {name}")
        return compiler(name)

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        cache = Cache(Store(Path(folder)))
        for entry in case.entries:
            cache.store.publish(*entry)
        patch.setattr("jitnorm.toolchains.toolchain_class", installed)
        patch.setattr(Compiler, "builds", False)
        patch.setenv("JITNORM_JIT", case.mode)
        patch.setenv("JITNORM_BACKEND", case.variable)
        told = answer(case, cache)
        assert told == outcome(case, cache)
        release_uses(cache.store.layout)
