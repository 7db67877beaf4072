"""Launch recipes: what an op's arguments are, and extents that Python and the launcher evaluate alike."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.interface import Extent, TensorArgument, evaluate, interface, swizzled_scale_bytes
from jitnorm.kernels.launch_recipe import LAUNCHER_ABI, dispatch_signature, launch_recipe
from jitnorm.kernels.launcher_source import launcher_source
from jitnorm.kernels.quant_spec import MXFP4, NVFP4, QuantSpec
from jitnorm.kernels.target import TARGET_NAMES, Target

from jitnorm.launcher import launcher
from jitnorm.reference import swizzle_scales

CPU = Target("cpu")
BOTH = QuantSpec(scale_layout="linear+128x4", global_scale="given")


def extents() -> st.SearchStrategy[Extent]:
    positive: st.SearchStrategy[Extent] = st.integers(1, 1000)
    operators = ("*", "round_up", "ceil_div")
    leaves: st.SearchStrategy[Extent] = st.integers(0, 100000) | st.just("M")
    return st.recursive(
        leaves,
        lambda inner: st.tuples(st.sampled_from(operators), inner, positive).map(list),
        max_leaves=4,
    )


def recipe_of(extent: Extent, grid: Extent = "M") -> dict[str, Any]:
    """A recipe of one input of two elements a row and an output of `extent` bytes."""
    common = {"kind": "tensor", "strided": False, "alignment": 1, "may_be": ""}
    arguments = [
        {
            **common,
            "name": "input",
            "dtypes": ["uint8"],
            "shape": ["...", 2],
            "output": False,
            "strided": True,
        },
        {**common, "name": "out", "dtypes": ["uint8"], "shape": [extent], "output": True},
    ]
    recipe = {"abi": LAUNCHER_ABI, "entry": "f", "row_dims": 1, "arguments": arguments}
    return {**recipe, "device": "cpu", "grid": grid}


def size_by_launcher(extent: Extent, rows: int) -> int:
    """The size that the launcher wants of the output, out of its complaint about another one."""
    check = launcher().make_checker(json.dumps(recipe_of(extent)))
    with pytest.raises(ValueError, match=r"out: shape is \(1, 1\), expected \(\d+,\)") as caught:
        check(np.zeros((rows, 2), np.uint8), np.zeros((1, 1), np.uint8))
    found = re.search(r"expected \((\d+),\)", str(caught.value))
    assert found
    return int(found[1])


@settings(deadline=None, max_examples=200)
@given(extents(), st.integers(0, 5000))
def test_python_and_the_launcher_evaluate_extents_alike(extent: Extent, rows: int) -> None:
    assert size_by_launcher(extent, rows) == evaluate(extent, rows)


def test_an_unknown_operator_is_refused() -> None:
    with pytest.raises(ValueError, match=r"recipe: operator \+ is unknown; allowed are \*, ceil_div, round_up"):
        launcher().make_checker(json.dumps(recipe_of(["+", "M", 1])))


def test_a_recipe_of_another_launcher_is_refused() -> None:
    recipe = {**recipe_of(1), "abi": LAUNCHER_ABI + 1}
    with pytest.raises(ValueError, match=rf"recipe: is for launcher ABI {LAUNCHER_ABI + 1}.*rebuild the kernel"):
        launcher().make_checker(json.dumps(recipe))


@pytest.mark.parametrize("field", ["entry", "device", "row_dims", "arguments", "grid", "abi"])
def test_a_recipe_without_a_field_is_refused(field: str) -> None:
    recipe = recipe_of(1)
    del recipe[field]
    with pytest.raises(ValueError, match=f"recipe: has no field {field}"):
        launcher().make_checker(json.dumps(recipe))


@given(st.integers(0, 700), st.integers(1, 40))
def test_swizzled_scales_take_the_reference_s_size(rows: int, columns: int) -> None:
    size = evaluate(swizzled_scale_bytes(columns), rows)
    assert size == swizzle_scales(np.zeros((rows, columns), np.uint8), "128x4").size


@pytest.mark.parametrize(
    ("quant", "names"),
    [
        (None, ["input", "weight", "out", "eps"]),
        (NVFP4, ["input", "weight", "y_fp4", "block_scale", "block_scale_unswizzled", "global_scale", "eps"]),
    ],
)
def test_an_op_s_arguments_keep_their_order(quant: QuantSpec | None, names: list[str]) -> None:
    config = KernelConfig("rmsnorm", 64, quant=quant)
    assert [argument.name for argument in interface(config)] == names
    for listed in (launch_recipe(config, CPU)["arguments"], dispatch_signature(config)):
        assert [argument["name"] for argument in listed] == names


@pytest.mark.parametrize(
    ("quant", "absent"),
    [
        (NVFP4, {"block_scale_unswizzled", "global_scale"}),
        (MXFP4.with_layout("128x4"), {"block_scale_unswizzled", "global_scale"}),
        (BOTH, set()),
    ],
)
def test_what_a_configuration_does_without_is_absent(quant: QuantSpec, absent: set[str]) -> None:
    recipe = launch_recipe(KernelConfig("rmsnorm", 64, quant=quant), CPU)
    assert {a["name"] for a in recipe["arguments"] if a["kind"] == "absent"} == absent


def test_every_kind_of_output_may_be_given_as_bytes() -> None:
    for quant in (NVFP4, MXFP4, BOTH):
        for argument in interface(KernelConfig("rmsnorm", 64, quant=quant)):
            if isinstance(argument, TensorArgument) and argument.is_output:
                assert argument.dtypes[-1] == "uint8"


@pytest.mark.parametrize("vector_bytes", [2, 4, 8, 16])
def test_accesses_narrow_together_but_never_below_an_element(vector_bytes: int) -> None:
    config = KernelConfig("rmsnorm", 64, weight="float32", quant=NVFP4, vector_bytes=vector_bytes)
    accesses = {a.name: a.access_bytes(vector_bytes) for a in interface(config) if isinstance(a, TensorArgument)}
    assert accesses["input"] == vector_bytes
    assert accesses["weight"] == max(4, vector_bytes)
    assert accesses["y_fp4"] == max(1, vector_bytes // 2)


def test_only_the_output_of_a_plain_norm_may_be_its_input() -> None:
    for quant, expected in ((None, {"out": "input"}), (NVFP4, {})):
        recipe = launch_recipe(KernelConfig("rmsnorm", 64, quant=quant), CPU)
        in_place = {a["name"]: a["may_be"] for a in recipe["arguments"] if a.get("may_be")}
        assert in_place == expected


@pytest.mark.parametrize("name", TARGET_NAMES)
def test_a_grid_covers_all_rows_and_the_padding_exactly(name: str) -> None:
    target = Target(name)
    for hidden_size in (64, 4096, 65536):
        for quant in (None, NVFP4, NVFP4.with_layout("128x4")):
            config = KernelConfig("rmsnorm", hidden_size, quant=quant)
            recipe = launch_recipe(config, target)
            rows_per_block = 1 if target.is_cpu else max(1, 128 * 16 // hidden_size)
            for rows in (0, 1, 127, 128, 129):
                visited = -(-rows // 128) * 128 if quant and quant.is_swizzled else rows
                assert evaluate(recipe["grid"], rows) == -(-visited // rows_per_block), (config, rows)


def test_a_cuda_recipe_says_how_to_launch() -> None:
    recipe = launch_recipe(KernelConfig("rmsnorm", 4096, pdl=True), Target("sm_90a"))
    assert (recipe["device"], recipe["capability"]) == ("cuda", [9, 0])
    assert (recipe["block"], recipe["pdl"]) == (256, True)


def test_a_recipe_is_plain_json() -> None:
    recipe = launch_recipe(KernelConfig("rmsnorm", 4096, quant=BOTH), Target("sm_90a"))
    assert json.loads(json.dumps(recipe)) == recipe


def test_a_signature_holds_for_every_configuration_of_its_op() -> None:
    """The dispatcher is made before the call's configuration is known."""
    signatures = [
        dispatch_signature(KernelConfig("rmsnorm", hidden_size, dtype, quant=quant))
        for hidden_size in (64, 65536)
        for dtype in ("float16", "bfloat16")
        for quant in (NVFP4, MXFP4, BOTH)
    ]
    assert all(signature == signatures[0] for signature in signatures)


def test_the_launcher_s_source_names_its_abi() -> None:
    assert f"constexpr int kLauncherAbi = {LAUNCHER_ABI};" in launcher_source()
