"""Configurations of row-wise ops whose schedules tests compare."""

from __future__ import annotations

from jitnorm.kernels.config import KernelConfig

OPS = [
    "rmsnorm:", "rmsnorm:residual=true,", "rmsnorm:quant=e2m1/16/e4m3,", "rmsnorm:quant=e2m1/16/e4m3/linear/row,",
    "layernorm:", "quantize:quant=e2m1/16/e4m3,gate_columns=-1,", "rmsnorm:streams=4,weight=float32,",
    "rmsnorm:residual=true,weights=3,", "quantize:streams=4,sinkhorn=20,prenorm=true,",
    "layernorm:residual=true,gate_bias=true,modulated=true,weight=none,",
]  # fmt: skip
CONFIGS = [
    KernelConfig.parse(f"{op}hidden_size={size}") for op in OPS for size in (512, 1536, 4096, 7168, 32768, 131072)
]
