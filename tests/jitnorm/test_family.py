"""Kernels built for a family of GPUs: which devices the launcher takes, and when a lookup is content with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jitnorm.cache import Artifact, Cache, Store
from jitnorm.cache.events import subscribe
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.launch_recipe import launch_recipe
from jitnorm.kernels.target import Target
from python_process import run_python
from stand_in_driver import build_stand_in_driver

from jitnorm import KernelNotWarmError, building, kernel_source, manager, misses
from jitnorm.commands.why import explain
from jitnorm.toolchains import Toolchain, ToolchainMissingError

CONFIG = KernelConfig("rmsnorm", 4096, quant=None)
EXACT, FAMILY = Target("sm_103a"), Target("sm_100f")


class Compiler(Toolchain):
    """Gives a text that names the target for machine code."""

    name = "nvrtc"
    build = "1"

    @property
    def location(self) -> Path:
        return Path("compiler")

    def identity(self) -> str:
        return f"compiler {self.build}"

    def flags(self, target: Target) -> tuple[str, ...]:
        return (f"--gpu-architecture={target}",)

    def compile(self, source: str, target: Target) -> bytes:
        return f"build {self.build} for {target}".encode()


class OtherCompiler(Compiler):
    build = "2"


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(Store(tmp_path / "cache"))


@pytest.fixture(autouse=True)
def _with_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JITNORM_JIT", raising=False)
    monkeypatch.delenv("JITNORM_BACKEND", raising=False)
    monkeypatch.setattr(misses, "_recorded", {})
    monkeypatch.setattr(building, "select", lambda *_, **__: Compiler())


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> Toolchain:
        raise ToolchainMissingError("a compiler", ["nowhere"], "install one")

    monkeypatch.setattr(building, "select", missing)


@pytest.fixture
def no_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JITNORM_JIT", "deny")


def publish(cache: Cache, target: Target, compiler: Toolchain) -> Artifact:
    source = kernel_source.source_for(CONFIG, target, compiler.name)
    built = building.compile_kernel(source, compiler)
    cache.store.publish(kernel_source.kernel_key(source, compiler), built)
    return built


def load(cache: Cache, target: Target = EXACT) -> bytes:
    return manager.load_or_build_kernel(CONFIG, target, cache).payload


# What is looked up.


@pytest.mark.usefixtures("no_compiling")
@pytest.mark.parametrize("compiler", [Compiler(), OtherCompiler()])
def test_where_compiling_is_forbidden_the_family_serves_whatever_built_it(cache: Cache, compiler: Compiler) -> None:
    assert publish(cache, FAMILY, compiler).payload == load(cache)


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_the_family_serves_whatever_built_it(cache: Cache) -> None:
    publish(cache, FAMILY, OtherCompiler())
    assert load(cache) == b"build 2 for sm_100f"


def test_with_a_compiler_the_family_serves_if_it_is_of_that_compiler(cache: Cache) -> None:
    publish(cache, FAMILY, Compiler())
    assert load(cache) == b"build 1 for sm_100f"
    assert len(list(cache.store.entries())) == 1, "nothing was built"


def test_with_a_compiler_nothing_is_built_for_the_family(cache: Cache) -> None:
    publish(cache, FAMILY, OtherCompiler())
    assert load(cache) == b"build 1 for sm_103a"
    assert sorted(entry.manifest["target"] for entry in cache.store.entries()) == ["sm_100f", "sm_103a"]


@pytest.mark.parametrize("mode", ["auto", "record", "deny"])
def test_what_is_made_for_the_target_itself_is_preferred(
    cache: Cache, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JITNORM_JIT", mode)
    for target in (EXACT, FAMILY):
        publish(cache, target, Compiler())
    assert load(cache) == b"build 1 for sm_103a"


def test_what_the_family_serves_is_no_miss(cache: Cache, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JITNORM_JIT", "record")
    monkeypatch.setenv("JITNORM_MISS_RECORD", str(tmp_path / "misses"))
    publish(cache, FAMILY, Compiler())
    events: list[str] = []
    unsubscribe = subscribe(lambda kind, _: events.append(kind))
    load(cache)
    unsubscribe()
    assert events == ["hit"]
    assert not (tmp_path / "misses").exists()


@pytest.mark.usefixtures("no_compiling")
@pytest.mark.parametrize("name", ["sm_90a", "sm_110a", "sm_120a", "sm_100f"])
def test_no_other_family_serves(cache: Cache, name: str) -> None:
    publish(cache, Target("sm_120f" if name == "sm_100f" else "sm_100f"), Compiler())
    publish(cache, EXACT, Compiler())
    with pytest.raises(KernelNotWarmError, match=f"--arch {name}"):
        load(cache, Target(name))


def test_a_target_without_a_family_is_looked_up_once(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(cache, Target("sm_90a"), Compiler())
    generated: list[Target] = []
    generate = kernel_source.generate
    monkeypatch.setattr(kernel_source, "generate", lambda c, t: generated.append(t) or generate(c, t))  # type: ignore[func-returns-value]
    load(cache, Target("sm_90a"))
    assert generated == [Target("sm_90a")]


def test_the_question_why_has_the_same_answer(cache: Cache) -> None:
    assert not explain(CONFIG, EXACT, cache).is_hit
    publish(cache, FAMILY, OtherCompiler())
    missed = explain(CONFIG, EXACT, cache)
    assert (missed.is_hit, missed.found_target) == (False, None)
    publish(cache, FAMILY, Compiler())
    answer = explain(CONFIG, EXACT, cache)
    assert (answer.is_hit, answer.found_target, answer.nearest) == (True, "sm_100f", ())
    assert answer.asked == {cache.store.name: "found for sm_100f"}
    publish(cache, EXACT, Compiler())
    assert explain(CONFIG, EXACT, cache).found_target == "sm_103a"


# What runs where.

DEVICES = ((9, 0), (10, 0), (10, 3), (11, 0), (12, 0), (12, 1))
PROGRAM = """
import json, sys
from jitnorm.launcher import launcher
def answer(kernel, device):
    try:
        kernel(device)
        return ""
    except ValueError as error:
        return str(error)
