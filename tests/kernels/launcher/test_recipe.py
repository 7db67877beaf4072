"""Recipes that could crash a call are rejected when they are read, with an error that explains the fault."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.launch_recipe import launch_recipe
from jitnorm.kernels.target import Target

from jitnorm.launcher import launcher

Recipe = dict[str, Any]
Change = Callable[[Recipe], object]


def good(target: str = "sm_90a") -> Recipe:
    """The recipe of a kernel with inputs, an output of one element, and a number."""
    return launch_recipe(KernelConfig("rmsnorm", 64, "float16", amax_parts=1), Target(target))


def refused(recipe: object) -> str:
    """The launcher's error for a recipe."""
    with pytest.raises(ValueError, match=r"^recipe: ") as caught:
        launcher().make_checker(recipe if isinstance(recipe, str) else json.dumps(recipe))
    return str(caught.value).removeprefix("recipe: ")


def argument(place: int, **fields: Any) -> Change:
    return lambda recipe: recipe["arguments"][place].update(fields)


def field(**fields: Any) -> Change:
    return lambda recipe: recipe.update(fields)


@pytest.mark.parametrize("target", ["cpu", "sm_90a"])
def test_what_the_cases_change_is_accepted(target: str) -> None:
    assert [each["name"] for each in good(target)["arguments"]] == ["input", "weight", "amax", "eps"]
    launcher().make_checker(json.dumps(good(target)))


@pytest.mark.parametrize(("change", "message"), [
    (field(device="tpu"), "device is tpu; allowed are cpu, cuda"),
    (field(device=None), "device is of type None; expected a string"),
    (field(row_dims=0), "row_dims is 0; allowed are 1 to 8"),
    (field(row_dims=9), "row_dims is 9; allowed are 1 to 8"),
    (field(row_dims="1"), "row_dims is of type ffi.SmallStr; expected a whole number"),
    (field(row_dims=1.5), "row_dims is of type float; expected a whole number"),
    (field(batched="no"), "batched is of type ffi.SmallStr; expected a boolean"),
    (field(heads="no"), "heads is of type ffi.SmallStr; expected a boolean"),
    (field(block=0), "block is 0; allowed are 1 to 1024"),
    (field(block=1 << 32), "block is 4294967296; allowed are 1 to 1024"),
    (field(cluster=17), "cluster is 17; allowed are 1 to 16"),
    (field(shared_bytes=-1), "shared_bytes is -1; allowed are 0 to 1048576"),
    (field(capability=[9]), "capability has 1 numbers; expected major and minor"),
    (field(capability=[9, -1]), "capability is -1; allowed are 0 to 999"),
    (field(arguments=[]), "has 0 arguments; allowed are 1 to 16"),
    (field(arguments={}), "arguments is of type ffi.Map; expected a list"),
    (field(arguments=[1]), "arguments is of type int; expected an object"),
    (lambda r: r["arguments"].extend({"name": str(i), "kind": "float32"} for i in range(13)),
     "has 17 arguments; allowed are 1 to 16"),
    (lambda r: r["arguments"].reverse(), "argument eps is the first, but is not a strided tensor of rows"),
    (lambda r: r["arguments"].pop(0), "argument weight is the first, but is not a strided tensor of rows"),
    (argument(1, name="input"), "has two arguments input"),
    (argument(1, name=""), "has an argument without a name"),
    (argument(1, kind="int"), "argument weight is of kind int; allowed are tensor, float32"),
    (argument(1, dtypes=[]), "argument weight has no dtypes"),
    (argument(1, dtypes=["real"]), "dtype real is unknown"),
    (argument(1, dtypes=["float4_e2m1fn"]), "dtype float4_e2m1fn is unknown"),
    (argument(1, dtypes=["float16x65535"]), "dtype float16x65535 is unknown"),
    (argument(1, alignment=3), "argument weight has an alignment that is not a power of two"),
    (argument(1, alignment=0), "alignment is 0; allowed are 1 to 16"),
    (argument(1, alignment=1 << 40), "alignment is 1099511627776; allowed are 1 to 16"),
    (argument(1, alignment=1), "argument weight has an alignment of less than an element"),
    (argument(1, row_set=2), "row_set is 2; allowed are 0 to 1"),
    (argument(1, row_set=1), "argument weight is of row set 1, which has no rows"),
    (argument(1, table_dims=5), "table_dims is 5; allowed are 0 to 4"),
    (argument(0, table_dims=1), "argument input is a table, but of no such shape"),
    (argument(1, table_dims=1, shape=[3, 3]), "argument weight is a table, but of no such shape"),
    (argument(1, strided=True), "arguments input and weight are of one row set, but not of one rank"),
    (argument(0, flat=True), "argument input is strided, but of any shape"),
    (argument(0, shape=[]), "argument input is strided, but has no extent of its own"),
    (argument(0, strided=False), "argument input is the first, but is not a strided tensor of rows"),
    (argument(2, dtypes=["uint8"]), "argument amax is an output of one element, but not of 32 bits"),
    (argument(2, if_empty=1e300), "if_empty is 1e+300; expected a float32"),
    (argument(2, single=[]), "single is of type ffi.Array; expected a boolean"),
    (field(grid=[]), "grid has an extent of 0 parts; expected an operator and two operands"),
    (field(grid=["+", "M"]), "grid has an extent of 2 parts; expected an operator and two operands"),
    (field(grid=["+", "M", None]), "grid is of type None; expected a string"),
    (field(grid=-1), "grid is -1; allowed are 0 to 1099511627776"),
    (field(grid=["ceil_div", "M", 0]), "grid has an extent whose divisor is not a positive number"),
    (field(grid=["%", "M", 0]), "grid has an extent whose divisor is not a positive number"),
    (field(grid=["round_up", 8, "M"]), "grid has an extent whose divisor is not a positive number"),
    (field(items={}), "items is of type ffi.Map; expected a string"),
])  # fmt: skip
def test_a_recipe_that_could_crash_a_call_is_refused(change: Change, message: str) -> None:
    recipe = good()
    change(recipe)
    assert refused(recipe) == message


