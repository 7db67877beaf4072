"""Launches every kind of kernel once, on small tensors, for compute-sanitizer to watch."""

from __future__ import annotations

import torch

import jitnorm

SPECS = [
    jitnorm.NVFP4.with_layout("linear+128x4"),
    jitnorm.NVFP4.with_layout("8x4").with_global_scale("row"),
    jitnorm.MXFP4.with_layout("128x4"),
    jitnorm.MXFP8.with_layout("128x4"),
    jitnorm.FP8_TOKEN,
    jitnorm.FP8_GROUP.with_layout("column4"),
]
# Several rows a warp, one warp, several warps with partial groups, the longest rows held, rows loaded again.
HIDDEN_SIZES = (128, 1152, 4224, 65536, 131072)


def launch_all(hidden_size: int, dtype: torch.dtype) -> int:
    # Copied from the host: the sanitizer is told to watch jitnorm's kernels alone, and must see inputs written.
    x, residual, w = (torch.randn(rows, hidden_size).to(dtype).cuda() for rows in (5, 5, 1))
    w = w[0]
    jitnorm.rmsnorm(x, w)
    jitnorm.rmsnorm(x[:, : hidden_size - 1], torch.randn(hidden_size - 1).cuda())
    jitnorm.fused_add_rmsnorm(torch.randn(5, hidden_size).to(dtype).cuda(), residual, w)
    for spec in SPECS:
        jitnorm.norm_quantize(x, w, spec=spec)
        jitnorm.quantize(x, spec=spec)
    jitnorm.add_rmsnorm_fp4quant(x, residual, w, y_out=torch.empty_like(x))
    return 4 + 2 * len(SPECS)


def main() -> None:
    launched = sum(launch_all(hidden_size, torch.bfloat16) for hidden_size in HIDDEN_SIZES)
    launched += launch_all(1152, torch.float32)
    torch.cuda.synchronize()
    print(f"launched {launched} kernels")


if __name__ == "__main__":
    main()
