"""The text from which keys of CuTe-DSL kernels are made, without CuTe-DSL."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.cute.offer import why_not
from jitnorm.kernels.cute.recipe import cute_recipe
from jitnorm.kernels.cute.source import SHARED_MODULES, cute_source, parse_heading
from jitnorm.kernels.target import Target
from python_process import run_python

FOLDER = Path(__file__).parents[3] / "kernels"
CONFIG, HOPPER = KernelConfig.parse("rmsnorm:hidden_size=4096,quant=e2m1/16,pdl=true"), Target("sm_90a")


def imported(path: Path) -> set[Path]:
    """The modules of the project that a module imports when it is loaded."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.level:
            base = path.parents[node.level - 1]
            names = [node.module] if node.module else [alias.name for alias in node.names]
            found |= {base.joinpath(*name.split(".")).with_suffix(".py") for name in names}
    return found


def reached(path: Path) -> set[Path]:
    found, new = {path}, {path}
    while new:
        new = set().union(*map(imported, new)) - found
        found |= new
    return found


def test_the_text_has_every_module_that_a_kernel_is_made_of() -> None:
    made_of = {path.relative_to(FOLDER).as_posix() for path in reached(FOLDER / "cute" / "build.py")}
    assert {name for name in made_of if "/" not in name} == set(SHARED_MODULES)
    text = cute_source(CONFIG, HOPPER).text
    for name in made_of:
        assert (FOLDER / name).read_text(encoding="utf-8") in text


def test_the_heading_is_read_back() -> None:
    assert parse_heading(cute_source(CONFIG, HOPPER).text) == (CONFIG, HOPPER)
    with pytest.raises(ValueError, match="not with the heading"):
        parse_heading("extern int x;")


def test_the_text_differs_where_the_kernel_does() -> None:
    texts = {cute_source(CONFIG, target).text for target in (HOPPER, Target("sm_100a"))}
    texts.add(cute_source(KernelConfig.parse("rmsnorm:hidden_size=4096"), HOPPER).text)
    assert len(texts) == 3


def test_only_building_imports_cutlass(tmp_path: Path) -> None:
    program = """
import sys
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.cute.recipe import cute_recipe
from jitnorm.kernels.cute.recipe import cute_recipe
from jitnorm.kernels.cute.source import cute_source
from jitnorm.kernels.target import Target
config, target = KernelConfig("rmsnorm", 4096), Target("sm_90a")
cute_source(config, target), cute_recipe(config, target)
print("cutlass" in sys.modules, "jitnorm.kernels.cute.build" in sys.modules)
"""
    assert run_python(program, cwd=tmp_path).split() == ["False", "False"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("dequantize:hidden_size=64,quant=e2m1/16", "the op is dequantize"),
        ("quantize:hidden_size=64,quant=e2m1/16,axis=0", "the op is quantize"),
        ("quantize:hidden_size=64,quant=e2m1/16,gate_columns=64", "gate_columns"),
        ("quantize:hidden_size=64,activation=gelu", "activation"),
        ("rmsnorm:hidden_size=64,streams=2,batched=true", "streams, batched"),
        ("rmsnorm:hidden_size=64,pair=true", "pair"),
        ("quantize:hidden_size=64,quant=e2m1/16/e4m3/linear/none/up/true", "four_over_six"),
        ("rmsnorm:hidden_size=64,quant=int8/row/f32", "codes in INT8"),
        ("rmsnorm:hidden_size=96,quant=e4m3/48/f32", "groups of 48"),
        ("quantize:hidden_size=64,quant=e2m1/32/ue8m0/linear/none/even", "scale_rounding even"),
    ],
)
def test_a_kernel_that_there_is_not_is_refused_with_the_reason(text: str, reason: str) -> None:
    config = KernelConfig.parse(text)
    assert reason in why_not(config)
    with pytest.raises(ValueError, match=r"backend: 'cute' has no kernel.*use 'auto', 'nvrtc' or 'nvcc'"):
        cute_source(config, HOPPER)


def test_the_cpu_and_what_the_target_lacks_are_refused() -> None:
    with pytest.raises(ValueError, match="not for cpu"):
        cute_source(KernelConfig("rmsnorm", 64), Target("cpu"))
    with pytest.raises(ValueError, match="pdl: is True"):
        cute_source(CONFIG, Target("sm_80"))


@pytest.mark.parametrize("schedule", ["4x2", "8x1wao4"])
def test_schedules_by_name_are_those_of_cuda_cxx_alone(schedule: str) -> None:
    named = replace(CONFIG, schedule=schedule)
    assert cute_source(named, HOPPER) == cute_source(CONFIG, HOPPER)
    assert cute_recipe(named, HOPPER) == cute_recipe(CONFIG, HOPPER)
