#!/usr/bin/env python3
"""Writes the tables of docs/compatibility.md: the peers' public functions in this field, and whether jitnorm has them.

scripts/compatibility.py
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "compatibility.md"
MARK = "<!-- scripts/compatibility.py writes what follows -->\n"


def _same(note: str, names: str) -> dict[str, str]:
    """One note for several functions."""
    return dict.fromkeys(names.split(), note)


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
    "fused_qk_rmsnorm_rope": "also float16 and float32; asking for a gradient of its weights is an error",
    "apply_rope_with_cos_sin_cache": "tables may also be float16 or bfloat16; positions outside a table give NaN",
    "apply_rope_with_cos_sin_cache_inplace": "as above",
    **_same(
        "cosines and sines are within 2^-23, at any position",
        "apply_rope apply_rope_inplace apply_rope_pos_ids apply_rope_pos_ids_inplace apply_llama31_rope"
        " apply_llama31_rope_inplace apply_llama31_rope_pos_ids apply_llama31_rope_pos_ids_inplace",
    ),
    **_same(
        "a launch for queries and keys, and one for each tensor that is not rotated; E5M2 is encoded in further ones;"
        " factors are reciprocals of float32 divisors",
        "rope_quantize_fp8 mla_rope_quantize_fp8",
    ),
    "rope_quantize_fp8_append_paged_kv_cache": "as above; torch inserts the codes; padding tokens get queries, too",
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
    "nvfp4_quantize": "torch multiplies by `out_scale`",
    "mxfp4_quantize": "",
    "mxfp8_quantize": "",
    "mxfp8_grouped_quantize": "rows past the mask are not written",
    "nvfp4_batched_quantize": "",
    "scaled_fp4_grouped_quantize": "",
    "per_token_group_quant_8bit": "powers of two in float32",
    "e2m1_and_ufp8sf_scale_to_float": "decoded where the codes are, then copied to the host",
    "mxfp4_dequantize": "likewise",
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
    **_same(
        "torch inserts the codes and scales; also other sizes of heads; a scale on a GPU is not looked at",
        "nvfp4_quantize_append_paged_kv_cache nvfp4_quantize_append_paged_kv_cache_with_slot_mapping"
        " nvfp4_quantize_append_paged_mla_kv_cache",
    ),
    "concat_mla_kv_quant_fp8": "three launches, and torch copies rotated elements to all heads; all GPUs and the CPU",
    "comm.create_allreduce_fusion_workspace": "2 to 8 GPUs of one host, or processes on the CPU; no multicast",
    "comm.AllReduceFusionWorkspace": "rows and columns are limited separately",
    "comm.AllReduceFusionPattern": "",
    "comm.QuantizationSFLayout": "",
    "comm.allreduce_fusion": "sums in float32; results are copied to given outputs; no patterns for experts",
    "mhc_post": "also float16 and float32",
    "mhc_pre_big_fuse": "also float16 and float32",
    "mhc_pre_big_fuse_with_prenorm": "also float16 and float32",
    "rmsnorm_sigmoid_gate": "also other dtypes and sizes, all GPUs and the CPU",
    "supports_rmsnorm_sigmoid_gate": "",
    "nvfp4_e4m3_max": "",
    **_same("", "nvfp4_4over6_code nvfp4_4over6_from_code"),
    **_same("", "mxfp8_quantize_cute_dsl mxfp4_quantize_cute_dsl nvfp4_quantize_cute_dsl"),
    "nvfp4_quantize_per_token_cute_dsl": "torch multiplies by `out_scale`",
    "cake_rmsnorm": "also other dtypes and sizes, all GPUs and the CPU; the unrounded sum is normalized",
    **_same(
        "a norm into a float32 stream with a gate for each column, of rows of 8192: no op of one launch",
        "gated_residual_rmsnorm gated_residual_next_rmsnorm supports_gated_residual_rmsnorm"
        " supports_gated_residual_next_rmsnorm",
    ),
    "CakeRMSNormFunction": "`cake_rmsnorm`, which autograd differentiates",
    **_same(
        "hands the reciprocal root mean square of rows from one to the other; `jitnorm.rmsnorm_backward` computes it"
        " again, given `eps`",
        "cake_rmsnorm_train_forward cake_rmsnorm_train_backward",
    ),
    "silu_and_mul_mxfp8_quantize_backward": "the gradient of SwiGLU: no op",
    **_same(
        "belongs to one attention, matrix product or mix of experts",
        "nvfp4_quantize_smooth trtllm_sage_attention_quantize nvfp4_attention_sm120_quantize_qkv"
        " prepare_mega_mhc comm.trtllm_moe_allreduce_fusion"
        " comm.trtllm_moe_finalize_allreduce_fusion comm.tp_moe_finalize_rmsnorm"
        " diffusion_ops.minimax_h3_qkv_quantize_pack",
    ),
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
    "_C.persistent_masked_m_silu_mul_quant": "scales are float32, there bfloat16",
    "mxfp4_experts_quant_supported": "on all GPUs from Ampere on",
    "_C.masked_moe_activation": "torch copies tokens' rows of all that are computed; neither SiTU nor SwigluStep",
    **_same("SiTU is no activation of any op", "_C.situ_and_mul _C.situ_and_mul_quant"),
    "silu_mul_quant_fp8_packed_triton": "torch copies experts' rows to a given output; rounds to the input's dtype",
    "silu_mul_per_token_group_quant_fp8_colmajor": "likewise; any number of rows; a value plus `beta` is not rounded",
    "per_token_quant_int8": "",
    "mxfp8_e4m3_quantize": "a batch of matrices has scales of 3 dimensions, or swizzled matrix by matrix",
    "convert_fp8": "also E5M2",
    "concat_and_cache_mla_rope_fused": "in several launches; torch inserts; tokens without a slot are rotated, too",
    "indexer_k_quant_and_cache": "torch inserts the codes and scales",
    "gather_and_maybe_dequant_cache": "torch gathers the codes before they are decoded; also other sizes",
    "cp_gather_and_upconvert_fp8_kv_cache": "torch gathers the codes before they are decoded; no rows of the host",
    "cp_gather_and_upconvert_nvfp4_kv_cache": "torch gathers the codes before they are decoded; on all GPUs",
    "cp_gather_indexer_k_quant_cache": "torch gathers",
    **_same(
        "belongs to one model's attention, or mix of experts",
        "fused_minimax_m3_qknorm_rope_kv_insert fused_muse_spark_qknorm_rope_kv_insert muse_spark_mul_tanh_soft_cap"
        " kimi_k3_attn_res _C.fused_deepseek_v4_kv_rope_insert _C.fused_deepseek_v4_qnorm_rope_kv_rope_quant_insert"
        " _C.fused_deepseek_v4_qnorm_rope_kv_rope_full_cache_bf16_insert"
        " _C.fused_deepseek_v4_qnorm_rope_kv_rope_full_cache_fp8_insert"
        " _C.fused_kimi_k3_mla_decode_q_concat_kv_cache_fp8_insert _C.fused_kimi_k3_mla_kv_concat_quant_fp8"
        " _C.fused_kimi_k3_mla_qkv_quant_kv_cache_fp8_insert _C.beam_allreduce_norm",
    ),
    **_same("rotates by a Hadamard matrix", "fusedQuantizeMx fusedQuantizeNv"),
    "onednn_scaled_int8_quant": "`scaled_int8_quant` has the CPU, too",
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
    "silu_and_mul_masked_post_quant_fwd": "",
    "silu_and_mul_masked_post_per_tensor_quant_fwd": "",
    "sglang_per_token_quant_fp8": "",
    "sglang_per_token_group_quant_fp8": "",
    "per_token_quant_int8": "sums in float64",
    "per_token_group_quant_int8": "",
    "fused_qk_norm_rope": "cosines and sines are within 2^-23; with an `attention_factor`, torch computes them first",
    "scaled_fp4_quant": "",
    "rotary_embedding": "positions outside `cos_sin_cache` give NaN",
    **_same(
        "belongs to one model's attention, or mix of experts",
        "dsv4_fused_q_norm_rope dsv4_fused_k_norm_rope_flashmla dsv4_fused_q_indexer_rope_hadamard_quant"
        " es_sm100_mxfp8_blockscaled_grouped_quant",
    ),
}
SGLANG_KERNELS = {
    "rmsnorm": "all sizes",
    "fused_add_rmsnorm": "",
    "rmsnorm_hf": "all sizes, of any number of dimensions",
    "fused_rmsnorm": "",
    "rmsnorm_fp32": "torch converts a bfloat16 weight of float32 rows",
    "rmsnorm_fanout": "all sizes and numbers of rows; torch stacks the weights",
    "can_use_rmsnorm_fanout": "",
    "fused_eh_norm": "all sizes",
    "is_supported_fused_eh_norm_hidden_size": "",
    "grouped_gemma_rmsnorm": "groups of all sizes; one launch for each group of a row",
    "fused_inplace_qknorm": "all sizes",
    "can_use_fused_inplace_qknorm": "",
    "gemma_qkv_rmsnorm": "values have a launch of their own",
    "rms_norm_gate": "only with a norm",
    "fused_dual_residual_rmsnorm": "the norm is added, and the sum normalized, unrounded",
    "gemma_rmsnorm_residual_scalar": "the sum is rounded before torch multiplies it",
    "gemma_dual_rmsnorm_residual_scalar": "both sums and the norm that is added to another are rounded; four launches",
    "mhc_post": "",
    "mhc_post_split_h": "",
    "run_activation": "rows without an expert, and padding: torch copies the others",
    **_same("likewise", "silu_and_mul gelu_and_mul gelu_tanh_and_mul"),
    "silu_and_mul_masked_fwd": "torch copies the rows that the mask counts",
    "silu_and_mul_with_activation_rounding": "the limit is not rounded",
    "gelu_and_mul_with_activation_rounding": "",
    "silu_and_mul_clamp": "the limit is not rounded",
    "swiglu_oai_split": "`out_dtype`: only the input's; no limit is one of 2^127",
    "bias_gelu_tanh": "torch adds the bias",
    "relu2": "",
    "silu_and_mul_contig_post_quant": "the limit is not rounded",
    "silu_mul_mxfp8": "also other dtypes",
    "can_use_silu_mul_mxfp8": "",
    "swiglu_oai_mxfp8": "also other dtypes",
    "swiglu_oai_mxfp8_deepgemm": "also other dtypes",
    "swiglu_oai_mxfp8_quant": "blocks below 1e-30 keep their scale; no limit is one of 2^127",
    "silu_mul_static_tensorwise_quant_for_cutlass_moe": "",
    "rmsnorm_mxfp8": "also other dtypes, and all sizes of whole blocks",
    "rmsnorm_fp8_e8m0_quant": "scales are at least 2^-126; torch converts them",
    "fused_norm_fp4_quant": "all sizes of whole blocks",
    "fused_norm_fp4_quant_static": "all sizes of whole blocks",
    "per_token_quant_fp8": "",
    "per_token_group_quant": "rows of padding are encoded, too; torch copies row-major exponents",
    "per_token_group_quant_8bit_v2": "",
    "sglang_per_token_group_quant_int8": "any `eps`",
    "act_quant": "groups of all sizes",
    "per_token_group_quant_mla_deep_gemm_masked_fp8": "torch copies scales, unless there are 256 rows or a multiple",
    "fp8_wo_a_group_major_quant_ue8m0": "",
    "sglang_per_token_group_quant_fp8_dsv4_wo_a": "",
    "static_quant_fp8": "torch repeats the scale",
    "fp8_quantize": "multiplies by the reciprocal of a rounded reciprocal, which may be off by a rounding",
    "per_tensor_absmax_fp8": "`output_s` need not be zero; torch multiplies by 1 / 448",
    "per_tensor_quant_mla_fp8": "`x_s_out` need not be zero; the scale is at least `1 / (448 * 512)`",
    "mxfp8_quantize_swizzled": "also other dtypes",
    "can_use_mxfp8_swizzled": "",
    "to_mxfp8": "blocks below 1e-30 keep their scale",
    "MXFP8Tensor": "",
    "dequant_group_fp8_to_bf16": "torch copies scales whose rows have gaps",
    "fp8_per_token_to_per_tensor_quant_triton": "two launches, between which all rows are in float32",
    **_same(
        "needs an op that finds the amax of the rows that a mask counts",
        "silu_mul_dynamic_tensorwise_quant_for_cutlass_moe",
    ),
    "fused_sandwich_residual_rmsnorm": "needs an op that multiplies both parts of the sum by numbers",
    "fused_norm_residual": "needs an op that adds a norm to a float32 stream, with gates for each column",
    **_same(
        "multiplies the streams by a matrix; `jitnorm.mhc_pre` takes the product",
        "mhc_pre mhc_fused_post_pre mhc_mega_boundary",
    ),
    **_same(
        "needs an op that writes codes, scales and unencoded values into one row",
        "quantize_k_cache quantize_k_cache_separate",
    ),
    **_same("needs SiTU, which no op has", "situ_and_mul situ_and_mul_masked_post_quant"),
    **_same(
        "needs an op that mixes streams and norms the mix, in 16 bits or MXFP8",
        "hc_combine_norm hc_combine_norm_mxfp8 mhc_post_combine_norm_prefill",
    ),
    "quantize_fp4_indexer_tensor": "needs MXFP4 with a lower bound of scales",
    "per_token_quant_fp8_ue8m0_scatter": "needs an op that writes a row to several places",
    **_same(
        "belongs to one model's layers, and multiplies by a matrix",
        "fused_hy4_ihc_pre fused_hy4_ihc_post_pre fused_hy4_ihc_head",
    ),
    "fused_hy4_ihc_post": "needs an op that adds to streams without mixing them",
}
PEERS = (
    ("FlashInfer 0.7.2.post1", "flashinfer", FLASHINFER),
    ("vLLM 0.33", "vllm", VLLM),
    ("SGLang 0.5.23, sgl_kernel 0.4.10", "sglang", SGLANG),
    ("SGLang 0.5.23, `sglang.kernels.ops`", "sglang_kernels", SGLANG_KERNELS),
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
