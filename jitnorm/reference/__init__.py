"""The numerics of jitnorm, bit for bit, in NumPy.

Every kernel, on every device, is compared with this package byte for byte. It is written from the
definition alone and shares no code with the kernels. All arithmetic is float32, rounded to nearest even,
with denormals; products and sums are fused only where docs/numerics.md writes fma. Every NaN that a function
returns has one fixed code, 0x7FFFFFFF in float32.

Example:
    >>> import numpy as np
    >>> x = np.array([[3.0, -4.0] * 8], np.float16)
    >>> y = rmsnorm_f32(x, np.ones(16, np.float16), eps=0.0)
    >>> codes, scales = quantize_fp4(y, block_size=16, scale_format="e4m3")
    >>> codes.shape, scales.tolist()
    ((1, 8), [[36]])
    >>> dequantize_fp4(codes, scales, block_size=16, scale_format="e4m3")[0, :2].tolist()
    [0.75, -1.125]
"""

from __future__ import annotations

from jitnorm.reference.activation import (
    activated_f32,
    fatrelu_f32,
    gated_f32,
    gelu_f32,
    gelu_tanh_f32,
    relu2_f32,
    silu_f32,
    swiglu_f32,
    swish_f32,
)
from jitnorm.reference.angles import angles_f32
from jitnorm.reference.branch import adaptive_layernorm_f32, branch_sum_f32
from jitnorm.reference.elements import (
    Rounding,
    decode_e2m1,
    decode_e4m3,
    decode_e5m2,
    encode_e2m1,
    encode_e4m3,
    encode_e5m2,
    round_to,
)
from jitnorm.reference.finish import activated_rmsnorm_f32, gated_rmsnorm_f32, sigmoid_f32
from jitnorm.reference.fp4 import (
    ScaleFormat,
    dequantize_fp4,
    quantize_fp4,
    quantize_fp4_columns,
    quantize_nvfp4_row,
    quantize_nvfp4_tensor,
)
from jitnorm.reference.fp8 import (
    Fp8Dtype,
    GroupScaleFormat,
    dequantize_fp8,
    quantize_fp8_group,
    quantize_fp8_static,
    quantize_fp8_tensor,
    quantize_fp8_token,
)
from jitnorm.reference.fp8_block import dequantize_fp8_block, quantize_fp8_block
from jitnorm.reference.gradients import layernorm_backward_f32, rmsnorm_backward_f32, sum_rows_f32
from jitnorm.reference.int8 import (
    dequantize_int8,
    encode_int8,
    quantize_int8_group,
    quantize_int8_static,
    quantize_int8_tensor,
    quantize_int8_token,
)
from jitnorm.reference.layouts import (
    ScaleLayout,
    column_major_scales,
    packed_scales,
    spread_scales,
    swizzle_scales,
    unswizzle_scales,
)
from jitnorm.reference.mhc import mhc_mix_f32, mhc_post_f32, mhc_pre_f32
from jitnorm.reference.mxfp8 import dequantize_mxfp8, quantize_mxfp8
from jitnorm.reference.norm import (
    inv_rms_f32,
    layernorm_f32,
    layernorm_statistics_f32,
    rmsnorm_f32,
    stored_residual,
)
from jitnorm.reference.pages import insert_heads
from jitnorm.reference.ranks import rank_sum_f32
from jitnorm.reference.rotation import rotate_f32
from jitnorm.reference.sandwich import sandwich_rmsnorm_f32
from jitnorm.reference.statistics import CHUNK, amax_f32, row_sum, sum_of_squares
from jitnorm.reference.ue8m0 import ScaleRounding

__all__ = [
    "CHUNK",
    "Fp8Dtype",
    "GroupScaleFormat",
    "Rounding",
    "ScaleFormat",
    "ScaleLayout",
    "ScaleRounding",
    "activated_f32",
    "activated_rmsnorm_f32",
    "adaptive_layernorm_f32",
    "amax_f32",
    "angles_f32",
    "branch_sum_f32",
    "column_major_scales",
    "decode_e2m1",
    "decode_e4m3",
    "decode_e5m2",
    "dequantize_fp4",
    "dequantize_fp8",
    "dequantize_fp8_block",
    "dequantize_int8",
    "dequantize_mxfp8",
    "encode_e2m1",
    "encode_e4m3",
    "encode_e5m2",
    "encode_int8",
    "fatrelu_f32",
    "gated_f32",
    "gated_rmsnorm_f32",
    "gelu_f32",
    "gelu_tanh_f32",
    "insert_heads",
    "inv_rms_f32",
    "layernorm_backward_f32",
    "layernorm_f32",
    "layernorm_statistics_f32",
    "mhc_mix_f32",
    "mhc_post_f32",
    "mhc_pre_f32",
    "packed_scales",
    "quantize_fp4",
    "quantize_fp4_columns",
    "quantize_fp8_block",
    "quantize_fp8_group",
    "quantize_fp8_static",
    "quantize_fp8_tensor",
    "quantize_fp8_token",
    "quantize_int8_group",
    "quantize_int8_static",
    "quantize_int8_tensor",
    "quantize_int8_token",
    "quantize_mxfp8",
    "quantize_nvfp4_row",
    "quantize_nvfp4_tensor",
    "rank_sum_f32",
    "relu2_f32",
    "rmsnorm_backward_f32",
    "rmsnorm_f32",
    "rotate_f32",
    "round_to",
    "row_sum",
    "sandwich_rmsnorm_f32",
    "sigmoid_f32",
    "silu_f32",
    "spread_scales",
    "stored_residual",
    "sum_of_squares",
    "sum_rows_f32",
    "swiglu_f32",
    "swish_f32",
    "swizzle_scales",
    "unswizzle_scales",
]
