"""An artifact serves only with the launch recipe that its configuration has, wherever it comes from."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jitnorm.cache import Artifact, Cache, Store
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.target import Target

from jitnorm import KernelNotWarmError, building, kernel_source, lookup, manager, misses
from jitnorm.commands.why import explain
from jitnorm.toolchains import Toolchain
from jitnorm.warm.build import check
from jitnorm.warm.plan import Job

CONFIG = KernelConfig("rmsnorm", 4096)
TUNED = replace(CONFIG, schedule="4x2")
EXACT, FAMILY = Target("sm_103a"), Target("sm_100f")


class Compiler(Toolchain):
    """Gives a name for machine code."""

    def __init__(self, build: str) -> None:
        super().__init__()
        self.build = build

    name = "nvrtc"

    @property
    def location(self) -> Path:
        return Path("compiler")

    def identity(self) -> str:
        return f"compiler {self.build}"

    def flags(self, target: Target) -> tuple[str, ...]:
        return ()

    def compile(self, source: str, target: Target) -> bytes:
        return f"built {self.build}".encode()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    """An empty one, and a compiler."""
    monkeypatch.delenv("JITNORM_JIT", raising=False)
    monkeypatch.delenv("JITNORM_BACKEND", raising=False)
    monkeypatch.setattr(misses, "_recorded", {})
    monkeypatch.setattr(building, "select", lambda *_, **__: Compiler("here"))
    return Cache(Store(tmp_path / "cache"))


def without_memory_checks(recipe: str) -> str:
    """A recipe by which the launcher takes smaller outputs than the kernel writes."""
    changed = json.loads(recipe)
    changed["arguments"][-2]["shape"] = ["...", 1]
    return json.dumps(changed, separators=(",", ":"))


def publish(cache: Cache, config: KernelConfig, target: Target, build: str, change: Any) -> None:
    """Store what a compiler makes, its recipe changed, under the key that it should have."""
    source, compiler = kernel_source.source_for(config, target, "nvrtc"), Compiler(build)
    built = building.compile_kernel(source, compiler)
    manifest = {**built.manifest, "recipe": change(built.manifest["recipe"])}
    cache.store.publish(kernel_source.kernel_key(source, compiler), Artifact(built.payload, manifest))


def load(cache: Cache, config: KernelConfig = CONFIG) -> bytes:
    return manager.load_or_build_kernel(config, EXACT, cache).payload


PLACES = [(CONFIG, EXACT), (CONFIG, FAMILY), (TUNED, EXACT), (TUNED, FAMILY)]
CHANGES = [without_memory_checks, lambda recipe: recipe + " ", lambda _: None, lambda _: 1]


@pytest.mark.parametrize("build", ["here", "elsewhere"])
@pytest.mark.parametrize(("config", "target"), PLACES, ids=["exact", "family", "stand_in", "stand_in_of_family"])
def test_where_nothing_is_compiled_only_the_configuration_s_own_recipe_serves(
    cache: Cache,
    config: KernelConfig,
    target: Target,
    build: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("JITNORM_JIT", "deny")
    monkeypatch.setattr(lookup, "stand_ins", lambda *_: iter([TUNED]))
    publish(cache, config, target, build, without_memory_checks)
    with caplog.at_level(logging.WARNING, "jitnorm.cache"), pytest.raises(KernelNotWarmError):
        load(cache)
    assert f"ignoring an artifact of {config} for {target}: its recipe is another" in caplog.text
    publish(cache, config, target, "later", lambda recipe: recipe)
    assert load(cache) == b"built later"


@pytest.mark.parametrize("change", CHANGES, ids=["smaller_output", "other_text", "none", "number"])
@pytest.mark.parametrize("target", [EXACT, FAMILY], ids=str)
def test_with_a_compiler_another_recipe_counts_as_absent(
    cache: Cache, target: Target, change: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(cache, CONFIG, target, "here", change)
    monkeypatch.setattr(Compiler, "compile", lambda *_: b"built anew")
    assert load(cache) == b"built anew"


def test_warming_and_the_question_why_agree(cache: Cache) -> None:
    publish(cache, CONFIG, EXACT, "here", without_memory_checks)
    answer = explain(CONFIG, EXACT, cache)
    assert (answer.is_hit, answer.asked) == (False, {cache.store.name: "there, but its recipe is another"})
    job = Job(CONFIG, EXACT)
    assert list(check([job], cache, "auto")) == [job]
