"""From FP8 to NVFP4: with a given global scale g, the tensor's scale is 6 / g, as in FlashInfer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from encoded import encoded
from expected import assert_same_bytes
from frameworks import CPU_FRAMEWORKS
from hypothesis import given, settings
from hypothesis import strategies as st
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.quant_spec import MXFP4, NVFP4, QuantSpec
from kernel_calls import call, make_arguments, outputs_of
from numpy.typing import NDArray

import jitnorm
from jitnorm import (
    SfLayout,
    dequantize,
    e2m1_and_ufp8sf_scale_to_float,
    fp4_quantize,
    get_kernel,
    mxfp4_quantize,
    nvfp4_quantize,
    quantize,
    quantize_weight,
)
from jitnorm.reference import quantize_fp4, quantize_fp4_columns

Array = NDArray[Any]
E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)
GIVEN = NVFP4.with_global_scale("given")
GLOBALS = (1.0, 0.37, 6.0, 2688.0, 1e-36, 1e36, 3e-45, 0.0, -1.5, float("inf"), float("nan"))


def every_code(rows: int, size: int) -> Array:
    """Every E4M3 code; every other row without NaN."""
    codes = np.random.default_rng(0).integers(0, 256, (rows, size)).astype(np.uint8)
    codes[::2] &= 0x77
    return codes.view(E4M3)


def fp8_tensor(rows: int, size: int, amax: float) -> tuple[Array, Array, Array]:
    """A tensor in FP8, its decoded values, and the global scale 448 * 6 / amax of these."""
    values = np.random.default_rng(0).standard_normal((rows, size))
    values *= amax / np.abs(values).max()
    codes = (values * (448 / amax)).astype(E4M3)
    return codes, codes.astype(np.float64) * (amax / 448), np.array([448 * 6 / amax], np.float32)


def assert_near(decoded: Array, values: Array, block_size: int = 16) -> None:
    """Check the error: half the widest step between codes is a sixth of a block's amax; the E4M3 scale is exact."""
    amax = np.abs(values).reshape(len(values), -1, block_size).max(axis=-1).repeat(block_size, axis=1)
    assert (np.abs(decoded - values) <= amax / 6 * (1 + 1e-5)).all()


@pytest.mark.parametrize("amax", [1e-30, 0.07, 1.0, 70.0, 448.0, 1e30])
@pytest.mark.parametrize("quantizer", [fp4_quantize, nvfp4_quantize])
def test_what_is_decoded_is_near_what_the_fp8_tensor_stands_for(quantizer: Callable[..., Any], amax: float) -> None:
    x, values, scale = fp8_tensor(130, 96, amax)
    codes, scales = quantizer(x, scale)
    assert_near(e2m1_and_ufp8sf_scale_to_float(codes, scales, np.float32(1) / scale), values)


def test_the_scale_of_a_block_is_its_amax_in_fp8() -> None:
    x, _, scale = fp8_tensor(130, 96, 70.0)
    _, scales = nvfp4_quantize(x, scale, SfLayout.layout_linear)
    largest = np.abs(x.astype(np.float32)).reshape(130, 6, 16).max(axis=-1)
    assert_same_bytes(scales, largest.astype(E4M3))


@pytest.mark.parametrize("amax", [0.07, 70.0])
def test_a_global_scale_of_the_codes_themselves_decodes_to_their_six_fold_over_it(amax: float) -> None:
    """FlashInfer's tests call it so: with 448 * 6 / amax of the FP8 values, so that 6 / g is not their scale."""
    x = (fp8_tensor(130, 96, amax)[0].astype(np.float32) * (amax / 448)).astype(E4M3)
    scale = np.float32(448 * 6) / np.abs(x.astype(np.float32)).max(keepdims=True)[0]
    codes, scales = nvfp4_quantize(x, scale)
    decoded = e2m1_and_ufp8sf_scale_to_float(codes, scales, np.float32(1) / scale)
    assert_near(decoded, x.astype(np.float64) * (6.0 / float(scale[0])))


@pytest.mark.parametrize("value", GLOBALS)
@pytest.mark.parametrize(
    "spec",
    [
        GIVEN.with_layout("128x4"),
        GIVEN.with_layout("linear+8x4"),
        QuantSpec("e2m1", 32, "e4m3", "linear", "given"),
        QuantSpec("e2m1", 16, "e4m3", "linear", "given", four_over_six=True),
    ],
    ids=str,
)
def test_every_format_gives_the_reference_s_bytes_with_any_global_scale(spec: QuantSpec, value: float) -> None:
    x, scale = every_code(130, 96), np.array([value], np.float32)
    q = quantize(x, spec=spec.with_global_scale("none"), global_scale=scale)
    expected = encoded(x, spec, scale[0])
    assert_same_bytes(q.data, expected["data"], str(value))
    assert_same_bytes(q.scale, expected["scale"], str(value))


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(0, 140),
    blocks=st.sampled_from([1, 3, 6, 32, 33]),
    pattern=st.integers(1, 0x7F7FFFFF),
    is_inverse=st.booleans(),
)
def test_any_shape_and_any_positive_scale(rows: int, blocks: int, pattern: int, is_inverse: bool) -> None:
    x, scale = every_code(rows, 16 * blocks), np.array([pattern], np.uint32).view(np.float32)
    codes, scales = fp4_quantize(x, scale, is_sf_swizzled_layout=False, is_global_scale_inversed=is_inverse)
    with np.errstate(all="ignore"):
        encode = np.float32(1) / scale[0] if is_inverse else scale[0]
    wanted = quantize_fp4(x, block_size=16, scale_format="e4m3", global_scale=float(encode))
    assert_same_bytes(codes, wanted[0], "codes")
    assert_same_bytes(scales, wanted[1], "scales")


