"""quantize and dequantize on the CPU return the bytes of the reference for blocks of 128 x 128."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from decoded import FLOAT_DTYPES, any_encoding, decoded
from encoded import SQUARES, assert_encoded, encoded
from expected import assert_same_bytes
from frameworks import CPU_FRAMEWORKS
from inputs import ALL_DTYPES, INPUT_KINDS, in_turn, make_input

from jitnorm import FP8_BLOCK, QuantSpec, dequantize, norm_quantize, quantize, quantize_weight, silu_and_mul_quantize
from jitnorm.reference import round_to

every_spec = pytest.mark.parametrize("spec", SQUARES, ids=str)
# Whole blocks, parts of them along either dimension, enough for several threads.
SHAPES = [(128, 256), (130, 384), (256, 100), (1, 1), (641, 700)]


@every_spec
@pytest.mark.parametrize(("shape", "dtype"), in_turn(SHAPES, list(ALL_DTYPES)), ids=str)
def test_blocks_have_the_reference_s_bytes(shape: tuple[int, int], dtype: str, spec: QuantSpec) -> None:
    for kind in INPUT_KINDS:
        w = make_input(kind, *shape, dtype)
        assert_encoded(quantize(w, spec=spec), w.astype(np.float32), spec, shape, f"{kind}, {dtype}")


def test_fp8_is_quantized_anew() -> None:
    codes = np.random.default_rng(0).integers(0, 256, (130, 140), np.uint8)
    codes[:128] &= 0x77  # without NaN
    w = codes.view(ml_dtypes.float8_e4m3fn)
    assert_encoded(quantize(w, spec=FP8_BLOCK), w.astype(np.float32), FP8_BLOCK, w.shape, "float8_e4m3fn")


@pytest.mark.parametrize("leading", [(3, 50), (2, 0), (0,), ()])
def test_all_leading_dimensions_count_rows(leading: tuple[int, ...]) -> None:
    w = make_input("random", int(np.prod(leading)), 130, "float16").reshape(*leading, 130)
    assert_encoded(quantize(w, spec=FP8_BLOCK), w.reshape(-1, 130).astype(np.float32), FP8_BLOCK, w.shape, str(leading))


@every_spec
def test_the_blocks_of_a_batch_are_those_of_its_matrices(spec: QuantSpec) -> None:
    w = make_input("random", 3 * 150, 200, "bfloat16").reshape(3, 150, 200)
    q = quantize(w, spec=spec, batched=True)
    assert q.scale.shape == (3, 2, 2)
    for i in range(3):
        alone = encoded(w[i].astype(np.float32), spec)
        assert_same_bytes(q.data[i], alone["data"])
        assert_same_bytes(q.scale[i], alone["scale"])
    np.testing.assert_array_equal(dequantize(q)[1], dequantize(quantize(w[1], spec=spec)))


def test_rows_may_lie_at_any_stride() -> None:
    w = make_input("random", 2 * 140, 300, "float32").reshape(2, 140, 300)
    for view in (w[:, ::2, :136], w[:, 1:, 3:133], w[::-1, :, 40:].transpose(1, 0, 2)):
        expected = np.ascontiguousarray(view).reshape(-1, view.shape[-1])
        assert_encoded(quantize(view, spec=FP8_BLOCK), expected, FP8_BLOCK, view.shape, str(view.strides))


@pytest.mark.parametrize("framework", CPU_FRAMEWORKS)
def test_every_framework_gets_the_same_bytes(framework: str) -> None:
    w = make_input("real", 129, 256, "bfloat16")
    q = quantize(CPU_FRAMEWORKS[framework](w), spec=FP8_BLOCK)
    assert_encoded(q, w.astype(np.float32), FP8_BLOCK, w.shape, framework)


@every_spec
@pytest.mark.parametrize(("leading", "size"), [((130,), 256), ((3, 60), 135)])
def test_decoding_gives_the_reference_s_values(leading: tuple[int, ...], size: int, spec: QuantSpec) -> None:
    q = any_encoding(spec, leading, hidden_size=size)
    for dtype in FLOAT_DTYPES:
        with np.errstate(all="ignore"):
            assert_same_bytes(dequantize(q, dtype=dtype), round_to(decoded(q), FLOAT_DTYPES[dtype]), dtype)


WEIGHT = np.ones((128, 128), np.float16)
REFUSED: dict[str, tuple[Callable[..., Any], dict[str, Any], str]] = {
    "a norm": (norm_quantize, {"weight": WEIGHT[0]}, "block_size: is '128x128', blocks of which only quantize"),
    "SwiGLU": (silu_and_mul_quantize, {}, "block_size: is '128x128', blocks of which only quantize"),
    "columns": (quantize_weight, {}, "spec: is e4m3/128x128/f32/linear/none; expected e2m1"),
    "a mask": (quantize, {"batched": True, "mask": np.ones(1, np.int32)}, "mask: is given, but blocks of 128x128"),
    "a bound": (quantize, {"scale_ub": np.ones(1, np.float32)}, "scale_ub: is given, but only FP8 and INT8 scales"),
    "a global scale": (quantize, {"global_scale": "row"}, "global_scale: is 'row', which cannot be combined with"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_goes_with_rows_alone_is_refused_by_name(what: str) -> None:
    function, options, message = REFUSED[what]
    w = WEIGHT[None] if options.get("batched") else WEIGHT
    with pytest.raises(ValueError, match=f"^{message}"):
        function(w, spec=FP8_BLOCK, **options)