print(json.dumps([
    [answer(launcher().load_kernel(recipe, b"code"), device) for device in range(launcher().device_count())]
    for recipe in json.loads(sys.argv[1])
]))
"""


def answers_of_the_launcher(recipes: list[dict[str, Any]], folder: Path) -> list[list[str]]:
    """The launcher's errors for each recipe on each of DEVICES; empty if it accepts the recipe."""
    environment = build_stand_in_driver(folder, DEVICES)
    texts = json.dumps([json.dumps(recipe) for recipe in recipes])
    answers: list[list[str]] = json.loads(run_python(PROGRAM, texts, cwd=folder, **environment))
    return answers


def test_the_launcher_takes_devices_of_the_family_and_no_others(tmp_path: Path) -> None:
    names = ("sm_100f", "sm_120f", "sm_100a", "sm_103a", "sm_121a")
    recipes = [launch_recipe(CONFIG, Target(name)) for name in names]
    # There is no such target yet: no device older than the recipe's is taken.
    recipes.append({**recipes[0], "capability": [10, 3]})
    answers = answers_of_the_launcher(recipes, tmp_path)
    taken = [[device for device, said in zip(DEVICES, row, strict=True) if not said] for row in answers]
    assert taken == [[(10, 0), (10, 3)], [(12, 0), (12, 1)], [(10, 0)], [(10, 3)], [(12, 1)], [(10, 3)]]
    at = "input: is on a device of compute capability 9.0, this kernel is built for 10.0"
    assert [answers[0][0], answers[2][0]] == [f"{at} and later minor versions", at]