@pytest.mark.parametrize("grain", [0, -1])
def test_a_part_of_the_grid_has_something_to_do(grain: int) -> None:
    assert refused({**good("cpu"), "grain": grain}).startswith(f"grain is {grain}; allowed are 1 to ")


@pytest.mark.parametrize("text", ["", "[]", "1", "{", "\0", '{"abi":', "null", '"M"'])
def test_what_is_no_object_is_refused(text: str) -> None:
    assert refused(text)


@pytest.mark.parametrize("text", ["[" * 1_000_000, '{"a":' * 100_000, "[" * 2000 + "]" * 2000])
def test_values_nest_only_as_deep_as_a_stack_has_room_for(text: str) -> None:
    assert refused(text).endswith("lists and objects; at most 1024 are allowed")


def test_extents_nest_as_deep_as_a_recipe_may() -> None:
    grid: Any = "M"
    for _ in range(900):
        grid = ["+", grid, 1]
    launcher().make_checker(json.dumps({**good("cpu"), "grid": grid}))


FAR = ["*", 1 << 40, 1 << 22]  # 2^62
BEYOND = [
    ["*", FAR, 2],
    ["+", FAR, FAR],
    ["round_up", ["+", FAR, ["+", 1, ["*", 1 << 40, (1 << 22) - 1]]], 1 << 40],
    ["min", "M", ["*", FAR, FAR]],
]


@pytest.mark.parametrize("extent", BEYOND, ids=["product", "sum", "multiple", "operand"])
def test_an_extent_beyond_64_bits_is_an_error_of_the_call(extent: list[Any]) -> None:
    check = launcher().make_checker(json.dumps({**good("cpu"), "grid": extent}))
    x, w, amax = np.ones((2, 64), np.float16), np.ones(64, np.float16), np.zeros(1, np.float32)
    with pytest.raises(ValueError, match="recipe: an extent is beyond 64 bits for tensors of these shapes"):
        check(x, w, amax, 1e-6)
