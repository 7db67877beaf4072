"""add_rmsnorm_fp4quant on the CPU gives the bytes of the reference, and stores the sum."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from encoded import encoded, normalized
from expected import FORMATS, MXFP4, NVFP4, Fp4Options, assert_all_same, assert_same_bytes
from inputs import ALL_DTYPES, INPUT_KINDS, in_turn, make_input, make_weight
from jitnorm.kernels.quant_spec import QuantSpec

from jitnorm import add_rmsnorm_fp4quant, rmsnorm_fp4quant
from jitnorm.reference import round_to, stored_residual

SMALL = 96
OPTIONS = [
    *FORMATS,
    replace(NVFP4, layout="128x4", global_scale=0.75),
    replace(NVFP4, layout="both"),
    replace(MXFP4, layout="both"),
]


def run(x: Any, residual: Any, weight: Any, options: Fp4Options, **keywords: Any) -> Any:
    scale = options.given_global_scale()
    return add_rmsnorm_fp4quant(x, residual, weight, global_scale=scale, **options.keywords, **keywords)


def expected(x: Any, residual: Any, weight: Any, options: Fp4Options) -> tuple[Any, ...]:
    layout = "linear+128x4" if options.layout == "both" else options.layout
    global_scale = "none" if options.global_scale is None else "given"
    spec = QuantSpec("e2m1", options.block_size, options.scale_format, layout, global_scale)
    given = None if options.global_scale is None else np.float32(options.global_scale)
    return tuple(encoded(normalized(x, weight, residual), spec, given).values())


@pytest.mark.parametrize(("options", "dtype"), in_turn(OPTIONS, list(ALL_DTYPES)), ids=str)
def test_codes_scales_and_sum_are_the_reference_s(options: Fp4Options, dtype: str) -> None:
    weight = make_weight(SMALL, dtype)
    for kind in INPUT_KINDS:
        for rows in (1, 130):
            x, residual = make_input(kind, rows, SMALL, dtype), make_input("random", rows, SMALL, dtype, seed=2)
            wanted, total, before = expected(x, residual, weight, options), stored_residual(x, residual), x.tobytes()
            assert_all_same(run(x, residual, weight, options), wanted)
            assert_same_bytes(residual, total, f"residual of {kind}")
            assert x.tobytes() == before


@pytest.mark.parametrize("hidden_size", [4096, 65536, 262144])
def test_long_rows(hidden_size: int) -> None:
    weight = make_weight(hidden_size, "bfloat16")
    for kind in ("random", "nan", "huge"):
        x, residual = (make_input(kind, 2, hidden_size, "bfloat16", seed=seed) for seed in (0, 1))
        wanted, total = expected(x, residual, weight, NVFP4), stored_residual(x, residual)
        assert_all_same(run(x, residual, weight, NVFP4), wanted)
        assert_same_bytes(residual, total, f"residual of {kind}")


@pytest.mark.parametrize("options", [NVFP4, replace(MXFP4, layout="128x4")], ids=str)
def test_the_norm_itself_goes_to_y_out_and_changes_no_code(options: Fp4Options) -> None:
    x, residual = (make_input("random", 5, SMALL, "bfloat16", seed=seed) for seed in (0, 1))
    weight, kept = make_weight(SMALL, "bfloat16"), np.empty_like(x)
    y = round_to(normalized(x, weight, residual), x.dtype)
    wanted = expected(x, residual, weight, options)
    assert_all_same(run(x, residual, weight, options, y_out=kept), wanted)
    assert_same_bytes(kept, y, "y_out")


@pytest.mark.parametrize("options", [NVFP4, MXFP4], ids=str)
def test_it_is_rmsnorm_fp4quant_of_the_float32_sum(options: Fp4Options) -> None:
    """The stored sum is rounded, and is not the one that is normalized."""
    x, residual = (make_input("random", 5, SMALL, "bfloat16", seed=seed) for seed in (0, 1))
    weight = make_weight(SMALL, "float32")
    total = x.astype(np.float32) + residual.astype(np.float32)
    assert (total != stored_residual(x, residual).astype(np.float32)).any()
    scale = options.given_global_scale()
    of_sum = rmsnorm_fp4quant(total, weight, global_scale=scale, **options.keywords)
    assert_all_same(run(x, residual, weight, options), of_sum)


def test_given_outputs_get_what_allocated_ones_get() -> None:
    x, residual = (make_input("random", 5, SMALL, "bfloat16", seed=seed) for seed in (0, 1))
    weight, options = make_weight(SMALL, "bfloat16"), replace(NVFP4, layout="both")
    allocated = run(x, residual.copy(), weight, options)
    given = [np.full_like(np.asarray(output).view(np.uint8), 0xA5) for output in allocated]
    names = ("y_fp4", "block_scale", "block_scale_unswizzled")
    returned = run(x, residual, weight, options, **dict(zip(names, given, strict=True)))
    assert all(a is b for a, b in zip(returned, given, strict=True))
    assert_all_same(given, allocated)


def test_a_strided_residual_is_updated_where_it_lies() -> None:
    packed = make_input("random", 2 * 6, 200, "float16", seed=1).reshape(2, 6, 200)
    before, view = packed.copy(), packed[:, ::2, 8 : 8 + SMALL]
    x, weight = make_input("random", 6, SMALL, "float16").reshape(2, 3, SMALL), make_weight(SMALL, "float16")
    rows, added = x.reshape(6, SMALL), np.ascontiguousarray(view).reshape(6, SMALL)
    codes, scales = run(x, view, weight, NVFP4)
    assert_all_same((codes.reshape(6, -1), scales.reshape(6, -1)), expected(rows, added, weight, NVFP4))
    before[:, ::2, 8 : 8 + SMALL] = stored_residual(rows, added).reshape(view.shape)
    assert_same_bytes(packed, before, "the packed tensor")


def test_a_row_s_result_does_not_depend_on_its_batch() -> None:
    x, residual = (make_input("random", 9, SMALL, "bfloat16", seed=seed) for seed in (0, 1))
    weight = make_weight(SMALL, "bfloat16")
    batch = run(x, residual.copy(), weight, NVFP4)
    for i in range(len(x)):
        assert_all_same(run(x[i], residual[i], weight, NVFP4), [output[i] for output in batch])
