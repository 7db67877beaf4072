"""jitnorm: JIT-compiled normalization and low-precision quantization, the same bits on every target.

Importing jitnorm loads no array framework and no compiler.
"""

import os as _os

# In a checkout, kernels/ and cache/ lie beside this folder, not within it as where jitnorm is installed.
if not _os.path.isdir(_os.path.join(__path__[0], "kernels")):
    __path__.append(_os.path.dirname(__path__[0]))

from jitnorm.catalogue.sf_layout import SfLayout
from jitnorm.errors import KernelNotReadyError, KernelNotWarmError
from jitnorm.interop.dynamo import replace_in_graphs as _replace_in_graphs
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.quant_spec import (
    FP8_BLOCK,
    FP8_GROUP,
    FP8_TENSOR,
    FP8_TOKEN,
    INT8_GROUP,
    INT8_TENSOR,
    INT8_TOKEN,
    MXFP4,
    MXFP8,
    NVFP4,
    QuantSpec,
)
from jitnorm.kernels.target import Target
from jitnorm.manager import get_kernel
from jitnorm.named_tensors import from_named_tensors, to_named_tensors
from jitnorm.ops.activation import (
    fatrelu_and_mul,
    gelu,
    gelu_and_mul,
    gelu_quick,
    gelu_tanh,
    gelu_tanh_and_mul,
    mul_and_silu,
    relu2,
    silu,
    silu_and_mul,
    silu_and_mul_with_clamp,
    swigluoai_and_mul,
)
from jitnorm.ops.add_norm import add_norm_quantize, add_rmsnorm, gemma_add_rmsnorm
from jitnorm.ops.amax import compute_amax
from jitnorm.ops.backward import (
    gemma_rmsnorm_backward,
    layernorm_backward,
    rmsnorm_backward,
    rmsnorm_bias_backward,
    sum_rows,
)
from jitnorm.ops.batched import (
    mxfp8_grouped_quantize,
    nvfp4_batched_quantize,
    scaled_fp4_grouped_quantize,
    silu_and_mul_scaled_nvfp4_experts_quantize,
)
from jitnorm.ops.dequantize import (
    dequantize,
    e2m1_and_ufp8sf_scale_to_float,
    mxfp4_dequantize,
    mxfp8_dequantize_host,
)
from jitnorm.ops.gated import silu_and_mul_nvfp4_quantize, silu_and_mul_quantize
from jitnorm.ops.general import norm_quantize, quantize
from jitnorm.ops.grouped import grouped_quantize, silu_and_mul_grouped_quantize
from jitnorm.ops.layernorm import layernorm, layernorm_quantize, layernorm_with_statistics
from jitnorm.ops.layout import block_scale_interleave, shuffle_matrix_a, shuffle_matrix_sf_a
from jitnorm.ops.mhc import mhc_post, mhc_pre, mhc_pre_with_prenorm
from jitnorm.ops.norm import (
    fused_add_rmsnorm,
    gemma_fused_add_rmsnorm,
    gemma_rmsnorm,
    rmsnorm,
    rmsnorm_bias,
    rmsnorm_silu,
)
from jitnorm.ops.norm_branch import (
    adaptive_layernorm,
    adaptive_layernorm_quantize,
    gated_add_layernorm,
    gated_add_layernorm_quantize,
)
from jitnorm.ops.norm_fp4 import add_rmsnorm_fp4quant, rmsnorm_fp4quant
from jitnorm.ops.norm_fp8 import (
    fused_add_rms_norm_static_fp8_quant,
    fused_add_rmsnorm_quant,
    gemma_fused_add_rmsnorm_quant,
    gemma_rmsnorm_quant,
    rms_norm_static_fp8_quant,
    rmsnorm_quant,
)
from jitnorm.ops.norm_fp8_dynamic import (
    fused_add_rmsnorm_fp8_block_quant,
    rms_norm_dynamic_per_token_quant,
    rms_norm_per_block_quant,
)
from jitnorm.ops.norm_gated import rmsnorm_gated, rmsnorm_gated_quantize
from jitnorm.ops.norm_multi import add_rmsnorm_multi, rmsnorm_multi
from jitnorm.ops.norm_mxfp8 import add_rmsnorm_mxfp8quant, rmsnorm_mxfp8quant
from jitnorm.ops.norm_qk import gemma_qk_rmsnorm, q_kv_rmsnorm, qk_rmsnorm
from jitnorm.ops.norm_qk_rope import qk_rmsnorm_rope, qk_rmsnorm_rope_quant
from jitnorm.ops.norm_qk_rope_cache import qk_rmsnorm_rope_cache, qk_rmsnorm_rope_cache_quant
from jitnorm.ops.norm_row_fp4 import mhc_rmsnorm_quantize, rmsnorm_quantize
from jitnorm.ops.norm_sandwich import sandwich_norm_quantize, sandwich_rmsnorm
from jitnorm.ops.quantize_fp4 import fp4_quantize, mxfp4_quantize, nvfp4_quantize
from jitnorm.ops.quantize_fp8 import mxfp8_quantize
from jitnorm.ops.rope import rope, rope_quant
from jitnorm.ops.rope_cache import rope_cache, rope_cache_quant
from jitnorm.ops.weight import quantize_weight
from jitnorm.quantized import QuantizedTensor
from jitnorm.telemetry import Stats, stats, subscribe
from jitnorm.tracing import start_tracing as _start_tracing
from jitnorm.tracing import tracing_is_wanted as _tracing_is_wanted

