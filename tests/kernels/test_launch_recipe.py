"""Launch recipes: the arguments of ops, and extents that Python and the launcher evaluate alike."""

from __future__ import annotations

import itertools
import json
import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jitnorm.kernels.arguments import TensorArgument
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.extents import Extent, sizes_of
from jitnorm.kernels.interface import interface
from jitnorm.kernels.launch_recipe import LAUNCHER_ABI, dispatch_signature, launch_recipe
from jitnorm.kernels.launcher_source import launcher_source
from jitnorm.kernels.quant_spec import FP8_BLOCK, FP8_GROUP, FP8_TENSOR, FP8_TOKEN, MXFP4, MXFP8, NVFP4, QuantSpec
from jitnorm.kernels.target import TARGET_NAMES, Target
from recipe_extents import evaluate, extents

from jitnorm.launcher import launcher
from jitnorm.reference import column_major_scales, swizzle_scales

CPU = Target("cpu")
BOTH = QuantSpec(scale_layout="linear+128x4", global_scale="given")
SWIZZLED = [NVFP4.with_layout(layout) for layout in ("linear", "128x4", "8x4", "linear+8x4")]


def recipe_of(extent: Any, grid: Any = "M") -> dict[str, Any]:
    """A recipe of two inputs of rows of one byte, the first a batch, and an output of `extent` bytes."""
    common = {
        "kind": "tensor",
        "dtypes": ["uint8"],
        "row_set": 0,
        "table_dims": 0,
        "single": False,
        "flat": False,
        "if_empty": 0.0,
        "alignment": 1,
        "may_be": "",
    }
    rows = {**common, "shape": ["...", 1], "output": False, "strided": True}
    arguments = [
        {**rows, "name": "input"},
        {**rows, "name": "second", "row_set": 1},
        {**common, "name": "out", "shape": [extent], "output": True, "strided": False},
    ]
    recipe = {"abi": LAUNCHER_ABI, "entry": "f", "row_dims": 1, "batched": True, "heads": False, "items": None}
    return {**recipe, "arguments": arguments, "device": "cpu", "grid": grid, "grain": 1}


def size_by_launcher(extent: Extent, rows: int, matrices: int, second_rows: int) -> int:
    """The size of the output that the launcher expects, taken from its error about another size."""
    check = launcher().make_checker(json.dumps(recipe_of(extent.to_json())))
    inputs = np.zeros((matrices, rows, 1), np.uint8), np.zeros((second_rows, 1), np.uint8)
    with pytest.raises(ValueError, match=r"out: shape is \(1, 1\), expected \(\d+,\)") as caught:
        check(*inputs, np.zeros((1, 1), np.uint8))
    found = re.search(r"expected \((\d+),\)", str(caught.value))
    assert found
    return int(found[1])


@settings(deadline=None, max_examples=200)
@given(extents(), st.integers(0, 5000), st.integers(0, 5), st.integers(0, 5000))
def test_python_and_the_launcher_evaluate_extents_alike(extent: Extent, rows: int, matrices: int, second: int) -> None:
    assert size_by_launcher(extent, rows, matrices, second) == extent.evaluate(rows, matrices, second)


def test_an_unknown_operator_or_symbol_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"recipe: operator - is unknown; allowed are \+, \*, %, min, ceil_div, round_up"
    ):
        launcher().make_checker(json.dumps(recipe_of(["-", "M", 1])))
    with pytest.raises(ValueError, match="recipe: symbol N is unknown; allowed are M, M2, B, T"):
        launcher().make_checker(json.dumps(recipe_of("N")))


def test_a_recipe_of_another_launcher_is_refused() -> None:
    recipe = {**recipe_of(1), "abi": LAUNCHER_ABI + 1}
    with pytest.raises(ValueError, match=rf"recipe: is for launcher ABI {LAUNCHER_ABI + 1}.*rebuild the kernel"):
        launcher().make_checker(json.dumps(recipe))


@pytest.mark.parametrize(
    "field", ["entry", "device", "row_dims", "batched", "heads", "items", "arguments", "grid", "abi"]
)
def test_a_recipe_without_a_field_is_refused(field: str) -> None:
    recipe = recipe_of(1)
    del recipe[field]
    with pytest.raises(ValueError, match=f"recipe: has no field {field}"):
        launcher().make_checker(json.dumps(recipe))


