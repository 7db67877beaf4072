"""quantize_weight on the CPU returns the bytes of the reference, which are quantize's, transposed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from decoded import E2M1_SPECS
from encoded import GIVEN, given_keywords
from expected import assert_same_bytes
from frameworks import CPU_FRAMEWORKS
from inputs import ALL_DTYPES, INPUT_KINDS, in_turn, make_input
from jitnorm.kernels.quant_spec import MXFP4, MXFP8, NVFP4, QuantSpec

from jitnorm import quantize, quantize_weight
from jitnorm.reference import quantize_fp4_columns


def expected(w: Any, spec: QuantSpec) -> Any:
    given = float(GIVEN) if spec.global_scale == "given" else None
    options: Any = {"block_size": spec.block_size, "scale_format": spec.scale_format, "global_scale": given}
    return quantize_fp4_columns(w, **options)


@pytest.mark.parametrize(("spec", "dtype"), in_turn(E2M1_SPECS, list(ALL_DTYPES)), ids=str)
def test_every_format_gives_the_reference_s_bytes(spec: QuantSpec, dtype: str) -> None:
    for kind in INPUT_KINDS:
        w = make_input(kind, 96, 37, dtype)
        q = quantize_weight(w, **given_keywords(spec))
        codes, scales = expected(w, spec)
        assert_same_bytes(q.data, codes, kind)
        assert_same_bytes(q.scale, scales, kind)
        assert (q.spec, q.shape, q.axis) == (spec, (96, 37), 0)


@pytest.mark.parametrize(("shape", "spec"), in_turn([(32, 1), (256, 64), (64, 1000), (0, 8)], [NVFP4, MXFP4]), ids=str)
def test_any_shape(shape: tuple[int, int], spec: QuantSpec) -> None:
    w = make_input("real", *shape, "bfloat16")
    q = quantize_weight(w, spec=spec)
    assert q.data.shape == (shape[0] // 2, shape[1])
    assert_same_bytes(q.data, expected(w, spec)[0], str(shape))


@pytest.mark.parametrize(
    "spec",
    [NVFP4, QuantSpec("e2m1", 16, "e4m3", four_over_six=True), QuantSpec("e2m1", 32, "ue8m0", scale_rounding="floor")],
    ids=str,
)
def test_a_column_is_encoded_as_quantize_encodes_a_row(spec: QuantSpec) -> None:
    w = make_input("spiky", 128, 35, "float32")
    turned = quantize(np.ascontiguousarray(w.T), spec=spec)
    q = quantize_weight(w, spec=spec)
    assert_same_bytes(np.ascontiguousarray(np.asarray(q.data).T), turned.data, "codes")
    assert_same_bytes(np.ascontiguousarray(np.asarray(q.scale).T), turned.scale, "scales")


def test_rows_may_lie_at_any_stride() -> None:
    w = make_input("random", 96, 64, "float16")
    for view in (w[::3, :40], w[64::-2, 3:20], w[:32]):
        if view.shape[0] % 16:
            view = view[: view.shape[0] // 16 * 16]
        q, dense = quantize_weight(view), quantize_weight(np.ascontiguousarray(view))
        assert_same_bytes(q.data, dense.data, str(view.strides))
        assert_same_bytes(q.scale, dense.scale, str(view.strides))


@pytest.mark.parametrize("framework", CPU_FRAMEWORKS)
def test_every_framework_gets_the_same_bytes(framework: str) -> None:
    w = make_input("real", 32, 12, "bfloat16")
    q = quantize_weight(CPU_FRAMEWORKS[framework](w), spec=MXFP4)
    codes, scales = expected(w, MXFP4)
    assert_same_bytes(q.data, codes, framework)
    assert_same_bytes(q.scale, scales, framework)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: quantize_weight([1]), TypeError, "w: is a list; expected a tensor of"),
        (lambda: quantize_weight(np.ones((24, 4), np.float16)), ValueError, r"w: shape is \(24, 4\); .* of 16"),
        (lambda: quantize_weight(np.ones(16, np.float16)), ValueError, r"w: shape is \(16,\); expected \(K, N\)"),
        (lambda: quantize_weight(np.ones((16, 0), np.float16)), ValueError, r"w: its last dimension .* is 0"),
        (lambda: quantize_weight(np.ones((16, 4), np.int32)), ValueError, "w dtype: is 'int32'; allowed are"),
        (lambda: quantize_weight(np.ones((32, 4), np.float16), spec=MXFP8), ValueError, "spec: is e4m3/32/ue8m0"),
        (
            lambda: quantize_weight(np.ones((32, 4), np.float16), spec=NVFP4.with_layout("128x4")),
            ValueError, "spec: is e2m1/16/e4m3/128x4/none; expected e2m1 in the linear layout",
        ),
        (
            lambda: quantize_weight(np.ones((32, 4), np.float16), global_scale="row"),
            ValueError, "global_scale: is 'row'; expected a float32 tensor or None",
        ),
        (
            lambda: quantize_weight(np.ones((32, 4), np.float16), global_scale=np.ones(2, np.float32)),
            ValueError, r"global_scale: shape is \(2,\), expected \(1,\)",
        ),
    ],
)  # fmt: skip
def test_what_is_refused_names_the_argument(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