__version__ = "0.1.0"

__all__ = [
    "FP8_BLOCK",
    "FP8_GROUP",
    "FP8_TENSOR",
    "FP8_TOKEN",
    "INT8_GROUP",
    "INT8_TENSOR",
    "INT8_TOKEN",
    "MXFP4",
    "MXFP8",
    "NVFP4",
    "KernelConfig",
    "KernelNotReadyError",
    "KernelNotWarmError",
    "QuantSpec",
    "QuantizedTensor",
    "SfLayout",
    "Stats",
    "Target",
    "adaptive_layernorm",
    "adaptive_layernorm_quantize",
    "add_norm_quantize",
    "add_rmsnorm",
    "add_rmsnorm_fp4quant",
    "add_rmsnorm_multi",
    "add_rmsnorm_mxfp8quant",
    "block_scale_interleave",
    "compute_amax",
    "dequantize",
    "e2m1_and_ufp8sf_scale_to_float",
    "fatrelu_and_mul",
    "fp4_quantize",
    "from_named_tensors",
    "fused_add_rms_norm_static_fp8_quant",
    "fused_add_rmsnorm",
    "fused_add_rmsnorm_fp8_block_quant",
    "fused_add_rmsnorm_quant",
    "gated_add_layernorm",
    "gated_add_layernorm_quantize",
    "gelu",
    "gelu_and_mul",
    "gelu_quick",
    "gelu_tanh",
    "gelu_tanh_and_mul",
    "gemma_add_rmsnorm",
    "gemma_fused_add_rmsnorm",
    "gemma_fused_add_rmsnorm_quant",
    "gemma_qk_rmsnorm",
    "gemma_rmsnorm",
    "gemma_rmsnorm_backward",
    "gemma_rmsnorm_quant",
    "get_kernel",
    "grouped_quantize",
    "layernorm",
    "layernorm_backward",
    "layernorm_quantize",
    "layernorm_with_statistics",
    "mhc_post",
    "mhc_pre",
    "mhc_pre_with_prenorm",
    "mhc_rmsnorm_quantize",
    "mul_and_silu",
    "mxfp4_dequantize",
    "mxfp4_quantize",
    "mxfp8_dequantize_host",
    "mxfp8_grouped_quantize",
    "mxfp8_quantize",
    "norm_quantize",
    "nvfp4_batched_quantize",
    "nvfp4_quantize",
    "q_kv_rmsnorm",
    "qk_rmsnorm",
    "qk_rmsnorm_rope",
    "qk_rmsnorm_rope_cache",
    "qk_rmsnorm_rope_cache_quant",
    "qk_rmsnorm_rope_quant",
    "quantize",
    "quantize_weight",
    "relu2",
    "rms_norm_dynamic_per_token_quant",
    "rms_norm_per_block_quant",
    "rms_norm_static_fp8_quant",
    "rmsnorm",
    "rmsnorm_backward",
    "rmsnorm_bias",
    "rmsnorm_bias_backward",
    "rmsnorm_fp4quant",
    "rmsnorm_gated",
    "rmsnorm_gated_quantize",
    "rmsnorm_multi",
    "rmsnorm_mxfp8quant",
    "rmsnorm_quant",
    "rmsnorm_quantize",
    "rmsnorm_silu",
    "rope",
    "rope_cache",
    "rope_cache_quant",
    "rope_quant",
    "sandwich_norm_quantize",
    "sandwich_rmsnorm",
    "scaled_fp4_grouped_quantize",
    "shuffle_matrix_a",
    "shuffle_matrix_sf_a",
    "silu",
    "silu_and_mul",
    "silu_and_mul_grouped_quantize",
    "silu_and_mul_nvfp4_quantize",
    "silu_and_mul_quantize",
    "silu_and_mul_scaled_nvfp4_experts_quantize",
    "silu_and_mul_with_clamp",
    "stats",
    "subscribe",
    "sum_rows",
    "swigluoai_and_mul",
    "to_named_tensors",
]

_replace_in_graphs(globals()[name] for name in __all__)
if _tracing_is_wanted():
    _start_tracing()
