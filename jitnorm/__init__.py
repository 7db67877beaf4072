"""jitnorm: JIT-compiled normalization and low-precision quantization, the same bits on every target.

Importing it loads no array framework and no compiler.
"""

from jitnorm.errors import KernelNotReadyError
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.quant_spec import MXFP4, NVFP4, QuantSpec
from jitnorm.kernels.target import Target
from jitnorm.manager import get_kernel
from jitnorm.ops.norm import rmsnorm, rmsnorm_fp4quant

__version__ = "0.1.0"

__all__ = [
    "MXFP4",
    "NVFP4",
    "KernelConfig",
    "KernelNotReadyError",
    "QuantSpec",
    "Target",
    "get_kernel",
    "rmsnorm",
    "rmsnorm_fp4quant",
]
