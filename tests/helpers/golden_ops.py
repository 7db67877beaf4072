"""Golden cases of the other ops, neither plain norms nor encodings of rows, and the reference's results."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
from golden_data import HALVES, Array, Make, OpCase, Outputs, parts, weight, wide, x
from golden_heads import HEADS
from golden_norms import NORMS
from jitnorm.kernels.quant_spec import FP8_BLOCK, MXFP4, MXFP8, NVFP4, QuantSpec

import jitnorm
from jitnorm import reference


def factors() -> Array:
    return weight()[:24].reshape(12, 2)


def combinations() -> Array:
    return weight()[:48].reshape(12, 2, 2)


def streams() -> Array:
    return x().reshape(12, 2, 192)


def projections() -> Array:
    return np.resize(weight(), (12, 8)).astype(np.float32)


def squares() -> Array:
    return 100 + 50 * projections()[:, 0]


def scales() -> Array:
    return np.array([1.5, -0.5, 3], np.float32)


def mapped(**options: Array) -> Outputs:
    *mixes, mixed = reference.mhc_pre_f32(streams(), projections()[None], scales(), weight()[:8], **options)
    return *mixes, reference.round_to(mixed, x().dtype)


def finite() -> Array:
    """Rows without NaN and infinity, for ops with one result for all rows."""
    return x()[[0, 4, 8]]


def mixed() -> Outputs:
    h = reference.mhc_mix_f32(streams(), factors())
    y = reference.rmsnorm_f32(h, weight()[:192])
    return (*reference.quantize_nvfp4_row(y), reference.inv_rms_f32(h))


def decoded_weight() -> Outputs:
    codes, scales = reference.quantize_fp4_columns(finite().T, block_size=16, scale_format="e4m3")
    y = reference.dequantize_fp4(codes.T.copy(), scales.T.copy(), block_size=16, scale_format="e4m3").T
    return codes, scales, reference.round_to(np.ascontiguousarray(y), np.float32)


def encode_weight(make: Make) -> Outputs:
    q = jitnorm.quantize_weight(make(np.ascontiguousarray(finite().T)), spec=NVFP4)
    return *parts(q), jitnorm.dequantize(q, dtype="float32")


def swizzled_batch() -> Outputs:
    each = [reference.quantize_fp4(rows.astype(np.float32), block_size=16, scale_format="e4m3") for rows in batch()]
    codes = np.stack([codes for codes, _ in each])
    return codes, np.stack([reference.swizzle_scales(scales, "128x4") for _, scales in each])


def batch() -> Array:
    return x().reshape(2, 6, 384)


def encode_batch(make: Make) -> Outputs:
    return parts(jitnorm.quantize(make(batch()), spec=NVFP4.with_layout("128x4"), batched=True))


def encode_experts(make: Make) -> Outputs:
    """Encode rows of three experts, with five, no and seven rows; the second has no tile."""
    offsets, tiles = (make(np.array(each, np.int32)) for each in ([0, 5, 5, 12], [0, 128, 128, 256]))
    spec = NVFP4.with_layout("128x4")
    codes, scales = jitnorm.grouped_quantize(make(x()), offsets, spec=spec, scale_offsets=tiles)
    return codes, scales[:256]


def experts() -> Outputs:
    codes, scales = reference.quantize_fp4(x().astype(np.float32), block_size=16, scale_format="e4m3")
    tiles = [reference.swizzle_scales(rows, "128x4").reshape(128, 24) for rows in (scales[:5], scales[5:])]
    return codes, np.concatenate(tiles)


GLOBAL_SCALE = 38.4


def fp8() -> Array:
    """Any codes of E4M3, every other row without NaN."""
    codes = x().view(np.uint8).copy()
    codes[::2] &= 0x77
    return codes.view(ml_dtypes.float8_e4m3fn)


def encode_fp8(make: Make) -> Outputs:
    scale = make(np.array([GLOBAL_SCALE], np.float32))
    rows = jitnorm.fp4_quantize(make(fp8()), scale, is_sf_swizzled_layout=False)
    return *rows, *parts(jitnorm.quantize_weight(make(fp8()[:, :64].repeat(4, axis=0)), global_scale=scale))


def encoded_fp8() -> Outputs:
    options: Any = {"block_size": 16, "scale_format": "e4m3", "global_scale": GLOBAL_SCALE}
    columns = fp8()[:, :64].repeat(4, axis=0)
    return *reference.quantize_fp4(fp8(), **options), *reference.quantize_fp4_columns(columns, **options)


def matrix() -> Array:
    """Finite blocks of 128 rows, followed by 12 rows of all kinds; the last 44 columns fill no block."""
    return np.concatenate([finite().repeat(43, axis=0)[:128], x()])[:, :300]


def encode_blocks(make: Make) -> Outputs:
    q = jitnorm.quantize(make(matrix()), spec=FP8_BLOCK)
    powers = jitnorm.quantize(make(matrix()), spec=replace(FP8_BLOCK, scale_format="f32_ue8m0"))
    return *parts(q), *parts(powers), jitnorm.dequantize(q, dtype="float32")


def encoded_blocks() -> Outputs:
    codes, scales = reference.quantize_fp8_block(matrix())
    powers = reference.quantize_fp8_block(matrix(), "ue8m0_f32")
    return codes, scales, *powers, reference.dequantize_fp8_block(codes, scales)


GIVEN_COLUMNS = QuantSpec("e4m3", "column", "f32", global_scale="given")


GIVEN_BLOCKS = QuantSpec("int8", "4x128", "f32", global_scale="given")


def powers(count: int) -> Array:
    """Scales from a sixteenth to three quarters."""
    return np.resize(np.array([0.0625, 0.1875, 0.5, 0.75], np.float32), count)


def encode_by_given(make: Make) -> Outputs:
    columns = jitnorm.quantize(make(x()), spec=GIVEN_COLUMNS, scale=make(powers(384)))
    blocks = jitnorm.quantize(make(x()), spec=GIVEN_BLOCKS, scale=make(powers(9).reshape(3, 3)))
    return columns.data, blocks.data, jitnorm.dequantize(columns, dtype="float32")


def encoded_by_given() -> Outputs:
    columns = reference.spread_scales(powers(384)[None], (12, 384), 12, 1)
    blocks = reference.spread_scales(powers(9).reshape(3, 3), (12, 384), 4, 128)
    codes = reference.quantize_fp8_static(x(), columns)
    return codes, reference.quantize_int8_static(x(), blocks), reference.dequantize_fp8(codes, columns)


OPS = [
    *NORMS,
    *HEADS,
    OpCase(
        "silu_and_mul-hf",
        lambda make: (jitnorm.silu_and_mul(make(HALVES.input()), rounding="hf"),),
        lambda: (reference.round_to(reference.gated_f32(HALVES.input(), "silu", rounding="hf"), np.float16),),
    ),
    OpCase(
        "silu_and_mul_quantize-output",
        lambda make: parts(jitnorm.silu_and_mul_quantize(make(HALVES.input()), spec=MXFP8, rounding="output")),
        lambda: reference.quantize_mxfp8(reference.gated_f32(HALVES.input(), "silu", rounding="output")),
    ),
    OpCase(
        "silu_and_mul_quantize-halves",
        lambda make: parts(jitnorm.silu_and_mul_quantize(make(HALVES.input()), spec=MXFP8)),
        lambda: reference.quantize_mxfp8(reference.swiglu_f32(HALVES.input())),
    ),
    OpCase(
        "silu_and_mul_quantize-by-8",
        lambda make: parts(jitnorm.silu_and_mul_quantize(make(HALVES.input()), spec=MXFP4, granularity=8)),
        lambda: reference.quantize_fp4(reference.swiglu_f32(HALVES.input(), 8), block_size=32, scale_format="ue8m0"),
    ),
    OpCase(
        "activations",
        lambda make: tuple(activation(make(wide())) for activation in (jitnorm.silu, jitnorm.gelu, jitnorm.gelu_tanh)),
        lambda: tuple(reference.activated_f32(wide(), name) for name in ("silu", "gelu", "gelu_tanh")),
    ),
    OpCase(
        "gates",
        lambda make: tuple(
            gate(make(wide())) for gate in (jitnorm.gelu_and_mul, jitnorm.gelu_tanh_and_mul, jitnorm.swigluoai_and_mul)
        ),
        lambda: (
            reference.gated_f32(wide(), "gelu"),
            reference.gated_f32(wide(), "gelu_tanh"),
            reference.gated_f32(wide(), "swigluoai", 1),
        ),
    ),
    OpCase(
        "gates-with-numbers",
        lambda make: (
            jitnorm.silu_and_mul_with_clamp(make(wide()), 5.5),
            jitnorm.silu_and_mul_with_clamp(make(wide()), 20, alpha=1.3, beta=0.5),
            jitnorm.fatrelu_and_mul(make(wide()), 0.5),
            jitnorm.mul_and_silu(make(wide())),
            jitnorm.gelu_quick(make(wide())),
        ),
        lambda: (
            reference.gated_f32(wide(), "swiglu:5.5:1:0"),
            reference.gated_f32(wide(), "swiglu:20:1.3:0.5"),
            reference.gated_f32(wide(), "fatrelu:0.5"),
            reference.gated_f32(wide(), "silu", values_first=True),
            reference.activated_f32(wide(), "swish:1.702"),
        ),
    ),
    OpCase(
        "quantize-relu2",
        lambda make: parts(jitnorm.quantize(make(HALVES.input()), spec=MXFP8, activation="relu2")),
        lambda: reference.quantize_mxfp8(reference.relu2_f32(HALVES.input())),
    ),
    OpCase(
        "mhc_rmsnorm_quantize",
        lambda make: jitnorm.mhc_rmsnorm_quantize(make(streams()), make(factors()), make(weight()[:192])),
        mixed,
    ),
    OpCase(
        "mhc_pre",
        lambda make: jitnorm.mhc_pre(*map(make, (streams(), projections(), squares(), scales(), weight()[:8]))),
        lambda: mapped(squares=squares()[None]),
    ),
    OpCase(
        "mhc_pre_with_prenorm",
        lambda make: jitnorm.mhc_pre_with_prenorm(*map(make, (streams(), projections(), scales(), weight()[:8]))),
        mapped,
    ),
    OpCase(
        "mhc_post",
        lambda make: (
            jitnorm.mhc_post(make(x()[:, :192].copy()), make(streams()), make(factors()), make(combinations())),
        ),
        lambda: (
            reference.round_to(reference.mhc_post_f32(x()[:, :192], streams(), factors(), combinations()), x().dtype),
        ),
    ),
    OpCase("quantize_weight", encode_weight, decoded_weight),
    OpCase("quantize-batched", encode_batch, swizzled_batch),
    OpCase("grouped_quantize", encode_experts, experts),
    OpCase("quantize-blocks", encode_blocks, encoded_blocks),
    OpCase("quantize-given", encode_by_given, encoded_by_given),
    OpCase("fp4_quantize-float8", encode_fp8, encoded_fp8),
    OpCase(
        "compute_amax",
        lambda make: (jitnorm.compute_amax(make(x())), jitnorm.compute_amax(make(finite()))),
        lambda: (reference.amax_f32(x()), reference.amax_f32(finite())),
    ),
]
