"""The numerics of jitnorm, bit for bit, in NumPy.

Every kernel, on every device, is compared with this package byte for byte. It is written from the
definition alone and shares no code with the kernels. All arithmetic is float32, rounded to nearest even,
with denormals; the only fused operation is the multiply-add of :func:`sum_of_squares`. Every NaN that a
function returns has one fixed code, 0x7FFFFFFF in float32.

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

from jitnorm.reference.elements import (
    decode_e2m1,
    decode_e4m3,
    decode_e5m2,
    encode_e2m1,
    encode_e4m3,
    encode_e5m2,
    round_to,
)
from jitnorm.reference.fp4 import ScaleFormat, dequantize_fp4, quantize_fp4, quantize_nvfp4_row
from jitnorm.reference.fp8 import (
    Fp8Dtype,
    GroupScaleFormat,
    quantize_fp8_group,
    quantize_fp8_static,
    quantize_fp8_token,
)
from jitnorm.reference.layouts import ScaleLayout, column_major_scales, swizzle_scales, unswizzle_scales
from jitnorm.reference.mxfp8 import dequantize_mxfp8, quantize_mxfp8
from jitnorm.reference.norm import layernorm_f32, rmsnorm_f32, stored_residual
from jitnorm.reference.statistics import CHUNK, row_sum, sum_of_squares
from jitnorm.reference.ue8m0 import ScaleRounding

__all__ = [
    "CHUNK",
    "Fp8Dtype",
    "GroupScaleFormat",
    "ScaleFormat",
    "ScaleLayout",
    "ScaleRounding",
    "column_major_scales",
    "decode_e2m1",
    "decode_e4m3",
    "decode_e5m2",
    "dequantize_fp4",
    "dequantize_mxfp8",
    "encode_e2m1",
    "encode_e4m3",
    "encode_e5m2",
    "layernorm_f32",
    "quantize_fp4",
    "quantize_fp8_group",
    "quantize_fp8_static",
    "quantize_fp8_token",
    "quantize_mxfp8",
    "quantize_nvfp4_row",
    "rmsnorm_f32",
    "round_to",
    "row_sum",
    "stored_residual",
    "sum_of_squares",
    "swizzle_scales",
    "unswizzle_scales",
]
