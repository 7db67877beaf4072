"""Launches every kind of kernel once, on small tensors, for compute-sanitizer to watch."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

import torch

import jitnorm
from jitnorm import manager

SPECS = [
    jitnorm.NVFP4.with_layout("linear+128x4"),
    jitnorm.NVFP4.with_layout("8x4").with_global_scale("row"),
    jitnorm.NVFP4.with_global_scale("tensor"),
    jitnorm.MXFP4.with_layout("128x4"),
    jitnorm.MXFP8.with_layout("128x4"),
    jitnorm.FP8_TOKEN,
    jitnorm.FP8_GROUP.with_layout("column4"),
]
# Several rows a warp, one warp, several warps with partial groups, the longest rows of a block, clusters.
HIDDEN_SIZES = (128, 1152, 4224, 65536, 131072)


def random(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    # Copied from the host: the sanitizer is told to watch jitnorm's kernels alone, and must see inputs written.
    return torch.randn(*shape).to(dtype).cuda()


def launch_norms(hidden_size: int, dtype: torch.dtype) -> None:
    x, residual = random(5, hidden_size, dtype=dtype), random(5, hidden_size, dtype=dtype)
    w = random(hidden_size, dtype=dtype)
    jitnorm.rmsnorm(x, w)
    jitnorm.rmsnorm(x[:, : hidden_size - 1], random(hidden_size - 1, dtype=torch.float32))
    jitnorm.layernorm(x, *(random(hidden_size, dtype=torch.float32) for _ in range(2)))
    jitnorm.fused_add_rmsnorm(random(5, hidden_size, dtype=dtype), residual, w)
    for spec in SPECS:
        jitnorm.norm_quantize(x, w, spec=spec)
        jitnorm.dequantize(jitnorm.quantize(x, spec=spec))
    jitnorm.add_rmsnorm_fp4quant(x, residual, w, y_out=torch.empty_like(x))
    jitnorm.silu_and_mul_quantize(x, spec=jitnorm.MXFP8)
    jitnorm.mhc_rmsnorm_quantize(random(5, 3, hidden_size, dtype=dtype), random(5, 3, dtype=torch.float32), w)


def launch_many_rows() -> None:
    """The kernels for so many rows that no sanitizer would finish them, on a few."""
    x, out, w, b = random(5, 8192), random(5, 8192), random(8192), random(8192, dtype=torch.float32)
    target = jitnorm.Target.of_capability(*torch.cuda.get_device_capability())
    jitnorm.get_kernel("rmsnorm:hidden_size=8192,many_rows=true", target)(x, w, out, 1e-6)
    jitnorm.get_kernel("layernorm:hidden_size=8192,many_rows=true", target)(x, b, b, out, 1e-6)


def launch_named_schedule() -> None:
    """Kernels that tables of schedules choose alone; of the last two, blocks have several rows."""
    x, residual, w = random(5, 4096), random(5, 4096), random(4096)
    codes = torch.empty(5, 2048, dtype=torch.uint8, device="cuda")
    scales = torch.empty(128 * 256, dtype=torch.uint8, device="cuda")
    target = jitnorm.Target.of_capability(*torch.cuda.get_device_capability())
    text = "rmsnorm:hidden_size=4096,quant=e2m1/16/e4m3/128x4,residual=true,schedule=8x1we"
    jitnorm.get_kernel(text, target)(x, residual, w, codes, scales, torch.empty_like(x), 1e-6)
    x, w = random(300, 1536), random(1536)
    for schedule in ("3x1wu", "3x1wuql", "3x1wao1", "3x1waso1"):
        kernel = jitnorm.get_kernel(f"rmsnorm:hidden_size=1536,schedule={schedule}", target)
        kernel(x, w, torch.empty_like(x), 1e-6)


def launch_cute() -> None:
    """Kernels in CuTe-DSL: in registers, through shared memory (also several rows a block), and in clusters."""
    if find_spec("cutlass") is None:
        print("CuTe-DSL is not installed: its kernels are left out")
        return
    target = jitnorm.Target.of_capability(*torch.cuda.get_device_capability())
    for rows, text in (
        (5, "hidden_size=1152"),
        (5, "hidden_size=8192"),
        (5, "hidden_size=8192,many_rows=true"),
        (1500, "hidden_size=4096,many_rows=true"),
        (5, "hidden_size=131072"),
    ):
        size = int(text.removeprefix("hidden_size=").partition(",")[0])
        x, out, w = random(rows, size), random(rows, size), random(size)
        jitnorm.get_kernel(f"rmsnorm:{text}", target, backend="cute")(x, w, out, 1e-6)
        codes = torch.empty(rows, size // 2, dtype=torch.uint8, device="cuda")
        scales = torch.empty(-(-rows // 128) * 128 * -(-size // 64) * 4, dtype=torch.uint8, device="cuda")
        residual, total = random(rows, size), torch.empty_like(x)
        kernel = jitnorm.get_kernel(f"rmsnorm:{text},quant=e2m1/16/e4m3/128x4,residual=true", target, backend="cute")
        kernel(x, residual, w, codes, scales, total, 1e-6)


def launch_generic() -> None:
    """The kernels for any hidden size, which run in tiered mode alone."""
    target = jitnorm.Target.of_capability(*torch.cuda.get_device_capability())
    for hidden_size in (1000, 4224, 65536):
        x, out, w = random(5, hidden_size), random(5, hidden_size), random(hidden_size)
        vectors = f"vector_bytes={16 if hidden_size % 8 == 0 else 2}"
        jitnorm.get_kernel(f"rmsnorm:hidden_size=any,{vectors}", target)(x, w, out, 1e-6)
        jitnorm.get_kernel(f"rmsnorm:hidden_size=any,residual=true,{vectors}", target)(x, out, w, x, out, 1e-6)
    for spec in (jitnorm.NVFP4.with_layout("128x4"), jitnorm.FP8_TOKEN, jitnorm.MXFP8.with_layout("128x4")):
        q = jitnorm.norm_quantize(x, w, spec=spec)
        jitnorm.get_kernel(f"rmsnorm:hidden_size=any,quant={spec}", target)(x, w, q.data, q.scale, 1e-6)


def launch_others() -> None:
    qkv = random(7, 12, 128)
    jitnorm.qk_rmsnorm(qkv[:, :8], qkv[:, 8:10], random(128), random(128), q_out=qkv[:, :8], k_out=qkv[:, 8:10])
    batch, scale = random(3, 9, 256), torch.ones(3).cuda()
    mask = torch.tensor([4, 0, 9], dtype=torch.int32).cuda()
    jitnorm.nvfp4_batched_quantize(batch, scale[:1])
    jitnorm.scaled_fp4_grouped_quantize(batch, mask, scale)
    jitnorm.silu_and_mul_scaled_nvfp4_experts_quantize(batch, mask, scale)
    for hidden_size in (256, 4224, 65536):  # FP8 inputs are rescaled by a given global scale
        jitnorm.fp4_quantize(random(5, hidden_size, dtype=torch.float8_e4m3fn), scale[:1])
    jitnorm.nvfp4_batched_quantize(random(3, 9, 256, dtype=torch.float8_e4m3fn), scale[:1])
    jitnorm.quantize_weight(random(64, 40, dtype=torch.float8_e4m3fn), global_scale=scale[:1])
    jitnorm.quantize(random(5, 256), spec=replace(jitnorm.NVFP4, four_over_six=True))
    jitnorm.quantize(random(5, 256), spec=replace(jitnorm.MXFP4, scale_rounding="floor"))
    jitnorm.dequantize(jitnorm.quantize_weight(random(64, 40)))
    jitnorm.mxfp8_quantize(random(5, 96), alignment=64)
    jitnorm.compute_amax(random(5, 1000))
    scales = torch.randint(0, 256, (130, 6)).to(torch.uint8).cuda()
    jitnorm.block_scale_interleave(scales)
    jitnorm.shuffle_matrix_a(torch.randint(0, 256, (128, 40)).to(torch.uint8).cuda(), 128)


def main() -> None:
    for hidden_size in HIDDEN_SIZES:
        launch_norms(hidden_size, torch.bfloat16)
    launch_norms(1152, torch.float32)
    launch_many_rows()
    launch_named_schedule()
    launch_cute()
    launch_generic()
    launch_others()
    torch.cuda.synchronize()
    print(f"launched {len(manager._kernels)} kernels")


if __name__ == "__main__":
    main()
