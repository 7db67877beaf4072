"""The functions of `vllm._custom_ops` for norms, activations and quantization; `_C` has those of `torch.ops._C`.

This also includes the functions of its gated layers, `rms_norm_gated` and `fla_rms_norm_gated`, and those of its
quantization's `fp8_utils`, `int8_utils` and `mxfp8_utils`.

Instead of ``from vllm import _custom_ops as ops``, write ``from jitnorm.compat import vllm as ops``.
"""

from jitnorm.compat.vllm import outputs_first as _C  # noqa: N812 - as in torch.ops
from jitnorm.compat.vllm.conversions import (
    convert_fp8,
    mxfp8_e4m3_quantize,
    per_token_quant_int8,
)
from jitnorm.compat.vllm.custom_ops import (
    fused_q_kv_rmsnorm,
    mxfp4_experts_quant,
    per_token_group_quant_fp8,
    per_token_group_quant_fp8_packed_for_deepgemm,
    per_token_group_quant_int8,
    rms_norm_dynamic_per_token_quant,
    rms_norm_per_block_quant,
    scaled_fp4_experts_quant,
    scaled_fp4_quant,
    scaled_fp8_quant,
    scaled_int8_quant,
    silu_and_mul_mxfp4_experts_quant,
    silu_and_mul_per_block_quant,
    silu_and_mul_scaled_fp4_experts_quant,
)
from jitnorm.compat.vllm.experts import mxfp4_experts_quant_supported
from jitnorm.compat.vllm.fp4 import create_fp4_output_tensors, create_fp4_scale_tensor
from jitnorm.compat.vllm.gated import fla_rms_norm_gated, rms_norm_gated
from jitnorm.compat.vllm.gathers import (
    cp_gather_and_upconvert_fp8_kv_cache,
    cp_gather_and_upconvert_nvfp4_kv_cache,
    cp_gather_indexer_k_quant_cache,
    gather_and_maybe_dequant_cache,
)
from jitnorm.compat.vllm.kv_cache import fused_qknorm_rope_cache
from jitnorm.compat.vllm.mla_cache import (
    concat_and_cache_mla_rope_fused,
    indexer_k_quant_and_cache,
)
from jitnorm.compat.vllm.outputs_first import fused_add_rms_norm, fused_qk_norm_rope, rms_norm
from jitnorm.compat.vllm.rotary import rotary_embedding
from jitnorm.compat.vllm.silu_fp8 import (
    silu_mul_per_token_group_quant_fp8_colmajor,
    silu_mul_quant_fp8_packed_triton,
)

__all__ = [
    "_C",
    "concat_and_cache_mla_rope_fused",
    "convert_fp8",
    "cp_gather_and_upconvert_fp8_kv_cache",
    "cp_gather_and_upconvert_nvfp4_kv_cache",
    "cp_gather_indexer_k_quant_cache",
    "create_fp4_output_tensors",
    "create_fp4_scale_tensor",
    "fla_rms_norm_gated",
    "fused_add_rms_norm",
    "fused_q_kv_rmsnorm",
    "fused_qk_norm_rope",
    "fused_qknorm_rope_cache",
    "gather_and_maybe_dequant_cache",
    "indexer_k_quant_and_cache",
    "mxfp4_experts_quant",
    "mxfp4_experts_quant_supported",
    "mxfp8_e4m3_quantize",
    "per_token_group_quant_fp8",
    "per_token_group_quant_fp8_packed_for_deepgemm",
    "per_token_group_quant_int8",
    "per_token_quant_int8",
    "rms_norm",
    "rms_norm_dynamic_per_token_quant",
    "rms_norm_gated",
    "rms_norm_per_block_quant",
    "rotary_embedding",
    "scaled_fp4_experts_quant",
    "scaled_fp4_quant",
    "scaled_fp8_quant",
    "scaled_int8_quant",
    "silu_and_mul_mxfp4_experts_quant",
    "silu_and_mul_per_block_quant",
    "silu_and_mul_scaled_fp4_experts_quant",
    "silu_mul_per_token_group_quant_fp8_colmajor",
    "silu_mul_quant_fp8_packed_triton",
]
