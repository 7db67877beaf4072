#!/usr/bin/env python3
"""Writes the tables of docs/compatibility.md: the peers' public functions in this field, and whether jitnorm has them.

scripts/compatibility.py
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "compatibility.md"
MARK = "<!-- scripts/compatibility.py writes what follows -->\n"

# The peers' functions, each with a note on why it is missing or how it differs.
FLASHINFER = {
    "rmsnorm": "",
    "rmsnorm_quant": "",
    "fused_add_rmsnorm": "",
    "fused_add_rmsnorm_quant": "",
    "fused_add_rmsnorm_fp8_block_quant": "",
    "gemma_rmsnorm": "",
    "gemma_fused_add_rmsnorm": "",
    "layernorm": "",
    "layernorm_quant": "",
    "rmsnorm_fp4quant": "",
    "add_rmsnorm_fp4quant": "",
    "fused_rmsnorm_silu": "FP8 and NVFP4 on all GPUs, and on the CPU",
    "fused_qk_rmsnorm_rope": "also float16 and float32",
    "apply_rope_with_cos_sin_cache": "tables may also be float16 or bfloat16; positions outside a table give NaN",
    "apply_rope_with_cos_sin_cache_inplace": "as above",
    "fused_dit_gate_residual_layernorm_gamma_beta": "also other dtypes, sizes and strides",
    "fused_dit_gate_residual_layernorm_scale_shift": "also other dtypes, sizes and strides",
    "fused_dit_residual_layernorm_scale_shift": "also other dtypes, sizes and strides",
    "silu_and_mul": "",
    "gelu_and_mul": "",
    "gelu_tanh_and_mul": "",
    "silu_and_mul_scaled_nvfp4_experts_quantize": "",
    "silu_and_mul_mxfp8_quantize": "also float16 and float32, all GPUs and the CPU; torch transposes along columns",
    "silu_and_mul_nvfp4_quantize": "",
    "fp4_quantize": "",
    "nvfp4_quantize": "",
    "mxfp4_quantize": "",
    "mxfp8_quantize": "",
    "mxfp8_grouped_quantize": "rows past the mask are not written",
    "nvfp4_batched_quantize": "",
    "scaled_fp4_grouped_quantize": "",
    "per_token_group_quant_8bit": "powers of two in float32",
    "e2m1_and_ufp8sf_scale_to_float": "",
    "mxfp4_dequantize": "",
    "mxfp4_dequantize_host": "linear scales",
    "mxfp8_dequantize_host": "",
    "block_scale_interleave": "",
    "nvfp4_block_scale_interleave": "",
    "shuffle_matrix_a": "",
    "shuffle_matrix_sf_a": "",
    "get_shuffle_matrix_a_row_indices": "",
    "reorder_rows_for_gated_act_gemm": "",
    "make_nvfp4_global_scale": "",
    "NVFP44Over6Config": "`err_use_fast_math` changes nothing: errors are in float32",
    "NVFP44Over6ErrMode": "",
    "resolve_nvfp4_4over6": "",
    "nvfp4_kv_quantize": "",
    "nvfp4_kv_dequantize": "",
    "nvfp4_kv_dequantize_paged": "torch gathers the pages before they are decoded",
    "nvfp4_quantize_paged_kv_cache": "",
    "comm.create_allreduce_fusion_workspace": "2 to 8 GPUs of one host, or processes on the CPU; no multicast",
    "comm.AllReduceFusionWorkspace": "rows and columns are limited separately",
    "comm.AllReduceFusionPattern": "",
    "comm.QuantizationSFLayout": "",
    "comm.allreduce_fusion": "sums in float32; results are copied to given outputs; no patterns for experts",
    "mhc_post": "also float16 and float32",
    "mhc_pre_big_fuse": "also float16 and float32",
    "mhc_pre_big_fuse_with_prenorm": "also float16 and float32",
}
_FEWER_ROWS = "the scales of experts follow each other without gaps, in as many rows as they may need"
_LEAST_SCALE = f"{_FEWER_ROWS}; blocks whose scale is 2^-127 keep their values"
VLLM = {
    "rms_norm": "",
    "fused_add_rms_norm": "the sum is normalized unrounded",
    "fused_q_kv_rmsnorm": "",
    "rms_norm_dynamic_per_token_quant": "",
    "rms_norm_per_block_quant": "",
    "rms_norm_gated": "groups within a row only with gates; the weight may be omitted",
    "fla_rms_norm_gated": "groups within a row only with gates",
    "silu_and_mul_per_block_quant": "",
    "scaled_fp8_quant": "given scales per group: 16 columns or a multiple",
    "scaled_int8_quant": "symmetric",
    "scaled_fp4_quant": "",
    "create_fp4_scale_tensor": "",
    "create_fp4_output_tensors": "",
    "per_token_group_quant_fp8": "",
    "per_token_group_quant_fp8_packed_for_deepgemm": "",
    "per_token_group_quant_int8": "",
    "scaled_fp4_experts_quant": _FEWER_ROWS,
    "silu_and_mul_scaled_fp4_experts_quant": _FEWER_ROWS,
    "mxfp4_experts_quant": _LEAST_SCALE,
    "silu_and_mul_mxfp4_experts_quant": _LEAST_SCALE,
    "rotary_embedding": "positions outside `cos_sin_cache` give NaN; with `inverse`, torch negates the sines",
    "_C.rotary_embedding": "as above",
    "fused_qk_norm_rope": "positions outside `cos_sin_cache` give NaN",
    "_C.fused_qk_norm_rope": "as above",
    "fused_qknorm_rope_cache": "scales may also be per head; slots past the cache are skipped",
    "_C.fused_qknorm_rope_cache": "as above",
    "_C.rms_norm_static_fp8_quant": "",
    "_C.fused_add_rms_norm_static_fp8_quant": "",
    "_C.rms_norm_dynamic_per_token_quant": "",
    "_C.rms_norm_per_block_quant": "",
    "_C.silu_and_mul": "",
    "_C.mul_and_silu": "",
    "_C.gelu_and_mul": "",
    "_C.gelu_tanh_and_mul": "",
    "_C.swigluoai_and_mul": "",
    "_C.silu_and_mul_with_clamp": "",
    "_C.fatrelu_and_mul": "a NaN stays",
    "_C.relu_squared": "",
    "_C.gelu_new": "",
    "_C.gelu_fast": "",
    "_C.gelu_quick": "",
    "_C.silu_and_mul_quant": "",
    "_C.silu_and_mul_per_block_quant": "",
    "_C.silu_and_mul_nvfp4_quant": "",
    "_C.scaled_fp4_quant": "",
    "_C.scaled_fp4_experts_quant": _FEWER_ROWS,
    "_C.silu_and_mul_scaled_fp4_experts_quant": _FEWER_ROWS,
    "_C.mxfp4_experts_quant": _LEAST_SCALE,
    "_C.silu_and_mul_mxfp4_experts_quant": _LEAST_SCALE,
    "_C.static_scaled_fp8_quant": "scales per group: 16 columns or a multiple",
    "_C.dynamic_scaled_fp8_quant": "",
    "_C.dynamic_per_token_scaled_fp8_quant": "",
    "_C.static_scaled_int8_quant": "symmetric",
    "_C.dynamic_scaled_int8_quant": "symmetric",
    "_C.per_token_group_fp8_quant": "",
    "_C.per_token_group_fp8_quant_packed": "",
    "_C.per_token_group_quant_int8": "",
}
SGLANG = {
    "rmsnorm": "",
    "fused_add_rmsnorm": "",
    "gemma_rmsnorm": "",
    "gemma_fused_add_rmsnorm": "",
    "rms_norm_gated": "only RMSNorm; groups within a row only with gates",
    "silu_and_mul": "",
    "gelu_and_mul": "",
    "gelu_tanh_and_mul": "",
    "sgl_per_token_quant_fp8": "",
    "sgl_per_tensor_quant_fp8": "",
    "per_tensor_quant_fp8": "",
    "sgl_per_token_group_quant_8bit": "",
    "sgl_per_token_group_quant_fp8": "",
    "sgl_per_token_group_quant_int8": "",
    "silu_and_mul_masked_post_quant_fwd": "`gemm1_alpha` and `gemm1_clamp_limit`: only gpt-oss's",
    "silu_and_mul_masked_post_per_tensor_quant_fwd": "",
    "sglang_per_token_quant_fp8": "",
    "sglang_per_token_group_quant_fp8": "",
    "per_token_quant_int8": "sums in float64",
    "per_token_group_quant_int8": "",
    "fused_qk_norm_rope": "torch computes cosines and sines, in separate launches",
    "scaled_fp4_quant": "",
}
PEERS = (
    ("FlashInfer 0.7.2", "flashinfer", FLASHINFER),
    ("vLLM 0.33", "vllm", VLLM),
    ("SGLang 0.5.23, sgl_kernel 0.4.10", "sglang", SGLANG),
)


def page(present: str) -> str:
    """Generate the page, with tables of what the modules provide."""
    before, mark, _ = present.partition(MARK)
    if not mark:
        raise SystemExit(f"{PAGE} has no line {MARK!r}")
    return before + mark + "".join(_table(*peer) for peer in PEERS)


def _table(title: str, module: str, functions: dict[str, str]) -> str:
    rows = "".join(f"| `{name}` | {_state(module, name)} | {note} |\n" for name, note in functions.items())
    return f"\n## {title}\n\n`jitnorm.compat.{module}`\n\n| function | | differs |\n| --- | --- | --- |\n{rows}"


def _state(module: str, name: str) -> str:
    found: object = import_module(f"jitnorm.compat.{module}")
    for part in name.split("."):
        found = getattr(found, part, None)
    return "here" if found is not None else "not here"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