def size_of_scales(quant: QuantSpec, rows: int, columns: int) -> int:
    """The number of elements of block_scale, as documented for callers."""
    config = KernelConfig("quantize", columns * int(quant.block_size), quant=quant)
    shape = next(a.shape for a in interface(config) if isinstance(a, TensorArgument) and a.name == "block_scale")
    return math.prod(sizes_of(shape, (rows,), rows))


@pytest.mark.parametrize("layout", ["128x4", "8x4"])
@given(st.integers(0, 700), st.integers(1, 40))
def test_swizzled_scales_take_the_reference_s_size(layout: Any, rows: int, columns: int) -> None:
    expected = swizzle_scales(np.zeros((rows, columns), np.uint8), layout).size
    assert size_of_scales(NVFP4.with_layout(layout), rows, columns) == expected


@given(st.integers(0, 700), st.integers(1, 40))
def test_column_major_scales_take_the_reference_s_size(rows: int, columns: int) -> None:
    for layout in ("column", "column4"):
        expected = column_major_scales(np.zeros((rows, columns), np.float32), layout == "column4").size
        assert size_of_scales(FP8_GROUP.with_layout(layout), rows, columns) == expected


NORM = ("input", "residual", "gate", "input_weight", "weight", "bias")
FOUND = ("row_scale", "amax_parts", "tensor_scale", "amax", "scale_ub")
BLOCKS = ("block_scale", "block_scale_unswizzled", "global_scale", *FOUND)
WRITTEN = ("residual_out", "y_out", "inv_rms", "eps")


@pytest.mark.parametrize(
    ("op", "quant", "names"),
    [
        ("rmsnorm", None, (*NORM, "out", *WRITTEN)),
        ("rmsnorm", NVFP4, (*NORM, "y_fp4", *BLOCKS, *WRITTEN)),
        ("rmsnorm", MXFP8, (*NORM, "out", *BLOCKS, *WRITTEN)),
        ("rmsnorm", FP8_TENSOR, (*NORM, "out", "scale", *FOUND, *WRITTEN)),
        ("quantize", FP8_TOKEN, ("input", "out", "scale", *FOUND)),
        ("quantize", FP8_GROUP, ("input", "out", *BLOCKS)),
    ],
    ids=str,
)
def test_an_op_s_arguments_keep_their_order(op: str, quant: QuantSpec | None, names: tuple[str, ...]) -> None:
    config = KernelConfig(op, 128, quant=quant)
    assert tuple(argument.name for argument in interface(config)) == names
    taken = [argument.name for argument in interface(config) if argument.is_present]
    assert [argument["name"] for argument in dispatch_signature(config)["arguments"]] == taken
    assert [argument["name"] for argument in launch_recipe(config, CPU)["arguments"]] == taken


@pytest.mark.parametrize(
    ("config", "taken"),
    [
        ("rmsnorm:hidden_size=64", "input weight out eps"),
        ("rmsnorm:hidden_size=64,residual=true", "input residual weight out residual_out eps"),
        ("rmsnorm:hidden_size=64,quant=e2m1", "input weight y_fp4 block_scale eps"),
        ("rmsnorm:hidden_size=64,quant=e2m1,keep_norm=true", "input weight y_fp4 block_scale y_out eps"),
        ("quantize:hidden_size=64,quant=e2m1/32/ue8m0/128x4", "input y_fp4 block_scale"),
        ("quantize:hidden_size=64,quant=e2m1/16/e4m3/linear/row", "input y_fp4 block_scale row_scale"),
        (f"quantize:hidden_size=64,quant={BOTH}", "input y_fp4 block_scale block_scale_unswizzled global_scale"),
        ("quantize:hidden_size=64,quant=e5m2/row/f32", "input out row_scale"),
        ("quantize:hidden_size=64,quant=e5m2/tensor/f32", "input out scale"),
        ("quantize:hidden_size=64,quant=e5m2/tensor/f32/linear/tensor", "input out amax_parts tensor_scale amax"),
        (
            "quantize:hidden_size=64,quant=e2m1/16/e4m3/linear/tensor",
            "input y_fp4 block_scale amax_parts tensor_scale amax",
        ),
        ("quantize:hidden_size=64,quant=e4m3/row/f32,scale_ub=true", "input out row_scale scale_ub"),
        ("quantize:hidden_size=64,amax_parts=256", "input amax"),
        ("rmsnorm:hidden_size=64,residual=true,amax_parts=256", "input residual weight amax eps"),
    ],
)
def test_a_kernel_takes_only_what_its_configuration_has(config: str, taken: str) -> None:
    recipe = launch_recipe(KernelConfig.parse(config), CPU)
    assert [argument["name"] for argument in recipe["arguments"]] == taken.split()