def test_blocks_that_fill_up_an_alignment_are_zero_even_times_infinity() -> None:
    text = "quantize:hidden_size=96,input=float8_e4m3fn,quant=e2m1/16/e4m3/linear/given,alignment=128"
    config = KernelConfig.parse(text)
    arguments = make_arguments(config, "random", 3)
    arguments[0], arguments[3] = every_code(3, 96), np.zeros(1, np.float32)
    call(get_kernel(config), *arguments)
    outputs = outputs_of(config, arguments)
    assert outputs["y_fp4"].view(np.uint8)[:, :48].any()
    assert not outputs["y_fp4"].view(np.uint8)[:, 48:].any()
    assert not outputs["block_scale"].view(np.uint8)[:, 6:].any()


def test_each_matrix_of_a_batch_gets_what_it_gets_alone() -> None:
    x, scales = every_code(15, 64).reshape(3, 5, 64), np.array([0.5, 3.0, 17.0], np.float32)
    spec = NVFP4.with_layout("128x4")
    batch = quantize(x, spec=spec, batched=True, global_scale=scales)
    for b in range(3):
        alone = quantize(x[b], spec=spec, global_scale=scales[b : b + 1])
        assert_same_bytes(batch.data[b], alone.data)
        assert_same_bytes(batch.scale[b], alone.scale)


def test_a_column_gets_what_it_gets_as_a_row() -> None:
    w, scale = every_code(96, 37), np.array([0.37], np.float32)
    q = quantize_weight(w, spec=NVFP4, global_scale=scale)
    codes, scales = quantize_fp4_columns(w, block_size=16, scale_format="e4m3", global_scale=float(scale[0]))
    turned = quantize(np.ascontiguousarray(w.T), spec=NVFP4, global_scale=scale)
    for got, wanted in ((q.data, codes), (q.scale, scales)):
        assert_same_bytes(got, wanted)
    assert_same_bytes(np.ascontiguousarray(np.asarray(q.data).T), turned.data)


@pytest.mark.parametrize("framework", CPU_FRAMEWORKS)
def test_every_framework_gets_the_same_bytes(framework: str) -> None:
    make, scale = CPU_FRAMEWORKS[framework], np.array([0.37], np.float32)
    x = every_code(5, 96)
    for got, wanted in zip(nvfp4_quantize(make(x), make(scale)), nvfp4_quantize(x, scale), strict=True):
        assert_same_bytes(got, wanted, framework)


@pytest.mark.parametrize("global_scale", [None, "row", "tensor"])
def test_without_a_given_scale_its_values_are_those_of_its_codes(global_scale: Any) -> None:
    x = fp8_tensor(33, 96, 1.0)[0]
    q = quantize(x, spec=NVFP4, global_scale=global_scale)
    wide = quantize(x.astype(np.float32), spec=NVFP4, global_scale=global_scale)
    assert_same_bytes(q.data, wide.data)
    assert_same_bytes(q.scale, wide.scale)
    values = x.astype(np.float64)
    largest = np.abs(values).reshape(33, 6, 16).max(axis=-1).repeat(16, axis=1)
    assert (np.abs(np.asarray(dequantize(q, dtype="float32")) - values) <= largest * (1 / 6 + 1 / 15)).all()


def test_scales_in_ue8m0_decode_to_the_values_of_the_codes() -> None:
    x = fp8_tensor(33, 96, 1.0)[0]
    codes, scales = mxfp4_quantize(x)
    assert_same_bytes(codes, quantize(x.astype(np.float32), spec=MXFP4).data)
    assert_same_bytes(codes, fp4_quantize(x, None, 32, True)[0])
    values = x.astype(np.float64)
    decoded = jitnorm.mxfp4_dequantize(codes, scales)
    assert (np.abs(decoded - values) <= np.abs(values).max() / 3).all()


def test_swiglu_computes_values_that_no_scale_belongs_to() -> None:
    x, scale = every_code(5, 192), np.array([0.37], np.float32)
    q = jitnorm.silu_and_mul_quantize(x, spec=NVFP4, global_scale=scale)
    wide = jitnorm.silu_and_mul_quantize(x.astype(np.float32), spec=NVFP4, global_scale=scale)
    assert_same_bytes(q.data, wide.data)
    assert_same_bytes(q.scale, wide.scale)
