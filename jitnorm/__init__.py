"""jitnorm: JIT-compiled normalization and low-precision quantization, the same bits on every target.

Importing it loads no array framework and no compiler.
"""

from jitnorm.errors import KernelNotReadyError
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.quant_spec import FP8_GROUP, FP8_TENSOR, FP8_TOKEN, MXFP4, MXFP8, NVFP4, QuantSpec
from jitnorm.kernels.target import Target
from jitnorm.manager import get_kernel
from jitnorm.ops.dequantize import (
    SfLayout,
    dequantize,
    e2m1_and_ufp8sf_scale_to_float,
    mxfp4_dequantize,
    mxfp8_dequantize_host,
)
from jitnorm.ops.gated import silu_and_mul_quantize
from jitnorm.ops.general import QuantizedTensor, norm_quantize, quantize
from jitnorm.ops.layout import block_scale_interleave, shuffle_matrix_a, shuffle_matrix_sf_a
from jitnorm.ops.norm import fused_add_rmsnorm, gemma_fused_add_rmsnorm, gemma_rmsnorm, layernorm, rmsnorm
from jitnorm.ops.norm_fp4 import add_rmsnorm_fp4quant, rmsnorm_fp4quant
from jitnorm.ops.norm_fp8 import (
    fused_add_rmsnorm_quant,
    gemma_fused_add_rmsnorm_quant,
    gemma_rmsnorm_quant,
    rmsnorm_quant,
)
from jitnorm.ops.norm_row_fp4 import mhc_rmsnorm_quantize, rmsnorm_quantize
from jitnorm.ops.weight import quantize_weight

__version__ = "0.1.0"

__all__ = [
    "FP8_GROUP",
    "FP8_TENSOR",
    "FP8_TOKEN",
    "MXFP4",
    "MXFP8",
    "NVFP4",
    "KernelConfig",
    "KernelNotReadyError",
    "QuantSpec",
    "QuantizedTensor",
    "SfLayout",
    "Target",
    "add_rmsnorm_fp4quant",
    "block_scale_interleave",
    "dequantize",
    "e2m1_and_ufp8sf_scale_to_float",
    "fused_add_rmsnorm",
    "fused_add_rmsnorm_quant",
    "gemma_fused_add_rmsnorm",
    "gemma_fused_add_rmsnorm_quant",
    "gemma_rmsnorm",
    "gemma_rmsnorm_quant",
    "get_kernel",
    "layernorm",
    "mhc_rmsnorm_quantize",
    "mxfp4_dequantize",
    "mxfp8_dequantize_host",
    "norm_quantize",
    "quantize",
    "quantize_weight",
    "rmsnorm",
    "rmsnorm_fp4quant",
    "rmsnorm_quant",
    "rmsnorm_quantize",
    "shuffle_matrix_a",
    "shuffle_matrix_sf_a",
    "silu_and_mul_quantize",
]
