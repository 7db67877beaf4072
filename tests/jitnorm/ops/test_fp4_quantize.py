"""fp4_quantize, nvfp4_quantize and mxfp4_quantize: the bytes of the reference in FlashInfer's shapes."""

# ruff: noqa: E501 - in the table below a line is a case

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from encoded import SPECS, dtype_of, encoded
from expected import assert_all_same, assert_same_bytes
from frameworks import CPU_FRAMEWORKS
from inputs import INPUT_KINDS, make_input
from jitnorm.kernels.quant_spec import NVFP4, QuantSpec

from jitnorm import (
    SfLayout,
    fp4_quantize,
    mxfp4_quantize,
    nvfp4_quantize,
    quantize,
    shuffle_matrix_a,
    shuffle_matrix_sf_a,
)
from jitnorm.reference import encode_e4m3, quantize_nvfp4_row

E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)
LAYOUTS = {"128x4": SfLayout.layout_128x4, "8x4": SfLayout.layout_8x4, "linear": SfLayout.layout_linear}
FOUR_OVER_SIX = SimpleNamespace(e4m3_max=448, err_mode="MSE", err_use_fast_math=False)
GLOBAL = np.array([0.37], np.float32)


def check(got: Any, x: Any, spec: QuantSpec, what: str, given: np.float32 | None = None) -> None:
    expected = encoded(x.astype(np.float32), spec, given)
    wanted = expected["scale"]
    if spec.is_swizzled:
        wanted = wanted.reshape(-1, -(-x.shape[1] // int(spec.block_size) // 4) * 4)
    codes, scales = got[:2]
    assert (codes.dtype, scales.dtype) == (np.uint8, np.uint8)
    assert_same_bytes(codes, expected["data"], f"codes of {what}")
    assert scales.shape == wanted.shape
    assert_same_bytes(scales, wanted, f"scales of {what}")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("size", "ue8m0"), [(16, False), (32, True), (32, False), (16, True)])
def test_every_format_and_layout(size: int, ue8m0: bool, layout: str) -> None:
    spec = QuantSpec("e2m1", size, "ue8m0" if ue8m0 else "e4m3", layout)
    dtype = dtype_of(spec) if spec in SPECS else "bfloat16"
    options = {"is_sf_swizzled_layout": layout != "linear", "is_sf_8x4_layout": layout == "8x4"}
    for kind in INPUT_KINDS:
        for rows in (0, 1, 130):
            x = make_input(kind, rows, 96, dtype)
            check(fp4_quantize(x, None, size, ue8m0, **options), x, spec, kind)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_nvfp4_and_mxfp4_are_two_of_them(layout: str) -> None:
    x = make_input("real", 5, 96, "float16")
    spec = QuantSpec("e2m1", 16, "e4m3", layout, "given")
    check(nvfp4_quantize(x, GLOBAL, LAYOUTS[layout]), x, spec, "nvfp4", GLOBAL[0])
    check(mxfp4_quantize(x, sfLayout=LAYOUTS[layout]), x, QuantSpec("e2m1", 32, "ue8m0", layout), "mxfp4")


@pytest.mark.parametrize("base", [None, 1 / 2688, np.array([1 / 2688], np.float32)], ids=["none", "number", "tensor"])
def test_each_row_may_have_a_scale_of_its_own(base: Any) -> None:
    for kind in INPUT_KINDS:
        x = make_input(kind, 5, 96, "float16")
        codes, scales, row_scale = nvfp4_quantize(x, base, SfLayout.layout_8x4, per_token_activation=True)
        spec = QuantSpec("e2m1", 16, "e4m3", "8x4", "row")
        check((codes, scales), x, spec, kind)
        assert_same_bytes(row_scale, encoded(x.astype(np.float32), spec)["row_scale"], kind)


def test_an_inversed_global_scale_is_inverted_first() -> None:
    x = make_input("real", 5, 96, "float16")
    got = fp4_quantize(x, GLOBAL, is_global_scale_inversed=True)
    check(got, x, NVFP4.with_layout("128x4").with_global_scale("given"), "inversed", np.float32(1) / GLOBAL[0])
    check(fp4_quantize(x, is_global_scale_inversed=True), x, NVFP4.with_layout("128x4"), "none")


def test_infinity_times_a_factor_of_zero_is_nan_and_its_code_positive() -> None:
    x = make_input("random", 3, 96, "float32")
    x[0, 3], x[1, 20], x[2, 40] = -np.inf, np.inf, -np.inf
    for given in (1e-38, 1e-36, 1.0):
        scale = np.array([given], np.float32)
        check(fp4_quantize(x, scale, is_sf_swizzled_layout=False), x, NVFP4.with_global_scale("given"), "", scale[0])
    codes, _ = fp4_quantize(x, np.array([1e-38], np.float32), is_sf_swizzled_layout=False)
    assert codes[0, 1] >> 4 == 7


@pytest.mark.parametrize(("err_mode", "four_over_six"), [("MSE", True), ("mse", True), ("MAE", "mae")])
@pytest.mark.parametrize("e4m3_max", [448, 256])
def test_four_over_six_is_flashinfer_s_recipe(err_mode: str, four_over_six: bool | str, e4m3_max: int) -> None:
    x = make_input("real", 5, 96, "float16")
    asked = recipe(err_mode=err_mode, e4m3_max=e4m3_max, err_use_fast_math=True)
    spec = QuantSpec("e2m1", 16, "e4m3", "128x4", "given", four_over_six=four_over_six)
    check(fp4_quantize(x, GLOBAL, nvfp4_4over6=asked), x, spec, "fp4_quantize", GLOBAL[0])
    check(nvfp4_quantize(x, GLOBAL, nvfp4_4over6=asked), x, spec, "nvfp4_quantize", GLOBAL[0])
    of_rows = replace(spec, global_scale="row", e4m3_max=e4m3_max)
    base = 1 / (6 * e4m3_max)
    check(nvfp4_quantize(x, base, per_token_activation=True, nvfp4_4over6=asked), x, of_rows, "nvfp4_quantize")


@pytest.mark.parametrize("largest", [120, 5.3])
def test_a_base_scale_says_what_the_largest_scale_of_a_row_becomes(largest: float) -> None:
    x = make_input("spiky", 6, 96, "bfloat16")
    codes, scales, row_scale = nvfp4_quantize(x, 1 / (6 * largest), SfLayout.layout_linear, per_token_activation=True)
    assert_all_same((codes, scales, row_scale), quantize_nvfp4_row(x, e4m3_max=largest))
    assert scales.max() == encode_e4m3(np.array([largest], np.float32))[0]
    usual = nvfp4_quantize(x, 0.000372, SfLayout.layout_linear, per_token_activation=True)
    assert_all_same(usual, quantize_nvfp4_row(x))


@pytest.mark.parametrize("framework", CPU_FRAMEWORKS)
def test_rows_are_shuffled_on_request(framework: str) -> None:
    make = CPU_FRAMEWORKS[framework]
    x = make_input("real", 256, 96, "bfloat16")
    codes, scales = nvfp4_quantize(x, GLOBAL, SfLayout.layout_linear)
    got_codes, got_scales = nvfp4_quantize(make(x), make(GLOBAL), do_shuffle=True)
    assert_same_bytes(got_codes, shuffle_matrix_a(codes, 128))
    assert_same_bytes(got_scales, shuffle_matrix_sf_a(scales, 128).reshape(256, 8))


def test_scales_of_rows_are_shuffled_with_them() -> None:
    x = make_input("spiky", 128, 64, "float16")
    codes, scales, row_scale = nvfp4_quantize(x, None, SfLayout.layout_linear, per_token_activation=True)
    shuffled = nvfp4_quantize(x, None, do_shuffle=True, per_token_activation=True)
    assert_same_bytes(shuffled[0], shuffle_matrix_a(codes, 128))
    assert_same_bytes(shuffled[1], shuffle_matrix_sf_a(scales, 128).reshape(128, 4))
    assert_same_bytes(shuffled[2], shuffle_matrix_a(row_scale.reshape(128, 1), 128).reshape(128))


@pytest.mark.parametrize("spec", [NVFP4, QuantSpec("e2m1", 32, "ue8m0"), NVFP4.with_global_scale("row")], ids=str)
def test_e4m3_is_widened_exactly(spec: QuantSpec) -> None:
    codes = np.random.default_rng(0).integers(0, 256, (130, 96)).astype(np.uint8)
    codes[::2] &= 0x77  # rows without NaN
    x = codes.view(E4M3)
    q = quantize(x, spec=spec)
    assert_same_bytes(q.data, encoded(x.astype(np.float32), spec)["data"])
    assert_same_bytes(q.scale, encoded(x.astype(np.float32), spec)["scale"])


@pytest.mark.parametrize("framework", CPU_FRAMEWORKS)
def test_every_framework_gets_the_same_bytes(framework: str) -> None:
    make = CPU_FRAMEWORKS[framework]
    x = make_input("real", 5, 96, "bfloat16")
    for got, wanted in zip(nvfp4_quantize(make(x), make(GLOBAL)), nvfp4_quantize(x, GLOBAL), strict=True):
        assert tuple(got.shape) == wanted.shape
        assert_same_bytes(got, wanted, framework)


def test_leading_dimensions_stay_with_the_codes_alone() -> None:
    x = make_input("real", 6, 96, "float16").reshape(2, 3, 96)
    codes, scales = fp4_quantize(x, is_sf_swizzled_layout=False)
    flat_codes, flat_scales = fp4_quantize(x.reshape(6, 96), is_sf_swizzled_layout=False)
    assert (codes.shape, scales.shape) == ((2, 3, 48), (6, 6))
    assert_same_bytes(codes.reshape(6, 48), flat_codes)
    assert_same_bytes(scales, flat_scales)


def recipe(**changes: Any) -> Any:
    return SimpleNamespace(**{**vars(FOUR_OVER_SIX), **changes})


def a() -> Any:
    return np.ones((4, 64), np.float16)


REFUSED: list[tuple[str, Callable[[], Any], str, type[Exception]]] = [
    ("backend", lambda: fp4_quantize(a(), backend="trtllm"), "backend: is 'trtllm'; allowed are 'cuda', 'cute-dsl'", ValueError),
    ("cake", lambda: mxfp4_quantize(a(), backend="cake"), "backend: is 'cake'; allowed are 'cuda', 'cute-dsl'", ValueError),
    ("sf_vec_size", lambda: fp4_quantize(a(), sf_vec_size=64), "sf_vec_size: is 64; allowed are 16, 32", ValueError),
    ("ue8m0_scaled", lambda: fp4_quantize(a(), GLOBAL, 32, True), "global_scale: is 'given', which cannot be combined with .*ue8m0", ValueError),
    ("shuffle", lambda: nvfp4_quantize(a(), GLOBAL, do_shuffle=True), r"a: shape is .*; with do_shuffle expected \(M, K\), M a multiple of 128", ValueError),
    ("shuffle_layout", lambda: nvfp4_quantize(a(), GLOBAL, SfLayout.layout_8x4, do_shuffle=True), "sfLayout: is 8x4; with do_shuffle only layout_128x4", ValueError),
    ("permuted", lambda: nvfp4_quantize(a(), GLOBAL, expanded_idx_to_permuted_idx=a()), "expanded_idx_to_permuted_idx: is given", ValueError),
    ("out_scale", lambda: nvfp4_quantize(a(), None, per_token_activation=True, out_scale=GLOBAL), "out_scale: is given", ValueError),
    ("base", lambda: nvfp4_quantize(a(), 1 / 3000, per_token_activation=True), r"a_global_sf: is 0.000333.*from 2\*\*-9 to 448", ValueError),
    ("base_nan", lambda: nvfp4_quantize(a(), float("nan"), per_token_activation=True), "a_global_sf: is nan", ValueError),
    ("base_text", lambda: nvfp4_quantize(a(), "1", per_token_activation=True), "a_global_sf: is a str; expected a number", TypeError),
    ("number", lambda: nvfp4_quantize(a(), 2.0), "(a_global_sf|global_scale): is a .*float; expected a tensor", TypeError),
    ("layout", lambda: mxfp4_quantize(a(), sfLayout=3), r"sfLayout: is 3; allowed are 0 \(layout_128x4\)", ValueError),
    ("layout_text", lambda: nvfp4_quantize(a(), GLOBAL, "linear"), "sfLayout: is 'linear'; allowed are", ValueError),
    ("mode", lambda: fp4_quantize(a(), nvfp4_4over6=recipe(err_mode="L3")), "err_mode: is 'L3'; allowed are 'MAE', 'MSE'", ValueError),
    ("e4m3_max", lambda: fp4_quantize(a(), nvfp4_4over6=recipe(e4m3_max=128)), "e4m3_max: is 128; allowed are 448, 256", ValueError),
    ("recipe", lambda: fp4_quantize(a(), nvfp4_4over6=True), "nvfp4_4over6: is a bool; expected None or", TypeError),
    ("recipe_mxfp4", lambda: fp4_quantize(a(), None, 32, True, nvfp4_4over6=FOUR_OVER_SIX), "four_over_six: is True, which cannot be combined with", ValueError),
    ("stride", lambda: nvfp4_quantize(np.ones((4, 128), np.float16)[:, ::2], GLOBAL), "a: the stride of its last dimension is 2", ValueError),
    ("columns", lambda: nvfp4_quantize(np.ones((4, 72), np.float16), GLOBAL), r"(a|input): .* is 72, not a multiple of block_size 16", ValueError),
]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "message", "error"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_what_cannot_be_done_exactly_is_refused(call: Callable[[], Any], message: str, error: type[Exception]) -> None:
    with pytest.raises(error, match=message):
        call()
