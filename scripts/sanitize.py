"""Launches every kind of kernel once, on small tensors, for compute-sanitizer to watch.

scripts/sanitize.py [PART/PARTS]    only one part of the launches; 0/4 to 3/4 together cover all
"""

from __future__ import annotations

import itertools
import sys
from importlib.util import find_spec
from typing import Any

import torch
from jitnorm.kernels.arguments import ScalarArgument
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.config_rules import MOVES
from jitnorm.kernels.extents import sizes_of
from jitnorm.kernels.interface import interface, tensor_arguments
from jitnorm.kernels.rope_rules import MAX_ROPE_SIZE

import jitnorm
from jitnorm import comm, manager
from jitnorm.bench.calls import call_of
from jitnorm.catalogue import OPS
from jitnorm.catalogue.op import Op
from jitnorm.comm.all_reduce import METHODS
from jitnorm.comm.memory import Exchange
from jitnorm.comm.threads import on_threads

# Ops that support all encodings, and ops on the rows of experts.
GENERAL = (
    "norm_quantize", "add_norm_quantize", "rmsnorm_gated_quantize", "sandwich_norm_quantize", "layernorm_quantize",
    "gated_add_layernorm_quantize", "adaptive_layernorm_quantize", "quantize", "dequantize", "silu_and_mul_quantize",
)  # fmt: skip
GROUPED = ("grouped_quantize", "silu_and_mul_grouped_quantize")
ENCODINGS: list[dict[str, Any]] = [
    {"quant": "nvfp4", "layout": "linear+128x4"},
    {"quant": "nvfp4", "layout": "8x4", "global_scale": "row"},
    {"quant": "nvfp4", "global_scale": "tensor"},
    {"quant": "nvfp4", "four_over_six": True},
    {"quant": "mxfp4", "layout": "128x4"},
    {"quant": "mxfp4", "scale_rounding": "floor"},
    {"quant": "mxfp8", "layout": "128x4"},
    {"quant": "fp8_token"},
    {"quant": "fp8_group", "layout": "column4"},
    {"quant": "int8_token"},
    {"quant": "int8_group", "layout": "column4"},
]
ENCODINGS_OF_EXPERTS: list[dict[str, Any]] = [
    {"quant": "nvfp4", "layout": "linear+128x4", "global_scale": "given", "scale_per_matrix": True},
    {"quant": "mxfp4", "layout": "8x4"},
    {"quant": "mxfp8", "layout": "128x4"},
    {"quant": "fp8_group"},
    {"quant": "fp8_token"},
]
# Several rows per warp, one warp, several warps with partial groups, the longest rows of a block, clusters.
HIDDEN_SIZES = (128, 1152, 4224, 65536, 131072)
ROWS = 5
# Kernels with the numbers of rows to launch them on. Those for very many rows run on a few: with that many, no
# sanitizer would finish. Short ones share warps, or a persistent block.
OF_MANY_ROWS = (
    (5, "rmsnorm:hidden_size=8192,many_rows=true"),
    (5, "layernorm:hidden_size=8192,many_rows=true"),
    (37, "quantize:hidden_size=384,weight=none,quant=e2m1/16/e4m3,many_rows=true"),
    (37, "quantize:hidden_size=384,weight=none,quant=e4m3/column/f32/linear/given,many_rows=true"),
    (37, "rmsnorm:hidden_size=768,quant=e2m1/16/e4m3/linear/row,many_rows=true"),
    (700, "layernorm:hidden_size=384,quant=e4m3/tensor/f32,many_rows=true"),
)
# Some rows share a block, and some blocks have several rows.
OF_FORMS = (
    (5, "rmsnorm:hidden_size=4096,quant=e2m1/16/e4m3/128x4,residual=true,schedule=8x1we"),
    *((300, f"rmsnorm:hidden_size=1536,schedule={each}") for each in ("3x1wu", "3x1wuql", "3x1wao1")),
    (900, "layernorm:hidden_size=2048,schedule=2x2uap3o1"),
    *((300, f"layernorm:hidden_size=1536,schedule={each}") for each in ("3x1wuqko1", "3x1wqhko1", "2x2wkgr2o1")),
    (300, "rmsnorm:hidden_size=1552,quant=e4m3/row/f32,schedule=4x1wqko1"),
    (300, "rmsnorm:hidden_size=1536,residual=true,quant=e2m1/16/e4m3/128x4,schedule=3x1wqkr2o1"),
    (300, "layernorm:hidden_size=1536,quant=e4m3/tensor/f32,schedule=3x1uqckr2o1"),
    (5, "rmsnorm:hidden_size=1200,quant=e2m1/16/e4m3/linear/row,schedule=2x2wqdg"),
    (5, "rmsnorm:hidden_size=2320,quant=e2m1/16/e4m3/128x4,schedule=1x5uql"),
    (37, "rmsnorm:hidden_size=656,quant=e2m1/16/e4m3/linear/row,schedule=1x6qp8n8"),
    *((5, f"rmsnorm:hidden_size=1552,residual=true,schedule={each}") for each in ("4x1wqlh", "2x2wqdh")),
    (5, "layernorm:hidden_size=1168,weight=float32,schedule=3x1uhr2"),
    (7, "rmsnorm:hidden_size=4112,quant=e4m3/row/f32,schedule=8x2wqhb2"),
    (5, "rmsnorm:hidden_size=9232,residual=true,schedule=19x1wqh"),
    *(
        (37, f"quantize:hidden_size=1152,quant=e4m3/{each},weight=none,schedule=1x1p4n72")
        for each in ("128/f32", "tensor/f32")
    ),
)
# Warps have parts of rows, and the last block has fewer rows than room for them.
SIDE_BY_SIDE = (
    *(
        (37, f"rmsnorm:hidden_size=640,{each}schedule=1x1wqp4n40")
        for each in ("", "residual=true,", "quant=e4m3/row/f32,", "quant=e4m3/32/ue8m0/128x4,")
    ),
    (37, "rmsnorm:hidden_size=544,gate=norm,quant=e2m1/16/e4m3,schedule=1x2wqp8n20"),
    (37, "rmsnorm:hidden_size=576,residual=true,sandwich=true,schedule=1x1qp8n36"),
    (37, "layernorm:hidden_size=1152,weight=float32,keep_statistics=true,schedule=1x3qp4n24"),
    (37, "layernorm:hidden_size=640,weight=float32,quant=e4m3/row/f32,schedule=1x1uqr2p4n40"),
    (37, "quantize:hidden_size=320,quant=int8/row/f32,weight=none,schedule=1x1p8n20"),
)
# Tables of activations, in blocks of several rows or with parts of one.
TABULATED = (
    (37, "quantize:hidden_size=640,weight=none,quant=e4m3/32/ue8m0/128x4,activation=silu,schedule=1x1mp20o1n40"),
    (300, "quantize:hidden_size=4096,weight=none,quant=e2m1/16/e4m3,activation=gelu,schedule=4x2mp6o1"),
    (300, "quantize:hidden_size=1552,weight=none,quant=e4m3/tensor/f32,gate_columns=1552,schedule=4x1mb2o2"),
    (37, "quantize:hidden_size=1024,weight=none,gate_columns=16,activation=swigluoai,schedule=2x1mp12o1"),
)
# In the last block of the first rows, a warp is idle. The others have one to three exchanges.
IN_CLUSTERS = (
    *((3, f"rmsnorm:hidden_size=15872,schedule={each}") for each in ("32x1wuqlb8", "16x2wqb4")),
    (3, "rmsnorm:hidden_size=4096,residual=true,sandwich=true,schedule=8x1whb4"),
    (3, "layernorm:hidden_size=8192,quant=e4m3/row/f32,schedule=8x2qhb4"),
    (300, "layernorm:hidden_size=8192,quant=e4m3/32/ue8m0/128x4,schedule=8x2uqckb2o1"),
    (300, "rmsnorm:hidden_size=8192,quant=e4m3/row/f32,schedule=8x2wqkr2b2o1"),
    (3, "quantize:hidden_size=11776,weight=none,quant=e2m1/16/e4m3,batched=true,masked=true,schedule=24x1lb8"),
)
PART, PARTS = map(int, (sys.argv[1] if len(sys.argv) > 1 else "0/1").split("/"))
_numbers = itertools.count()


