"""norm_quantize on the CPU returns the bytes of the reference: residual, bias, the norm itself, every format."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from encoded import KINDS, SPECS, assert_encoded, assert_same_encoding, given_keywords, hidden_size_of, normalized
from expected import assert_all_same, assert_same_bytes
from inputs import ALL_DTYPES, INPUT_KINDS, make_input, make_weight
from jitnorm.kernels.quant_spec import FP8_GROUP, FP8_TENSOR, FP8_TOKEN, MXFP4, NVFP4, QuantSpec

from jitnorm import norm_quantize, quantize, rmsnorm, rmsnorm_fp4quant, rmsnorm_quant
from jitnorm.reference import round_to, stored_residual

# Those of the golden digests of fused calls, and one of each kind that these lack.
GOLDEN = {replace(spec, scale_layout="linear") for spec in SPECS[1::2]}
FUSED = [
    (number, spec)
    for number, spec in enumerate(SPECS)
    if number % 2 == 1 or (spec in KINDS and replace(spec, scale_layout="linear") not in GOLDEN)
]


@pytest.mark.parametrize(("number", "spec"), FUSED, ids=str)
def test_every_format_gives_the_reference_s_bytes(number: int, spec: QuantSpec) -> None:
    """The other options take turns; every second configuration is also a golden digest's, and compiled once."""
    dtype, size = list(ALL_DTYPES)[number // 2 % 3], hidden_size_of(spec)
    unit_bias, adds, keeps = number % 4 == 0, number // 4 % 2 == 1, number // 8 % 2 == 1
    if number % 2 == 1:
        dtype, unit_bias, adds, keeps = "bfloat16", True, True, False
    weight = make_weight(size, "float32" if number % 10 == 0 else dtype)
    for kind in INPUT_KINDS:
        x = make_input(kind, 7, size, dtype)
        residual = make_input("random", 7, size, dtype, seed=3) if adds else None
        added = None if residual is None else residual.copy()
        kept = np.empty_like(x) if keeps else None
        got = norm_quantize(x, weight, residual=added, unit_bias=unit_bias, y_out=kept, **given_keywords(spec))
        y = normalized(x, weight, residual, unit_bias)
        assert_encoded(got, y, spec, x.shape, kind)
        if kept is not None:
            assert_same_bytes(kept, round_to(y, x.dtype), f"y_out of {kind}")
        if residual is not None:
            assert_same_bytes(added, stored_residual(x, residual), f"residual of {kind}")


@pytest.mark.parametrize(
    ("spec", "hidden_size"), [(NVFP4.with_global_scale("row"), 262144), (FP8_TOKEN, 131072)], ids=str
)
def test_the_longest_rows(spec: QuantSpec, hidden_size: int) -> None:
    x, weight = make_input("real", 2, hidden_size, "bfloat16"), make_weight(hidden_size, "bfloat16")
    got = norm_quantize(x, weight, **given_keywords(spec))
    assert_encoded(got, normalized(x, weight), spec, x.shape, str(hidden_size))


@pytest.mark.parametrize("eps", [0.0, 1e-5, 1.0])
def test_any_eps(eps: float) -> None:
    x, weight = make_input("tiny", 4, 128, "bfloat16"), make_weight(128, "bfloat16")
    got = norm_quantize(x, weight, spec=FP8_GROUP, eps=eps)
    assert_encoded(got, normalized(x, weight, eps=eps), FP8_GROUP, x.shape, str(eps))


@pytest.mark.parametrize("spec", [NVFP4, NVFP4.with_layout("128x4"), MXFP4], ids=str)
def test_the_op_of_a_format_gives_the_same(spec: QuantSpec) -> None:
    x, weight = make_input("real", 5, 96, "bfloat16"), make_weight(96, "bfloat16")
    q = norm_quantize(x, weight, spec=spec)
    swizzled = spec.is_swizzled
    pair = rmsnorm_fp4quant(x, weight, block_size=int(spec.block_size), is_sf_swizzled_layout=swizzled)
    assert_all_same((q.data, q.scale), pair)


def test_the_op_of_fp8_gives_the_same() -> None:
    x, weight = make_input("real", 5, 96, "bfloat16"), make_weight(96, "bfloat16")
    scale = np.array([0.02], np.float32)
    q = norm_quantize(x, weight, spec=FP8_TENSOR, scale=scale)
    out = np.empty_like(q.data)
    rmsnorm_quant(out, x, weight, scale)
    assert_same_bytes(q.data, out)


@pytest.mark.parametrize("spec", [NVFP4.with_global_scale("row"), FP8_GROUP], ids=str)
def test_it_is_quantization_of_the_unrounded_norm(spec: QuantSpec) -> None:
    """In float32 the norm is never rounded, so two calls compute the same as one."""
    x, weight = make_input("random", 5, 384, "float32"), make_weight(384, "float32")
    keywords = given_keywords(spec)
    assert_same_encoding(norm_quantize(x, weight, **keywords), quantize(rmsnorm(x, weight), **keywords), str(spec))


@pytest.mark.parametrize("layout", ["column", "column4", "linear"])
def test_a_row_s_result_does_not_depend_on_its_batch(layout: str) -> None:
    x, weight = make_input("spiky", 6, 384, "float16"), make_weight(384, "float16")
    spec = FP8_GROUP.with_layout(layout)
    batch = norm_quantize(x, weight, spec=spec)
    for i in range(len(x)):
        alone: Any = norm_quantize(x[i : i + 1], weight, spec=spec)
        assert_same_bytes(alone.data[0], batch.data[i])
        in_batch = batch.scale[i] if layout == "linear" else batch.scale[:, i]
        assert_same_bytes(alone.scale[0] if layout == "linear" else alone.scale[:, 0], in_batch)
