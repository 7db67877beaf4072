"""The launcher's requests to the CUDA driver follow the recipes."""

from __future__ import annotations

import json
from pathlib import Path

from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.launch_recipe import launch_recipe
from jitnorm.kernels.target import Target
from python_process import run_python
from recipe_extents import evaluate
from stand_in_driver import build_stand_in_driver

HELPERS = str(Path(__file__).parents[2] / "helpers")
ROWS = 3
CLUSTER, PDL = 4, 6  # the driver's numbers of these attributes

PROGRAM = """
import json, os, sys
sys.path.insert(0, sys.argv[2])
from dlpack_by_hand import CUDA, tensor_by_hand
from jitnorm.launcher import launcher
os.dup2(1, 2)
shapes = enumerate(((3, 4096), (4096,), (3, 4096)), start=1)
tensors = [tensor_by_hand(i << 44, shape, "bfloat16", device=(CUDA, 0)) for i, shape in shapes]
for recipe in json.loads(sys.argv[1]):
    launcher().load_kernel(recipe, b"code")(*tensors, 1e-6)
"""


def test_launches_have_the_blocks_and_attributes_of_their_recipes(tmp_path: Path) -> None:
    schedules = ("", "8x1b2", "8x1b4", "8x1b8", "8x1wao4")
    configs = [KernelConfig("rmsnorm", 4096, pdl=pdl, schedule=each) for each in schedules for pdl in (False, True)]
    recipes = [launch_recipe(config, Target("sm_90a")) for config in configs]
    environment = build_stand_in_driver(tmp_path, [(9, 0)])
    texts = json.dumps([json.dumps(recipe) for recipe in recipes])
    expected = []
    for recipe in recipes:
        numbers = [evaluate(recipe["grid"], ROWS), recipe["block"], recipe["shared_bytes"]]
        attributes = [f"{PDL}:1"] * recipe["pdl"] + [f"{CLUSTER}:{recipe['cluster']}"] * (recipe["cluster"] > 1)
        expected.append(" ".join(["launch", *map(str, numbers), *attributes]))
    assert run_python(PROGRAM, texts, HELPERS, cwd=tmp_path, **environment).splitlines() == expected
    assert len({recipe["cluster"] for recipe in recipes}) == 4
    assert len({recipe["shared_bytes"] for recipe in recipes}) == 2