def random(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    # Copied from the host: the sanitizer watches only jitnorm's kernels, and must see the inputs being written.
    return torch.randn(*shape).to(dtype).cuda()


def tensor(shape: tuple[int, ...], dtype: str, is_output: bool) -> torch.Tensor:
    kind = getattr(torch, {"float4_e2m1fnx2": "uint8", "float8_e8m0fnu": "uint8"}.get(dtype, dtype))
    if is_output:
        return torch.empty(shape, dtype=kind, device="cuda")
    if kind in (torch.uint8, torch.int32, torch.int64):
        return torch.randint(5, shape).to(kind).cuda()
    return random(*shape, dtype=kind)


def launch(op: Op, hidden_size: int, rows: int = ROWS, **choices: Any) -> None:
    if next(_numbers) % PARTS != PART:
        return
    dtype = "uint8" if op.fixed["op"] in MOVES else "bfloat16"
    call_of(op, {"hidden_size": hidden_size, "input": dtype, **choices}, tensor, rows)()


def launch_every_op(hidden_size: int) -> None:
    for op in OPS.values():
        encodings = ENCODINGS if op.name in GENERAL else ENCODINGS_OF_EXPERTS if op.name in GROUPED else [{}]
        if "rope" in op.choices and hidden_size > MAX_ROPE_SIZE:
            continue
        for choices in encodings:
            launch(op, hidden_size, **choices)
        if "keep_norm" in op.choices and op.formats:
            launch(op, hidden_size, keep_norm=True)


def launch_variants() -> None:
    launch_variants_of_norms()
    launch_variants_of_activations()
    launch_variants_of_encodings()
    launch_variants_of_rotations()


def launch_variants_of_norms() -> None:
    for dtype in ("float32", "float16"):
        launch(OPS["rmsnorm"], 1151, input=dtype)
        launch(OPS["norm_quantize"], 1152, input=dtype, quant="nvfp4", residual=True, unit_bias=True)
    launch(OPS["rmsnorm"], 1151, weight="float32")
    for name in ("rmsnorm", "layernorm", "rmsnorm_backward", "layernorm_backward"):
        launch(OPS[name], 1151, weight="none")
    for hidden_size, second_size in ((1536, 512), (192, 576), (512, 65536)):
        launch(OPS["q_kv_rmsnorm"], hidden_size, second_size=second_size)
    launch(OPS["fused_add_rmsnorm"], 1151, rounding="hf")
    for name in ("norm_quantize", "layernorm_quantize"):
        launch(OPS[name], 1152, quant="nvfp4", rounding="output")
    launch(OPS["norm_quantize"], 1152, quant="nvfp4", residual=True, activation="silu", rounding="hf")
    launch(OPS["rmsnorm_silu"], 1151, activation="gelu")
    launch(OPS["rmsnorm_gated"], 1151, gate="input", activation="sigmoid", bias=True)
    launch(OPS["gated_add_layernorm"], 1151, gate_bias=True)
    launch(OPS["adaptive_layernorm"], 1151, residual=True, gate_bias=True, modulation_bias=True)
    launch(OPS["rmsnorm_multi"], 1151, weights=4, rounding="hf")
    launch(OPS["sandwich_rmsnorm"], 1151, unit_bias=True, rounding="hf")
    packed, factors = random(7, 4096), random(1920)
    for group_size in (80, 640):
        jitnorm.rmsnorm_gated(packed[:, :1920], packed[:, 2048:3968], factors, group_size=group_size)
    launch(OPS["mhc_rmsnorm_quantize"], 1152, streams=3)
    launch(OPS["mhc_pre"], 1151, streams=3, splits=2)
    launch(OPS["mhc_pre_with_prenorm"], 1151, input="float16")
    launch(OPS["mhc_post"], 1151, streams=3, input="float32")
    qkv, weight = random(7, 12, 128), random(128)
    q, k = qkv[:, :8], qkv[:, 8:10]
    jitnorm.qk_rmsnorm(q, k, weight, weight, q_out=q, k_out=k)


def launch_variants_of_activations() -> None:
    launch(OPS["silu_and_mul_quantize"], 1152, quant="nvfp4", gate_columns=64)
    for activation in ("gelu", "gelu_tanh", "relu2"):
        launch(OPS["silu_and_mul_quantize"], 1152, quant="mxfp8", activation=activation)
        launch(OPS["quantize"], 1152, quant="nvfp4", activation=activation, input="float32")
    launch(OPS["silu_and_mul_quantize"], 1152, quant="nvfp4", activation="swigluoai", gate_columns=1)
    for activation in ("swiglu:7:1.5:1", "fatrelu:0.5"):
        launch(OPS["silu_and_mul_quantize"], 1152, quant="mxfp8", activation=activation, values_first=True)
    launch(OPS["silu_and_mul_quantize"], 1152, quant="nvfp4", rounding="hf", four_over_six="mae")
    launch(OPS["swigluoai_and_mul"], 1151, gate_columns=-1)
    launch(OPS["gelu"], 1151, input="float32")


def launch_variants_of_encodings() -> None:
    launch(OPS["quantize"], 640, quant="e4m3/128/f32_ue8m0/packed")
    launch(OPS["quantize"], 256, quant="mxfp8", batched=True, masked=True)
    for name in ("nvfp4_batched_quantize", "scaled_fp4_grouped_quantize"):
        launch(OPS[name], 256, scale_per_matrix=True)
    for hidden_size in (256, 4224, 65536):  # FP8 inputs are rescaled by a given global scale
        launch(OPS["fp4_quantize"], hidden_size, input="float8_e4m3fn", global_scale="given")
    launch(OPS["nvfp4_batched_quantize"], 256, input="float8_e4m3fn")
    launch(OPS["quantize_weight"], 40, input="float8_e4m3fn", global_scale="given")
    launch(OPS["dequantize"], 40, quant="nvfp4", axis=0)
    for hidden_size, options in ((200, {"batched": True}), (384, {"input": "float32"})):
        for name in ("quantize", "dequantize"):
            launch(OPS[name], hidden_size, rows=130, quant="fp8_block", **options)
    for hidden_size, quant in ((48, "e4m3/16/f32"), (4864, "e4m3/256/f32"), (768, "int8/256/f32")):
        launch(OPS["norm_quantize"], hidden_size, quant=quant, layout="column4")
    for hidden_size, block in ((1000, "column"), (512, "4x256"), (5000, "row"), (384, 128)):
        for name in ("quantize", "dequantize"):
            launch(OPS[name], hidden_size, quant=f"e4m3/{block}/f32/linear/given")
    launch(OPS["norm_quantize"], 4224, residual=True, quant="int8/column/f32/linear/given")
    for hidden_size, quant in ((480, "int8/48/f32"), (4896, "e4m3/48/f32"), (72000, "e4m3/96/f32")):
        launch(OPS["norm_quantize"], hidden_size, quant=quant, residual=hidden_size == 4896)
    for quant in ("mxfp4", "mxfp8"):
        launch(OPS["quantize"], 1152, quant=quant, scale_rounding="even")
    launch(OPS["mxfp8_quantize"], 96, alignment=64)
    launch(OPS["mxfp8_grouped_quantize"], 96)
    for hidden_size in (256, 4224):
        launch(OPS["quantize"], hidden_size, quant="nvfp4", layout="128x4", global_scale="row", gathers=True)
    launch(OPS["grouped_quantize"], 256, quant="fp8_token", gathers=True)
    for experts in (1, 3, 40):
        launch(OPS["grouped_quantize"], 256, quant="nvfp4", layout="128x4", experts=experts, rows=300)
    launch(OPS["compute_amax"], 1000)
    launch(OPS["block_scale_interleave"], 6, batched=True)
    launch(OPS["shuffle_matrix_a"], 40, shuffle_rows=16)


def launch_variants_of_rotations() -> None:
    for hidden_size, rotary_size in ((512, 384), (80, 80), (112, 24)):  # halves that are whole chunks, and not
        launch(OPS["qk_rmsnorm_rope"], hidden_size, rotary_size=rotary_size, positions="int32", rounding="hf")
        launch(OPS["qk_rmsnorm_rope_quant"], hidden_size, rotary_size=rotary_size, rope="interleaved")
        launch(OPS["rope"], hidden_size, rotary_size=rotary_size, positions="int32", rounding="hf")
        launch(OPS["rope_quant"], hidden_size, rotary_size=rotary_size, rope="interleaved")
    launch(OPS["qk_rmsnorm_rope"], 1664, head_size=64)
    for hidden_size in (80, 512):
        launch(OPS["qk_rmsnorm_rope_cache"], hidden_size, slots="int32", keep_heads=True)
        launch(OPS["qk_rmsnorm_rope_cache_quant"], hidden_size, keep_heads=True, rounding="output")
        launch(OPS["rope_cache"], hidden_size, slots="int32", keep_heads=True)
        launch(OPS["rope_cache_quant"], hidden_size, keep_heads=True, rounding="output")


def launch_gradients_of_many_rows() -> None:
    """Launch gradients of so many rows that segments have several packs, whose rows take turns in shared memory."""
    for hidden_size, rows in (
        (128, 8300),
        (1024, 1100),
        (2048, 600),
        (5120, 300),
        (8192, 400),
        (12288, 300),
        (16384, 300),
        (20000, 300),
    ):
        launch(OPS["rmsnorm_backward"], hidden_size, rows=rows, residual=True)
        launch(OPS["layernorm_backward"], hidden_size, rows=rows)
        launch(OPS["layernorm_backward"], hidden_size, rows=rows, frozen=True)
    launch(OPS["sum_rows"], 1000, rows=300)


def launch_named() -> None:
    """Launch kernels that calls of few, small tensors do not get."""
    for rows, text in (*OF_MANY_ROWS, *OF_FORMS, *SIDE_BY_SIDE, *TABULATED):
        launch_kernel(text, rows)
    if jitnorm.Target.of_capability(*torch.cuda.get_device_capability()).has_clusters:
        for rows, text in IN_CLUSTERS:
            launch_kernel(text, rows)


def launch_kernel(text: str, rows: int) -> None:
    """Launch a kernel on tensors that fit its interface; in a batch, of two matrices."""
    config = KernelConfig.parse(text)
    matrices = 2 if config.batched else 1
    leading = (matrices, rows) if config.batched else (rows,)
    arguments = [
        tensor(sizes_of(argument.shape, leading, rows, matrices), argument.dtypes[-1], argument.is_output)
        for argument in tensor_arguments(config)
    ]
    numbers = [1e-6] * sum(isinstance(each, ScalarArgument) for each in interface(config))
    target = jitnorm.Target.of_capability(*torch.cuda.get_device_capability())
    jitnorm.get_kernel(text, target)(*arguments, *numbers)


def launch_over_ranks() -> None:
    """Launch calls of two ranks on one GPU, whose kernels wait for each other, if they can run concurrently."""
    if next(_numbers) % PARTS != PART:
        return
    try:
        on_threads(2, call_over_ranks)
    except comm.CommError as error:
        print(f"kernels that wait for each other do not run concurrently here, so the rest are skipped: {error}")


def call_over_ranks(rank: int, exchange: Exchange) -> None:
    """Make all kinds of calls over ranks, on one rank."""
    sizes: dict[str, Any] = {"max_rows": 2 * ROWS, "hidden_size": 4224, "output_bytes": 1 << 20}
    workspace = comm.Workspace.from_exchange(rank, 2, exchange, device=0, **sizes)
    specs = (None, jitnorm.NVFP4.with_layout("linear+128x4"), jitnorm.FP8_TOKEN)
    with torch.cuda.stream(torch.cuda.Stream()):
        for hidden_size, spec in itertools.product((128, 1152, 4224), specs):
            x, residual, weight = random(ROWS, hidden_size), random(ROWS, hidden_size), random(hidden_size)
            options: dict[str, Any] = {"spec": spec, "keep_norm": spec is not None}
            for method in METHODS:
                comm.all_reduce_norm_quantize(x, weight, workspace, residual=residual, method=method, **options)
            own = residual[: ROWS - ROWS // 2] if rank == 0 else residual[: ROWS // 2]
            for method in ("one_shot", "two_shot"):
                comm.reduce_scatter_norm_quantize(x, weight, workspace, residual=own, method=method, **options)
            comm.norm_quantize_all_gather(x, weight, workspace, residual=residual, **options)
        torch.cuda.current_stream().synchronize()
    workspace.check()
    exchange(b"")
    workspace.close()


def launch_cute() -> None:
    """Launch CuTe-DSL kernels: in registers, through shared memory (also with several rows per block), in clusters."""
    if find_spec("cutlass") is None:
        print("CuTe-DSL is not installed: its kernels are skipped")
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


def main() -> None:
    for hidden_size in HIDDEN_SIZES:
        launch_every_op(hidden_size)
    launch_variants()
    launch_gradients_of_many_rows()
    launch_named()
    launch_over_ranks()
    launch_cute()
    torch.cuda.synchronize()
    print(f"launched {len(manager._kernels)} kernels")


if __name__ == "__main__":
    main()
