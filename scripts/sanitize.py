"""Launches every kind of kernel once, on small tensors, for compute-sanitizer to watch."""

from __future__ import annotations

import itertools

import torch

import jitnorm

FORMATS = [(16, "e4m3"), (32, "ue8m0"), (16, "ue8m0"), (32, "e4m3")]
# One lane a row, shared warps, one warp, several warps with partial groups, the longest rows.
HIDDEN_SIZES = (64, 96, 1056, 4128, 16384, 65536)


def main() -> None:
    launched = 0
    for hidden_size, dtype in itertools.product(HIDDEN_SIZES, (torch.float16, torch.bfloat16)):
        x = torch.randn(5, hidden_size, device="cuda").to(dtype)
        w = torch.randn(hidden_size, device="cuda").to(dtype)
        jitnorm.rmsnorm(x, w)
        jitnorm.rmsnorm(x[:, : hidden_size - 1], w[: hidden_size - 1].clone().float())
        launched += 2
        for block_size, scale_format in FORMATS:
            global_scale = torch.ones(1, device="cuda") if scale_format == "e4m3" else None
            jitnorm.rmsnorm_fp4quant(
                x, w, global_scale=global_scale, block_size=block_size, scale_format=scale_format,
                output_both_sf_layouts=True,
            )  # fmt: skip
            launched += 1
    torch.cuda.synchronize()
    print(f"launched {launched} kernels")


if __name__ == "__main__":
    main()
