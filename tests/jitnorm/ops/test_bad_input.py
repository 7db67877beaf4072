"""Invalid arguments raise an error that names the argument; nothing is written or compiled for them."""

# ruff: noqa: E501 - in the tables below a line is a case

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from inputs import make_input
from jitnorm.cache import Cache, Store
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.launch_recipe import launch_recipe
from jitnorm.kernels.target import Target
from placement import poisoned
from python_process import run_python

import jitnorm
from jitnorm import manager, rmsnorm, rmsnorm_fp4quant
from jitnorm.launcher import launcher

ROWS, SIZE = 4, 64
half = np.float16


def memory(shape: tuple[int, ...], dtype: Any, offset: int = 0) -> np.ndarray[Any, Any]:
    """A poisoned array; `offset` in bytes moves it off its alignment."""
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return poisoned(count + offset)[offset:].view(dtype).reshape(shape)


def values(*shape: int) -> np.ndarray[Any, Any]:
    x = memory(shape, half)
    x[...] = make_input("random", 1, max(1, int(np.prod(shape))), "float16").ravel()[: x.size].reshape(shape)
    return x


def every_second(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An array of the same shape whose inner stride is 2."""
    return memory((*array.shape, 2), array.dtype)[..., 0]


def self_overlapping(*shape: int, dtype: Any) -> np.ndarray[Any, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's, on writing to overlapping memory
        array = memory((shape[-1],), dtype)
        return np.lib.stride_tricks.as_strided(array, shape, (0,) * (len(shape) - 1) + array.strides)


def good_norm() -> dict[str, Any]:
    return {"input": values(ROWS, SIZE), "weight": values(SIZE), "out": memory((ROWS, SIZE), half)}


def good_fp4() -> dict[str, Any]:
    codes, scales = memory((ROWS, SIZE // 2), np.uint8), memory((ROWS, SIZE // 16), np.uint8)
    return {"input": values(ROWS, SIZE), "weight": values(SIZE), "y_fp4": codes, "block_scale": scales}


@dataclass
class Refused:
    """A change to a valid call, and the error that it must raise."""

    name: str
    change: Callable[[dict[str, Any]], dict[str, Any]]
    message: str
    error: type[Exception] = ValueError
    frameworks: tuple[str, ...] = field(default=("numpy", "torch"))


NUMPY_ONLY = ("numpy",)


def with_shared_memory(call: dict[str, Any], name: str, other: str, shift: int) -> dict[str, Any]:
    """The output `name` in the memory of `other`, `shift` bytes further."""
    a, b = call[name], call[other]
    shared = poisoned(2 * max(a.nbytes, b.nbytes) + shift)
    placed = shared[: b.nbytes].view(b.dtype).reshape(b.shape)
    placed[...] = b
    return {other: placed, name: shared[shift : shift + a.nbytes].view(a.dtype).reshape(a.shape)}


NORM_CASES = [
    Refused("input_float32", lambda c: {"input": np.ones((4, 64), np.float32)}, "weight dtype: is 'float16'; allowed are 'float32'"),
    Refused("input_float64", lambda c: {"input": np.ones((4, 64))}, "input dtype: is 'float64'; allowed are 'float16', 'bfloat16', 'float32'"),
    Refused("input_int8", lambda c: {"input": np.ones((4, 64), np.int8)}, "input dtype: is 'int8'; allowed are"),
    Refused("input_bool", lambda c: {"input": np.ones((4, 64), bool)}, "input dtype: is 'bool'; allowed are"),
    Refused("input_list", lambda c: {"input": [[1.0] * 64]}, "input: is a list; expected a tensor of torch, NumPy", TypeError, NUMPY_ONLY),
    Refused("input_none", lambda c: {"input": None}, "input: is None; expected a tensor", TypeError),
    Refused("input_scalar", lambda c: {"input": memory((), half), "out": None}, r"input: has no dimensions; expected \(\.\.\., hidden_size\)"),
    Refused("input_empty_rows", lambda c: {"input": values(4, 0), "weight": values(0), "out": memory((4, 0), half)}, "input: its last dimension .* is 0; 1 to 262144"),
    Refused("input_too_long", lambda c: {"input": values(1, 262145), "weight": values(262145), "out": None}, "input: its last dimension .* is 262145; 1 to 262144"),
    Refused("input_inner_stride", lambda c: {"input": every_second(c["input"])}, "input: the stride of its last dimension is 2, expected 1"),
    Refused("input_off_element", lambda c: {"input": memory((4, 64), half, 1)}, "input: its rows are aligned to 1 bytes, this kernel needs 2, the size of an element", ValueError, NUMPY_ONLY),
    Refused("weight_number", lambda c: {"weight": 1.0}, "weight: is .*float.*; expected a tensor", TypeError),
    Refused("weight_list", lambda c: {"weight": [1.0] * 64}, "weight: is .*; expected", TypeError),
    Refused("weight_float64", lambda c: {"weight": np.ones(64)}, "weight dtype: is 'float64'; allowed are 'float16', 'float32'"),
    Refused("weight_other_half", lambda c: {"weight": np.ones(64, ml_dtypes.bfloat16)}, "weight dtype: is 'bfloat16'; allowed are 'float16', 'float32'"),
    Refused("weight_size", lambda c: {"weight": values(63)}, r"weight: shape is \(63,\), expected \(64,\)"),
    Refused("weight_rank", lambda c: {"weight": values(1, 64)}, r"weight: shape is \(1, 64\), expected \(64,\)"),
    Refused("weight_scalar", lambda c: {"weight": memory((), half)}, r"weight: shape is \(\), expected \(64,\)"),
    Refused("weight_stride", lambda c: {"weight": every_second(c["weight"])}, "weight: the stride of its last dimension is 2, expected 1"),
    Refused("weight_off_element", lambda c: {"weight": memory((64,), np.float32, 2)}, "weight: its rows are aligned to 2 bytes, this kernel needs 4, the size of an element", ValueError, NUMPY_ONLY),
    Refused("out_columns", lambda c: {"out": memory((4, 63), half)}, r"out: shape is \(4, 63\), expected \(4, 64\)"),
    Refused("out_rows", lambda c: {"out": memory((5, 64), half)}, r"out: shape is \(5, 64\), expected \(4, 64\)"),
    Refused("out_rank", lambda c: {"out": memory((1, 4, 64), half)}, r"out: shape is \(1, 4, 64\), expected \(4, 64\)"),
    Refused("out_flat", lambda c: {"out": memory((256,), half)}, r"out: shape is \(256,\), expected \(4, 64\)"),
    Refused("out_float32", lambda c: {"out": memory((4, 64), np.float32)}, "out: dtype is float32, expected float16"),
    Refused("out_bfloat16", lambda c: {"out": memory((4, 64), ml_dtypes.bfloat16)}, "out: dtype is bfloat16, expected float16"),
    Refused("out_inner_stride", lambda c: {"out": every_second(c["out"])}, "out: the stride of its last dimension is 2, expected 1"),
    Refused("out_off_element", lambda c: {"out": memory((4, 64), half, 1)}, "out: its rows are aligned to 1 bytes, this kernel needs 2", ValueError, NUMPY_ONLY),
    Refused("out_self_overlap", lambda c: {"out": self_overlapping(4, 64, dtype=half)}, "out: its strides make elements share memory"),
    Refused("out_on_next_row", lambda c: with_shared_memory(c, "out", "input", 128), "out: overlaps the memory of input"),
    Refused("out_on_next_element", lambda c: with_shared_memory(c, "out", "input", 2), "out: overlaps the memory of input"),
    Refused("out_on_weight", lambda c: with_shared_memory(c, "out", "weight", 0), "out: overlaps the memory of weight"),
    Refused("out_list", lambda c: {"out": [[0.0]]}, "out: is .*; expected a tensor", TypeError),
    Refused("eps_text", lambda c: {"eps": "small"}, "eps: is .*; expected a number", TypeError),
    Refused("eps_none", lambda c: {"eps": None}, "eps: is .*; expected a number", TypeError),
    Refused("stream", lambda c: {"stream": 1}, "stream: is given, but input is on the cpu; pass None"),
    Refused("stream_legacy", lambda c: {"stream": 0}, "stream: is given, but input is on the cpu; pass None"),
    Refused("stream_text", lambda c: {"stream": "main"}, "stream: is a str; expected None, an integer, a torch or CuPy stream", TypeError),
    Refused("pdl", lambda c: {"enable_pdl": True}, "enable_pdl: is True, but cpu has no programmatic dependent launch.*pass None or False"),
]  # fmt: skip


def swizzled(*shape: int) -> dict[str, Any]:
    return {"is_sf_swizzled_layout": True, "block_scale": memory(shape, np.uint8)}


FP4_CASES = [
    Refused("input_float64", lambda c: {"input": np.ones((4, 64))}, "input dtype: is 'float64'; allowed are 'float16', 'bfloat16', 'float32'"),
    Refused("input_shorter_than_a_block", lambda c: {"input": values(4, 8), "weight": values(8), "y_fp4": None, "block_scale": None}, "input: its last dimension .* is 8, not a multiple of block_size 16"),
    Refused("input_not_blocks", lambda c: {"input": values(4, 72), "weight": values(72), "y_fp4": None, "block_scale": None}, "input: its last dimension .* is 72, not a multiple of block_size 16"),
    Refused("input_not_blocks_of_32", lambda c: {"input": values(4, 80), "weight": values(80), "y_fp4": None, "block_scale": None, "block_size": 32}, "input: its last dimension .* is 80, not a multiple of block_size 32"),
    Refused("block_size", lambda c: {"block_size": 8}, "block_size: is 8; allowed are 16, 32"),
    Refused("block_size_bool", lambda c: {"block_size": True}, "block_size: is True; allowed are 16, 32"),
    Refused("scale_format", lambda c: {"scale_format": "e5m2"}, "scale_format: is 'e5m2'; allowed are 'e4m3', 'ue8m0'"),
    Refused("codes_dtype", lambda c: {"y_fp4": memory((4, 32), np.int8)}, "y_fp4: dtype is int8, expected float4_e2m1fnx2 or uint8"),
    Refused("codes_shape", lambda c: {"y_fp4": memory((4, 64), np.uint8)}, r"y_fp4: shape is \(4, 64\), expected \(4, 32\)"),
    Refused("codes_rows", lambda c: {"y_fp4": memory((3, 32), np.uint8)}, r"y_fp4: shape is \(3, 32\), expected \(4, 32\)"),
    Refused("codes_inner_stride", lambda c: {"y_fp4": every_second(c["y_fp4"])}, "y_fp4: the stride of its last dimension is 2, expected 1"),
    Refused("codes_self_overlap", lambda c: {"y_fp4": self_overlapping(4, 32, dtype=np.uint8)}, "y_fp4: its strides make elements share memory"),
    Refused("codes_on_input", lambda c: with_shared_memory(c, "y_fp4", "input", 0), "y_fp4: overlaps the memory of input"),
    Refused("codes_on_scales", lambda c: with_shared_memory(c, "block_scale", "y_fp4", 127), "(y_fp4|block_scale): overlaps the memory of (y_fp4|block_scale)"),
    Refused("scales_on_weight", lambda c: with_shared_memory(c, "block_scale", "weight", 100), "block_scale: overlaps the memory of weight"),
    Refused("scales_dtype", lambda c: {"block_scale": memory((4, 4), np.float32)}, "block_scale: dtype is float32, expected float8_e4m3fn or uint8"),
    Refused("scales_other_dtype", lambda c: {"block_scale": memory((4, 2), ml_dtypes.float8_e4m3fn), "block_size": 32}, "block_scale: dtype is float8_e4m3fn, expected float8_e8m0fnu or uint8"),
    Refused("scales_shape", lambda c: {"block_scale": memory((4, 8), np.uint8)}, r"block_scale: shape is \(4, 8\), expected \(4, 4\)"),
    Refused("scales_strided", lambda c: {"block_scale": memory((4, 8), np.uint8)[:, :4]}, "block_scale: is not contiguous"),
    Refused("scales_linear_for_swizzled", lambda c: swizzled(4, 4), r"block_scale: shape is \(4, 4\), expected \(512,\)"),
    Refused("scales_unpadded_for_swizzled", lambda c: swizzled(16), r"block_scale: shape is \(16,\), expected \(512,\)"),
    Refused("scales_swizzled_for_linear", lambda c: {"block_scale": memory((512,), np.uint8)}, r"block_scale: shape is \(512,\), expected \(4, 4\)"),
    Refused("one_layout_unswizzled_given", lambda c: {"block_scale_unswizzled": memory((4, 4), np.uint8)}, "block_scale_unswizzled: is given, but the scales are written in one layout; pass None or output_both_sf_layouts=True"),
    Refused("both_layouts_wrong_linear", lambda c: {"output_both_sf_layouts": True, "block_scale": memory((512,), np.uint8), "block_scale_unswizzled": memory((4, 8), np.uint8)}, r"block_scale_unswizzled: shape is \(4, 8\), expected \(4, 4\)"),
    Refused("global_scale_float64", lambda c: {"global_scale": np.ones(1)}, "global_scale: dtype is float64, expected float32"),
    Refused("global_scale_size", lambda c: {"global_scale": np.ones(2, np.float32)}, r"global_scale: shape is \(2,\), expected \(1,\)"),
    Refused("global_scale_number", lambda c: {"global_scale": 2.0}, "global_scale: is a .*float; expected a tensor", TypeError),
    Refused("global_scale_with_ue8m0", lambda c: {"global_scale": np.ones(1, np.float32), "block_size": 32}, "global_scale: is 'given', which cannot be combined with .* scale_format 'ue8m0'.*; allowed then are 'none'"),
    Refused("stream", lambda c: {"stream": 1}, "stream: is given, but input is on the cpu; pass None"),
    Refused("pdl", lambda c: {"enable_pdl": True}, "enable_pdl: is True, but cpu has no"),
]  # fmt: skip


def to_framework(framework: str, value: Any) -> Any:
    if framework == "numpy" or not isinstance(value, np.ndarray):
        return value
    if value.dtype.name in ("bfloat16", "float8_e4m3fn"):
        stored = torch.from_numpy(value.view(f"i{value.dtype.itemsize}"))
        return stored.view(getattr(torch, value.dtype.name))
    return torch.from_numpy(value)


def check_refused(op: Callable[..., Any], case: Refused, good: dict[str, Any], framework: str) -> None:
    arguments = {**good, **case.change(good)}
    arrays = {name: array for name, array in arguments.items() if isinstance(array, np.ndarray)}
    before = {name: array.tobytes() for name, array in arrays.items()}
    converted = {name: to_framework(framework, value) for name, value in arguments.items()}
    with pytest.raises(case.error, match=case.message):
        op(**converted)
    assert {name: array.tobytes() for name, array in arrays.items()} == before


def cases(listed: list[Refused]) -> Any:
    return pytest.mark.parametrize(
        ("case", "framework"),
        [pytest.param(case, name, id=f"{case.name}-{name}") for case in listed for name in case.frameworks],
    )


@pytest.fixture(params=["cold", "warm"])
def empty_store(
    request: pytest.FixtureRequest, fresh_dispatchers: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Store:
    """An empty cache; `warm` has seen the valid calls before the cache was emptied."""
    launcher()
    if request.param == "warm":
        rmsnorm(**good_norm())
        rmsnorm_fp4quant(**good_fp4())
    store = Store(tmp_path / "cache")
    monkeypatch.setattr(manager, "user_cache", lambda: Cache(store))
    monkeypatch.setattr(manager, "_kernels", {})
    return store


@cases(NORM_CASES)
def test_rmsnorm_refuses(case: Refused, framework: str, empty_store: Store) -> None:
    check_refused(rmsnorm, case, good_norm(), framework)
    assert not list(empty_store.entries())


@cases(FP4_CASES)
def test_rmsnorm_fp4quant_refuses(case: Refused, framework: str, empty_store: Store) -> None:
    check_refused(rmsnorm_fp4quant, case, good_fp4(), framework)
    assert not list(empty_store.entries())


@pytest.mark.parametrize("good", [good_norm, good_fp4])
def test_the_call_that_all_the_cases_change_is_allowed(good: Callable[[], dict[str, Any]]) -> None:
    arguments = good()
    before = {name: array.tobytes() for name, array in arguments.items()}
    (rmsnorm if good is good_norm else rmsnorm_fp4quant)(**arguments)
    assert {name for name, array in arguments.items() if array.tobytes() != before[name]} == set(arguments) - {
        "input",
        "weight",
    }


def test_a_read_only_numpy_output_is_refused(empty_store: Store) -> None:
    for op, good, name in ((rmsnorm, good_norm(), "out"), (rmsnorm_fp4quant, good_fp4(), "y_fp4")):
        good[name].flags.writeable = False
        before = good[name].tobytes()
        with pytest.raises(ValueError, match=f"{name}: is read-only; expected a writable array"):
            op(**good)
        assert good[name].tobytes() == before


def test_parts_of_a_tensor_that_interleave_do_not_overlap() -> None:
    packed = values(ROWS, 2 * SIZE)
    rmsnorm(packed[:, :SIZE], values(SIZE), out=packed[:, SIZE:])
    with pytest.raises(ValueError, match="out: overlaps the memory of input"):
        rmsnorm(packed[:, :SIZE], values(SIZE), out=packed[:, SIZE - 1 : -1])


def test_a_kernel_refuses_a_tensor_of_another_device() -> None:
    config = KernelConfig("rmsnorm", SIZE, "float16")
    check = launcher().make_checker(json.dumps(launch_recipe(config, Target("sm_90a"))))
    call = good_norm()
    with pytest.raises(ValueError, match="input: is on cpu, this kernel is built for a CUDA device"):
        check(*call.values(), 1e-6)


def test_a_kernel_refuses_a_wrong_number_of_arguments() -> None:
    kernel = jitnorm.get_kernel(KernelConfig("rmsnorm", SIZE, "float16"))
    call = list(good_norm().values())
    for arguments in (call, [*call, 1e-6, None, None]):
        with pytest.raises(TypeError, match=f"takes 4 arguments and, optionally, a stream; got {len(arguments)}"):
            kernel(*arguments)


def test_a_kernel_refuses_rows_that_it_cannot_walk() -> None:
    kernel = jitnorm.get_kernel(KernelConfig("rmsnorm", SIZE, "float16"))
    x, out = values(3, 2, SIZE).transpose(1, 0, 2), memory((2, 3, SIZE), half)
    before = out.tobytes()
    with pytest.raises(ValueError, match=r"input: its leading dimensions need 2 strides.*row_dims=2"):
        kernel(x, values(SIZE), out, 1e-6)
    assert out.tobytes() == before


def test_a_kernel_refuses_rows_aligned_to_less_than_its_accesses() -> None:
    kernel = jitnorm.get_kernel(KernelConfig("rmsnorm", SIZE, "float16"))
    x = memory((2, SIZE), half, 4)
    with pytest.raises(ValueError, match=r"input: its rows are aligned to 4 .*needs 16.*smaller vector_b"):
        kernel(x, values(SIZE), memory((2, SIZE), half), 1e-6)


def test_more_leading_dimensions_than_a_kernel_can_walk_are_refused(empty_store: Store) -> None:
    x = values(*(2,) * 9, SIZE).transpose(*reversed(range(9)), 9)
    with pytest.raises(ValueError, match=r"row_dims: is 9; allowed are|input: its leading dim"):
        rmsnorm(x, values(SIZE))
    assert not list(empty_store.entries())


def test_an_unknown_target_is_refused() -> None:
    with pytest.raises(ValueError, match="target: 'sm_70' is not known; use one of cpu, "):
        jitnorm.get_kernel("rmsnorm:hidden_size=64", "sm_70")


NO_COMPILER = """
import numpy as np, jitnorm
from jitnorm.toolchains import ToolchainMissingError, search
search.on_sys_path = lambda path: None  # zig would stand in
try:
    jitnorm.rmsnorm(np.ones((2, 64), np.float16), np.ones(64, np.float16))
except ToolchainMissingError as error:
    print(error)
"""


def test_without_a_compiler_the_error_says_what_to_install(tmp_path: Path) -> None:
    said = run_python(NO_COMPILER, cwd=tmp_path, PATH="", CXX="", JITNORM_CACHE_DIR=str(tmp_path / "cache"))
    assert "a compiler for cpu was not found; looked at: a C++ compiler g++, clang++ on PATH" in said
    assert "remedy: " in said
    assert "or: pip install ziglang; or: a wheel of prebuilt code" in said


WITHOUT_DRIVER = """
import numpy as np, jitnorm
from jitnorm.launcher import launcher
for call in (launcher().device_count, lambda: jitnorm.get_kernel("rmsnorm:hidden_size=64", "sm_90a")):
    try:
        call()
    except RuntimeError as error:
        print(error)
print(jitnorm.rmsnorm(np.ones((2, 64), np.float16), np.ones(64, np.float16), eps=0.0).sum())
"""


def test_without_a_driver_cuda_calls_say_so_and_the_cpu_still_works(tmp_path: Path) -> None:
    from ctypes.util import find_library

    if find_library("cuda"):
        pytest.skip("this machine has a CUDA driver")
    first, second, total = run_python(WITHOUT_DRIVER, cwd=tmp_path).splitlines()
    assert first == second
    assert "CUDA driver: libcuda.so.1 was not found; install NVIDIA's display driver, or pass CPU" in first
    assert float(total) == 128
