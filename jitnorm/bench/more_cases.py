"""More ops to measure: other dtypes, formats, inputs and addresses, which are tuned, but benchmarked only by name."""

from __future__ import annotations

from typing import Any

from jitnorm.bench.measured import Measured, op_of

_F32: Any = {"input": "float32", "weight": "float32"}
_W32: Any = {"weight": "float32"}
MORE_OPS: tuple[Measured, ...] = (
    # Rows of float32.
    op_of("rmsnorm f32", "rmsnorm", **_F32),
    op_of("fp8 token f32", "norm_quantize", quant="fp8_token", **_F32),
    op_of("rmsnorm nvfp4 f32", "rmsnorm_fp4quant", **_F32),
    op_of("rmsnorm silu f32", "rmsnorm_silu", **_F32),
    op_of("sandwich f32", "sandwich_rmsnorm", **_F32),
    op_of("layernorm f32", "layernorm", input="float32"),
    op_of("layernorm fp8 f32", "layernorm_quantize", quant="fp8", rounding="output", input="float32"),
    # Weights of float32 for rows of 16 bits.
    op_of("add_rmsnorm w32", "fused_add_rmsnorm", **_W32),
    op_of("rmsnorm fp8 w32", "rmsnorm_quant", **_W32),
    op_of("fp8 token w32", "norm_quantize", quant="fp8_token", **_W32),
    op_of("rmsnorm fp8 128 w32", "norm_quantize", quant="fp8_group", **_W32),
    op_of("add fp8 128 w32", "norm_quantize", quant="fp8_group", residual=True, **_W32),
    op_of("rmsnorm mxfp8 w32", "rmsnorm_mxfp8quant", **_W32),
    op_of("rmsnorm nvfp4 w32", "rmsnorm_fp4quant", **_W32),
    op_of("add nvfp4 w32", "add_rmsnorm_fp4quant", **_W32),
    op_of("rmsnorm silu w32", "rmsnorm_silu", **_W32),
    op_of("rmsnorm multi w32", "rmsnorm_multi", **_W32),
    op_of("rmsnorm bias w32", "rmsnorm_bias", **_W32),
    # Other inputs and formats.
    op_of("rmsnorm multi of 4", "rmsnorm_multi", weights=4),
    op_of("fp8 token alone", "quantize", quant="fp8_token"),
    op_of("add nvfp4 by row", "norm_quantize", quant="nvfp4", global_scale="row", residual=True),
    op_of("silu four over six grouped", "silu_and_mul_scaled_nvfp4_experts_quantize", four_over_six=True),
    op_of("gated add fp8 token", "gated_add_layernorm_quantize", quant="fp8_token"),
    op_of("gated add fp8 128", "gated_add_layernorm_quantize", quant="fp8_group"),
    op_of("gated add mxfp8", "gated_add_layernorm_quantize", quant="mxfp8"),
    op_of("gated add nvfp4", "gated_add_layernorm_quantize", quant="nvfp4"),
    op_of("gated fp8 128", "rmsnorm_gated_quantize", quant="fp8_group"),
    op_of("gated mxfp8", "rmsnorm_gated_quantize", quant="mxfp8"),
    op_of("sandwich fp8 token", "sandwich_norm_quantize", quant="fp8_token"),
    op_of("modulated", "adaptive_layernorm"),
    op_of("modulated fp8 token", "adaptive_layernorm_quantize", quant="fp8_token"),
    op_of("modulated mxfp8", "adaptive_layernorm_quantize", quant="mxfp8"),
    # Rows at addresses that are multiples of 8 and 2 bytes.
    op_of("layernorm fp8 by 8", "layernorm_quantize", quant="fp8", rounding="output", vector_bytes=8),
    op_of("layernorm fp8 by 2", "layernorm_quantize", quant="fp8", rounding="output", vector_bytes=2),
    op_of("fp8 token by 2", "norm_quantize", quant="fp8_token", vector_bytes=2),
    op_of("add fp8 128 by 2", "norm_quantize", quant="fp8_group", residual=True, vector_bytes=2),
)
