"""mxfp8_quantize, rmsnorm_mxfp8quant and add_rmsnorm_mxfp8quant return the bytes of the reference."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from encoded import encoded, normalized
from expected import assert_same_bytes
from frameworks import CPU_FRAMEWORKS
from inputs import ALL_DTYPES, INPUT_KINDS, in_turn, make_input, make_weight
from jitnorm.kernels.quant_spec import MXFP8

from jitnorm import SfLayout, add_rmsnorm_mxfp8quant, mxfp8_quantize, rmsnorm_mxfp8quant
from jitnorm.reference import round_to, stored_residual

LAYOUTS = {"128x4": SfLayout.layout_128x4, "8x4": SfLayout.layout_8x4, "linear": SfLayout.layout_linear}


def expected(y: Any, layout: str, alignment: int = 32) -> tuple[Any, Any]:
    """Codes and flat scales of rows with added padding zeros."""
    padded = np.pad(y, ((0, 0), (0, -y.shape[1] % alignment)))
    fields = encoded(padded, MXFP8.with_layout(layout))
    return fields["data"], fields["scale"].reshape(-1)


@pytest.mark.parametrize(("alignment", "layout"), in_turn([1, 32, 64, 96, 128, 256], list(LAYOUTS)))
def test_rows_are_rounded_up_with_zeros(alignment: int, layout: str) -> None:
    for kind in INPUT_KINDS:
        for rows in (0, 1, 130):
            x = make_input(kind, rows, 96, "bfloat16")
            codes, scales = mxfp8_quantize(x, alignment=alignment, sf_swizzle_layout=LAYOUTS[layout])
            wanted_codes, wanted_scales = expected(x.astype(np.float32), layout, alignment)
            assert codes.dtype == ml_dtypes.float8_e4m3fn
            assert_same_bytes(codes, wanted_codes, f"codes of {kind}")
            assert_same_bytes(scales, wanted_scales, f"scales of {kind}")


def test_zeros_follow_a_row_that_fills_its_vectors() -> None:
    x = make_input("real", 5, 512, "bfloat16")
    codes, scales = mxfp8_quantize(x, alignment=192)
    wanted_codes, wanted_scales = expected(x.astype(np.float32), "128x4", 192)
    assert_same_bytes(codes, wanted_codes)
    assert_same_bytes(scales, wanted_scales)


def test_the_flag_chooses_between_linear_and_128x4() -> None:
    x = make_input("real", 5, 96, "float16")
    for swizzled, layout in ((True, "128x4"), (False, "linear")):
        assert_same_bytes(mxfp8_quantize(x, swizzled)[1], expected(x.astype(np.float32), layout)[1])


@pytest.mark.parametrize("framework", CPU_FRAMEWORKS)
def test_every_framework_gets_the_same_bytes(framework: str) -> None:
    x = make_input("real", 5, 96, "bfloat16")
    got = mxfp8_quantize(CPU_FRAMEWORKS[framework](x), alignment=128)
    for tensor, wanted in zip(got, mxfp8_quantize(x, alignment=128), strict=True):
        assert tuple(tensor.shape) == wanted.shape
        assert_same_bytes(tensor, wanted, framework)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backend": "cake"}, "backend: is 'cake'; allowed are 'cuda', 'cute-dsl'"),
        ({"alignment": 0}, "alignment: is 0; expected a positive int"),
        ({"alignment": 112}, "alignment: is 112; allowed are divisors and multiples of block_size 32"),
        ({"alignment": 2**19}, "alignment: is 524288, which makes rows of 524288 codes; up to 262144"),
        ({"sf_swizzle_layout": 7}, "sf_swizzle_layout: is 7; allowed are"),
    ],
)
def test_an_option_that_is_not_allowed_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mxfp8_quantize(np.ones((2, 96), np.float16), **options)


@pytest.mark.parametrize(("dtype", "swizzled"), in_turn(ALL_DTYPES, [False, True]))
def test_the_fused_norm(dtype: str, swizzled: bool) -> None:
    weight = make_weight(96, dtype)
    for kind in INPUT_KINDS:
        x = make_input(kind, 5, 96, dtype)
        codes, scales = rmsnorm_mxfp8quant(x, weight, is_sf_swizzled_layout=swizzled)
        wanted = expected(normalized(x, weight), "128x4" if swizzled else "linear")
        assert_same_bytes(codes, wanted[0], kind)
        assert_same_bytes(scales.reshape(-1), wanted[1], kind)


def test_the_fused_norm_with_a_residual_and_all_outputs_given() -> None:
    weight = make_weight(96, "float16")
    for kind in INPUT_KINDS:
        x, residual = make_input(kind, 5, 96, "float16"), make_input("random", 5, 96, "float16", seed=2)
        y, total = normalized(x, weight, residual), stored_residual(x, residual)
        given = np.empty((5, 96), np.uint8), np.empty((128, 4), np.uint8), np.empty((5, 3), np.uint8)
        kept = np.empty_like(x)
        made = add_rmsnorm_mxfp8quant(
            x, residual, weight, given[0], given[1],
            output_both_sf_layouts=True, block_scale_unswizzled=given[2], y_out=kept,
        )  # fmt: skip
        assert all(got is tensor for got, tensor in zip(made, given, strict=True))
        assert_same_bytes(given[0], expected(y, "linear")[0], kind)
        assert_same_bytes(given[1].reshape(-1), expected(y, "128x4")[1], kind)
        assert_same_bytes(given[2].reshape(-1), expected(y, "linear")[1], kind)
        assert_same_bytes(kept, round_to(y, x.dtype), kind)
        assert_same_bytes(residual, total, kind)


def test_codes_that_do_not_fit_are_refused_by_their_name() -> None:
    x, weight = np.ones((2, 64), np.float16), np.ones(64, np.float16)
    with pytest.raises(ValueError, match=r"y_fp8: shape is \(2, 32\), expected \(2, 64\)"):
        rmsnorm_mxfp8quant(x, weight, np.empty((2, 32), np.uint8))
    with pytest.raises(ValueError, match=r"block_scale: shape is \(2, 3\), expected \(2, 2\)"):
        rmsnorm_mxfp8quant(x, weight, None, np.empty((2, 3), np.uint8))
