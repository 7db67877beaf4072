"""SGLang's kernels of norms, activations and quantization, whose arguments are not those of `sgl_kernel`.

Instead of ``from sglang.kernels.ops.layernorm.norm import rmsnorm``, write
``from jitnorm.compat.sglang_kernels import rmsnorm``; likewise for the other modules of ``sglang.kernels.ops``.
"""

from jitnorm.compat.sglang_kernels.activations import (
    gelu_and_mul,
    gelu_and_mul_with_activation_rounding,
    gelu_tanh_and_mul,
    relu2,
    run_activation,
    silu_and_mul,
    silu_and_mul_with_activation_rounding,
)
from jitnorm.compat.sglang_kernels.heads import (
    can_use_fused_inplace_qknorm,
    fused_inplace_qknorm,
    gemma_qkv_rmsnorm,
    rms_norm_gate,
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
from jitnorm.compat.sglang_kernels.streams import mhc_post
from jitnorm.compat.sglang_kernels.sums import (
    fused_dual_residual_rmsnorm,
    gemma_dual_rmsnorm_residual_scalar,
    gemma_rmsnorm_residual_scalar,
)

__all__ = [
    "can_use_fused_inplace_qknorm",
    "can_use_rmsnorm_fanout",
    "fused_add_rmsnorm",
    "fused_dual_residual_rmsnorm",
    "fused_eh_norm",
    "fused_inplace_qknorm",
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
    "relu2",
    "rms_norm_gate",
    "rmsnorm",
    "rmsnorm_fanout",
    "rmsnorm_fp32",
    "rmsnorm_hf",
    "run_activation",
    "silu_and_mul",
    "silu_and_mul_with_activation_rounding",
]