def test_codes_and_narrow_scales_may_be_given_as_bytes() -> None:
    for quant in (NVFP4, MXFP4, BOTH, MXFP8, FP8_TENSOR, FP8_TOKEN, FP8_GROUP):
        for argument in interface(KernelConfig("quantize", 128, quant=quant)):
            if isinstance(argument, TensorArgument) and argument.is_output:
                assert argument.dtypes[-1] == ("uint8" if argument.c_type == "UInt8" else "float32")


@pytest.mark.parametrize("vector_bytes", [1, 2, 4, 8, 16])
def test_accesses_narrow_together_but_never_below_an_element(vector_bytes: int) -> None:
    config = KernelConfig("rmsnorm", 64, weight="float32", quant=NVFP4, vector_bytes=vector_bytes)
    accesses = {a.name: a.access_bytes(vector_bytes) for a in interface(config) if isinstance(a, TensorArgument)}
    assert accesses["input"] == max(2, vector_bytes)
    assert accesses["weight"] == max(4, vector_bytes)
    assert accesses["y_fp4"] == max(1, vector_bytes // 2)


def test_only_a_plain_norm_and_the_sum_may_be_written_in_place() -> None:
    plain, total = {"out": "input"}, {"residual_out": "residual"}
    for quant, residual, expected in (
        (None, False, plain),
        (None, True, plain | total),
        (NVFP4, False, {}),
        (FP8_TENSOR, True, total),
    ):
        recipe = launch_recipe(KernelConfig("rmsnorm", 64, residual=residual, quant=quant), CPU)
        in_place = {a["name"]: a["may_be"] for a in recipe["arguments"] if a.get("may_be")}
        assert in_place == expected


@pytest.mark.parametrize("name", TARGET_NAMES)
def test_a_grid_covers_all_rows_and_has_more_blocks_only_for_padding(name: str) -> None:
    target = Target(name)
    for hidden_size in (128, 4096, 65536):
        for quant in (None, *(FP8_GROUP.with_layout(at) for at in ("column", "column4")), *SWIZZLED):
            config = KernelConfig("rmsnorm", hidden_size, quant=quant)
            grid = launch_recipe(config, target)["grid"]
            rows_per_block = 1 if target.is_cpu else max(1, 64 * 16 // hidden_size)
            for rows in (0, 1, 127, 128, 129):
                padding = evaluate(grid, rows) - -(-rows // rows_per_block)
                assert (padding > 0) == (quant is not None and rows % quant.row_multiple > 0), (config, rows)


def test_a_grid_has_a_block_for_each_square_block() -> None:
    config = KernelConfig("quantize", 300, quant=FP8_BLOCK)
    for target, batched in itertools.product((Target("sm_90a"), CPU), (False, True)):
        recipe = launch_recipe(replace(config, batched=batched), target)
        for rows in (0, 1, 128, 129):
            expected = -(-rows // 128) * 3 * (2 if batched else 1)
            assert evaluate(recipe["grid"], rows, matrices=2) == evaluate(recipe["items"], rows, 2) == expected


def test_no_block_has_rows_of_two_row_sets() -> None:
    target = Target("sm_90a")  # 8 rows of 128 elements a block, or 16 that are encoded
    pair = launch_recipe(KernelConfig("rmsnorm", 128, pair=True), target)["grid"]
    batch = launch_recipe(KernelConfig("quantize", 128, quant=SWIZZLED[1], batched=True), target)["grid"]
    for rows, others in ((0, 0), (0, 1), (1, 0), (16, 17), (127, 129)):
        assert evaluate(pair, rows, second_rows=others) == -(-rows // 8) + -(-others // 8)
        assert evaluate(batch, rows, matrices=others) == others * (-(-rows // 16) + (rows % 128 > 0))


def test_a_masked_grid_does_not_grow_with_the_batch_but_covers_a_small_one() -> None:
    config = KernelConfig("quantize", 4096, quant=SWIZZLED[1], batched=True, masked=True)
    grid = launch_recipe(config, Target("sm_90a"))["grid"]
    assert [evaluate(grid, rows, matrices=8) for rows in (0, 1, 100, 1000, 10000)] == [0, 8, 800, 4096, 4096]
    assert evaluate(launch_recipe(config, CPU)["grid"], 1000, matrices=8) == 8000


def test_the_grid_of_experts_covers_all_rows_and_the_padding_of_each() -> None:
    for hidden_size, rows_per_block, shares in ((4096, 1, 2), (128, 16, 1)):
        config = KernelConfig("quantize", hidden_size, quant=SWIZZLED[1], experts=8)
        grid, unpadded = (
            launch_recipe(replace(config, quant=quant), Target("sm_90a"))["grid"] for quant in (SWIZZLED[1], NVFP4)
        )
        for rows in (0, 1, 100):
            assert evaluate(unpadded, rows) == -(-rows // rows_per_block)
            assert evaluate(grid, rows) == evaluate(unpadded, rows) + 8 * shares
        assert evaluate(launch_recipe(config, CPU)["grid"], 1000) == 1008
        assert launch_recipe(replace(config, experts=0, quant=SWIZZLED[0]), CPU)["grid"] == "M"


def test_a_cuda_recipe_says_how_to_launch() -> None:
    recipe = launch_recipe(KernelConfig("rmsnorm", 4096, pdl=True), Target("sm_90a"))
    assert (recipe["device"], recipe["capability"], recipe["family"]) == ("cuda", [9, 0], False)
    assert (recipe["block"], recipe["pdl"]) == (128, True)


@pytest.mark.parametrize("text", ["quantize:hidden_size=96", "rmsnorm:hidden_size=4096", "rmsnorm:hidden_size=262144"])
@pytest.mark.parametrize("target", ["cpu", "sm_90a"])
def test_parts_of_a_tensor_are_found_by_at_most_as_many_blocks_even_without_rows(text: str, target: str) -> None:
    """Each block writes its own part, and the first ones those that are left."""
    recipe = launch_recipe(KernelConfig.parse(f"{text},amax_parts=256"), Target(target))
    assert 1 <= evaluate(recipe["grid"], 0) <= recipe.get("cluster", 1)
    assert 128 < evaluate(recipe["grid"], 1 << 30) <= 256


def test_a_recipe_for_a_family_differs_from_that_of_its_oldest_target_by_saying_so() -> None:
    config = KernelConfig("rmsnorm", 65536, quant=BOTH, pdl=True)
    of_family, of_target = (launch_recipe(config, Target(name)) for name in ("sm_100f", "sm_100a"))
    assert (of_family["capability"], of_family["family"]) == ([10, 0], True)
    assert of_family == {**of_target, "family": True}


def test_a_recipe_is_plain_json() -> None:
    recipe = launch_recipe(KernelConfig("rmsnorm", 4096, quant=BOTH), Target("sm_90a"))
    assert json.loads(json.dumps(recipe)) == recipe


@pytest.mark.parametrize("quant", [None, NVFP4, MXFP4, BOTH, NVFP4.with_global_scale("row"), FP8_TENSOR], ids=str)
def test_a_signature_holds_for_every_hidden_size_and_dtype(quant: QuantSpec | None) -> None:
    """The dispatcher is made before the call's configuration is known."""
    signatures = [
        dispatch_signature(KernelConfig("rmsnorm", hidden_size, dtype, weight, quant=quant))
        for hidden_size in (64, 65536)
        for dtype in ("float16", "bfloat16", "float32")
        for weight in ("", "float32")
    ]
    assert all(signature == signatures[0] for signature in signatures)


def test_the_launcher_s_source_names_its_abi() -> None:
    assert f"constexpr int kLauncherAbi = {LAUNCHER_ABI};" in launcher_source()
