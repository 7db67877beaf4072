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
from jitnorm.compat.sglang_kernels.heads import can_use_fused_inplace_qknorm, fused_inplace_qknorm
from jitnorm.compat.sglang_kernels.norms import fused_add_rmsnorm, rmsnorm, rmsnorm_hf

__all__ = [
    "can_use_fused_inplace_qknorm",
    "fused_add_rmsnorm",
    "fused_inplace_qknorm",
    "gelu_and_mul",
    "gelu_and_mul_with_activation_rounding",
    "gelu_tanh_and_mul",
    "relu2",
    "rmsnorm",
    "rmsnorm_hf",
    "run_activation",
    "silu_and_mul",
    "silu_and_mul_with_activation_rounding",
]
