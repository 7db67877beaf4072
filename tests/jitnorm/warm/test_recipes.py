"""After following the documentation's recipes, no call misses, for every target and number of rows."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jitnorm.kernels.row_classes import classes_of
from jitnorm.kernels.target import TARGET_NAMES, Target
from op_calls import new
from typer.testing import CliRunner

import jitnorm
from jitnorm.call_config import config_of_call
from jitnorm.cli import app
from jitnorm.commands.warm import Progress
from jitnorm.warm.plan import Job

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RECIPES = sorted(
    {
        found.strip()
        for page in PAGES
        for found in re.findall(r"jitnorm ((?:warm|wheel) --[^\n`&|]*)", page.read_text(encoding="utf-8"))
    }
)
# Not for a call: what the launcher, another machine or jitnorm's own wheel is about.
WITHOUT_CALLS = ("warm --from", "wheel --from", "wheel --own")


def fp4_norm(size: int, **options: Any) -> Callable[[], Any]:
    def call() -> None:
        for count in (1, 3):
            jitnorm.rmsnorm_fp4quant(new((count, size)), new((size,)), **options)

    return call


def norms(size: int, head_size: int) -> Callable[[], Any]:
    """The norms that every model calls."""

    def call() -> None:
        x, heads = new((3, size)), new((3, head_size))
        jitnorm.rmsnorm(x, new((size,)))
        jitnorm.fused_add_rmsnorm(x, x.copy(), new((size,)))
        jitnorm.qk_rmsnorm(heads, heads, new((head_size,)), new((head_size,)))

    return call


# What is called after a recipe that names this.
CALLS: dict[str, Callable[[], Any]] = {
    "--config rmsnorm:hidden_size=2048 ": lambda: jitnorm.rmsnorm(new((3, 2048)), new((2048,))),
    "--config rmsnorm:hidden_size=4096,quant=e2m1/16 ": fp4_norm(4096),
    "--op rmsnorm_fp4quant --hidden-size 4096 --quant nvfp4 --layout 128x4 --arch": fp4_norm(
        4096, is_sf_swizzled_layout=True
    ),
    "--op rmsnorm_fp4quant --hidden-size 4096,8192 --quant nvfp4 --layout 128x4 --global-scale given ": fp4_norm(
        8192, is_sf_swizzled_layout=True, global_scale=new((1,), "float32")
    ),
    "--preset llama3 ": lambda: jitnorm.rmsnorm(new((3, 4096)), new((4096,))),
    "--model /models/Qwen3-8B": norms(4096, 128),
    "--model /models/mine ": norms(2048, 64),
}
MODELS = {"Qwen3-8B": {"hidden_size": 4096, "head_dim": 128}, "mine": {"hidden_size": 2048, "head_dim": 64}}


def jobs_of_recipe(recipe: str, models: Path, monkeypatch: pytest.MonkeyPatch) -> set[Job]:
    """The jobs of a recipe, for every target of the calls."""
    found: set[Job] = set()

    def show_warm(jobs: list[Job], *_: Any, **__: Any) -> Progress:
        found.update(jobs)
        return Progress([])

    monkeypatch.setattr("jitnorm.commands.warm.show_warm", show_warm)
    monkeypatch.setattr("jitnorm.commands.wheel.build_kernels_wheel", lambda jobs, *_, **__: found.update(jobs))
    monkeypatch.setattr("jitnorm.commands.wheel.show", lambda *_, **__: None)
    arguments = shlex.split(re.sub(r" --arch \S+", "", recipe).replace("/models/", f"{models}/"))
    result = CliRunner().invoke(app, [*arguments, "--arch", ",".join(TARGET_NAMES)])
    assert result.exit_code == 0, result.output
    return found


@pytest.fixture
def models(tmp_path: Path) -> Path:
    for name, config in MODELS.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps({**config, "model_type": "qwen3"}))
    return tmp_path


@pytest.mark.parametrize("recipe", [each for each in RECIPES if not each.startswith(WITHOUT_CALLS)])
def test_no_call_misses_after_a_recipe(
    recipe: str, models: Path, facts: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    (call,) = [call for named, call in CALLS.items() if named in f"{recipe} "]
    call()
    assert facts
    warmed = jobs_of_recipe(recipe, models, monkeypatch)
    for name in TARGET_NAMES:
        target = Target(name)
        for options, of_call in facts:
            for row_class in classes_of(of_call["hidden_size"]):
                assert Job(config_of_call(options, target, **{**of_call, "row_class": row_class}), target) in warmed


def test_the_documentation_has_recipes_for_each_way_to_name_kernels() -> None:
    for way in ("--config", "--op", "--preset", "--model", "--from"):
        assert any(way in recipe for recipe in RECIPES), way


@pytest.mark.parametrize("text", ["rmsnorm:hidden_size=2048", "rmsnorm:hidden_size=100"])
def test_a_kernel_that_is_asked_for_by_its_text_is_warmed_by_its_text(
    text: str, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warmed = jobs_of_recipe(f"warm --config {text}", models, monkeypatch)
    assert {Job(jitnorm.KernelConfig.parse(text), Target(name)) for name in TARGET_NAMES} <= warmed
