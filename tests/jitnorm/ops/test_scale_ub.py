"""scale_ub bounds the amax of FP8 and INT8 scales of rows and groups."""

from __future__ import annotations

import numpy as np
import pytest
from encoded import normalized
from expected import assert_same_bytes
from inputs import ALL_DTYPES, INPUT_KINDS, make_input, make_weight
from jitnorm.kernels.quant_spec import FP8_GROUP, FP8_TENSOR, FP8_TOKEN, MXFP8, NVFP4, QuantSpec

from jitnorm import norm_quantize, quantize
from jitnorm.reference import quantize_fp8_group, quantize_fp8_token, quantize_int8_group, quantize_int8_token

BOUND = np.array([1.25], np.float32)


@pytest.mark.parametrize("element", ["e4m3", "e5m2"])
@pytest.mark.parametrize("dtype", ALL_DTYPES)
def test_rows(dtype: str, element: str) -> None:
    spec = QuantSpec(element, "row", "f32")
    for kind in INPUT_KINDS:
        x = make_input(kind, 5, 40, dtype)
        q = quantize(x, spec=spec, scale_ub=BOUND)
        codes, scales = quantize_fp8_token(x, element, float(BOUND[0]))  # type: ignore[arg-type]
        assert_same_bytes(q.data, codes, kind)
        assert_same_bytes(q.scale, scales[:, 0], kind)


@pytest.mark.parametrize("scale_format", ["f32", "f32_ue8m0"])
def test_groups_of_a_norm(scale_format: str) -> None:
    spec, weight = QuantSpec("e4m3", 64, scale_format), make_weight(192, "bfloat16")
    for kind in INPUT_KINDS:
        x = make_input(kind, 5, 192, "bfloat16")
        q = norm_quantize(x, weight, spec=spec, scale_ub=BOUND)
        kept = "f32" if scale_format == "f32" else "ue8m0_f32"
        codes, scales = quantize_fp8_group(normalized(x, weight), 64, kept, float(BOUND[0]))  # type: ignore[arg-type]
        assert_same_bytes(q.data, codes, kind)
        assert_same_bytes(q.scale, scales, kind)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_int8(dtype: str) -> None:
    bound = float(BOUND[0])
    for kind in INPUT_KINDS:
        x = make_input(kind, 5, 192, dtype)
        token, group = (quantize(x, spec=QuantSpec("int8", n, "f32"), scale_ub=BOUND) for n in ("row", 64))
        codes, scales = quantize_int8_token(x, bound)
        assert_same_bytes(token.data, codes, kind)
        assert_same_bytes(token.scale, scales[:, 0], kind)
        codes, scales = quantize_int8_group(x, 64, bound)
        assert_same_bytes(group.data, codes, kind)
        assert_same_bytes(group.scale, scales, kind)


def test_a_bound_that_is_not_reached_changes_nothing() -> None:
    x = make_input("real", 5, 256, "bfloat16")
    for spec in (FP8_TOKEN, FP8_GROUP):
        bounded, free = quantize(x, spec=spec, scale_ub=np.array([1e30], np.float32)), quantize(x, spec=spec)
        assert_same_bytes(bounded.data, free.data)
        assert_same_bytes(bounded.scale, free.scale)


@pytest.mark.parametrize("spec", [NVFP4, MXFP8, FP8_TENSOR], ids=str)
def test_other_scales_have_no_bound(spec: QuantSpec) -> None:
    with pytest.raises(
        ValueError, match="scale_ub: is given, but only FP8 and INT8 scales of rows or groups are bounded"
    ):
        quantize(np.ones((2, 64), np.float16), spec=spec, scale_ub=BOUND)


def test_a_bound_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"scale_ub: shape is \(2,\), expected \(1,\)"):
        quantize(np.ones((2, 64), np.float16), spec=FP8_TOKEN, scale_ub=np.ones(2, np.float32))
