"""SGLang's kernels of norms, activations and quantization, whose arguments are not those of `sgl_kernel`.

Instead of ``from sglang.kernels.ops.layernorm.norm import rmsnorm``, write
``from jitnorm.compat.sglang_kernels import rmsnorm``; likewise for the other modules of ``sglang.kernels.ops``.
"""

from jitnorm.compat.sglang_kernels.activations import (
    bias_gelu_tanh,
    gelu_and_mul,
    gelu_and_mul_with_activation_rounding,
    gelu_tanh_and_mul,
    relu2,
    run_activation,
    silu_and_mul,
    silu_and_mul_clamp,
    silu_and_mul_masked_fwd,
    silu_and_mul_with_activation_rounding,
    swiglu_oai_split,
)
from jitnorm.compat.sglang_kernels.fp8 import (
    fp8_quantize,
    per_tensor_absmax_fp8,
    per_tensor_quant_mla_fp8,
    per_token_quant_fp8,
    static_quant_fp8,
)
from jitnorm.compat.sglang_kernels.groups import (
    act_quant,
    dequant_group_fp8_to_bf16,
    fp8_per_token_to_per_tensor_quant_triton,
    fp8_wo_a_group_major_quant_ue8m0,
    per_token_group_quant,
    per_token_group_quant_8bit_v2,
    per_token_group_quant_mla_deep_gemm_masked_fp8,
    sglang_per_token_group_quant_fp8_dsv4_wo_a,
    sglang_per_token_group_quant_int8,
)
from jitnorm.compat.sglang_kernels.heads import (
    can_use_fused_inplace_qknorm,
    fused_inplace_qknorm,
    gemma_qkv_rmsnorm,
    rms_norm_gate,
)
from jitnorm.compat.sglang_kernels.mxfp8 import (
    MXFP8Tensor,
    can_use_mxfp8_swizzled,
    mxfp8_quantize_swizzled,
    to_mxfp8,
)
from jitnorm.compat.sglang_kernels.norms import (
    can_use_rmsnorm_fanout,
    fused_add_rmsnorm,
    fused_eh_norm,
    fused_rmsnorm,
    grouped_gemma_rmsnorm,
    is_supported_fused_eh_norm_hidden_size,
    rmsnorm,
    rmsnorm_fanout,
    rmsnorm_fp32,
    rmsnorm_hf,
)
from jitnorm.compat.sglang_kernels.quantized_activations import (
    can_use_silu_mul_mxfp8,
    silu_and_mul_contig_post_quant,
    silu_mul_mxfp8,
    silu_mul_static_tensorwise_quant_for_cutlass_moe,
    swiglu_oai_mxfp8,
    swiglu_oai_mxfp8_deepgemm,
    swiglu_oai_mxfp8_quant,
)
from jitnorm.compat.sglang_kernels.quantized_norms import (
    fused_norm_fp4_quant,
    fused_norm_fp4_quant_static,
    rmsnorm_fp8_e8m0_quant,
    rmsnorm_mxfp8,
)
from jitnorm.compat.sglang_kernels.streams import mhc_post, mhc_post_split_h
from jitnorm.compat.sglang_kernels.sums import (
    fused_dual_residual_rmsnorm,
    gemma_dual_rmsnorm_residual_scalar,
    gemma_rmsnorm_residual_scalar,
)

__all__ = [
    "MXFP8Tensor",
    "act_quant",
    "bias_gelu_tanh",
    "can_use_fused_inplace_qknorm",
    "can_use_mxfp8_swizzled",
    "can_use_rmsnorm_fanout",
    "can_use_silu_mul_mxfp8",
    "dequant_group_fp8_to_bf16",
    "fp8_per_token_to_per_tensor_quant_triton",
    "fp8_quantize",
    "fp8_wo_a_group_major_quant_ue8m0",
    "fused_add_rmsnorm",
    "fused_dual_residual_rmsnorm",
    "fused_eh_norm",
    "fused_inplace_qknorm",
    "fused_norm_fp4_quant",
    "fused_norm_fp4_quant_static",
    "fused_rmsnorm",
    "gelu_and_mul",
    "gelu_and_mul_with_activation_rounding",
    "gelu_tanh_and_mul",
    "gemma_dual_rmsnorm_residual_scalar",
    "gemma_qkv_rmsnorm",
    "gemma_rmsnorm_residual_scalar",
    "grouped_gemma_rmsnorm",
    "is_supported_fused_eh_norm_hidden_size",
    "mhc_post",
    "mhc_post_split_h",
    "mxfp8_quantize_swizzled",
    "per_tensor_absmax_fp8",
    "per_tensor_quant_mla_fp8",
    "per_token_group_quant",
    "per_token_group_quant_8bit_v2",
    "per_token_group_quant_mla_deep_gemm_masked_fp8",
    "per_token_quant_fp8",
    "relu2",
    "rms_norm_gate",
    "rmsnorm",
    "rmsnorm_fanout",
    "rmsnorm_fp8_e8m0_quant",
    "rmsnorm_fp32",
    "rmsnorm_hf",
    "rmsnorm_mxfp8",
    "run_activation",
    "sglang_per_token_group_quant_fp8_dsv4_wo_a",
    "sglang_per_token_group_quant_int8",
    "silu_and_mul",
    "silu_and_mul_clamp",
    "silu_and_mul_contig_post_quant",
    "silu_and_mul_masked_fwd",
    "silu_and_mul_with_activation_rounding",
    "silu_mul_mxfp8",
    "silu_mul_static_tensorwise_quant_for_cutlass_moe",
    "static_quant_fp8",
    "swiglu_oai_mxfp8",
    "swiglu_oai_mxfp8_deepgemm",
    "swiglu_oai_mxfp8_quant",
    "swiglu_oai_split",
    "to_mxfp8",
]
