"""Times jitnorm's ops on a GPU beside a copy of the same bytes and the peers that are installed.

    python scripts/benchmark.py [--quick] [--json FILE]

Device time is read from replays of CUDA graphs over buffers that together exceed the L2 cache four times, so that
neither Python nor a warm cache is measured: the median of nine replays. The roofline is the time of a copy that moves
the same bytes divided by the op's time. Host time is that of a call with the work queued.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

import jitnorm

Call = Callable[[], Any]
Maker = Callable[[int, int], Call]

L2_BYTES = 60e6
SHAPES = [
    (1, 4096), (16, 7168), (128, 4096), (512, 8192), (1024, 4096), (1024, 8192), (4096, 2048), (4096, 4096),
    (4096, 8192), (16384, 4096), (16384, 8192), (8192, 16384), (4096, 32768), (65536, 1536),
]  # fmt: skip
LARGE_SHAPES = [(4096, 4096), (16384, 8192)]
QUICK_SHAPES = [(1, 4096), (16, 7168), (1024, 4096), (4096, 4096), (16384, 8192), (4096, 32768), (65536, 1536)]


@dataclass(frozen=True)
class Row:
    """One measurement; times in microseconds."""

    op: str
    by: str
    rows: int
    hidden_size: int
    op_bytes: int
    time: float
    copy: float
    host: float

    @property
    def roofline(self) -> float:
        return self.copy / self.time


def buffer_count(op_bytes: float) -> int:
    return max(1, min(24, math.ceil(4 * L2_BYTES / op_bytes)))


def graph_time(calls: list[Call]) -> float:
    """Microseconds a call; the calls are one op over distinct buffers."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for call in calls:
            call()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    rounds = max(1, math.ceil(20 / len(calls)))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(rounds):
            for call in calls:
                call()
    times = []
    for _ in range(11):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / (rounds * len(calls)))
    return sorted(times[2:])[4]


def host_time(call: Call, count: int = 500) -> float:
    for _ in range(50):
        call()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        call()
    elapsed = time.perf_counter() - start
    torch.cuda.synchronize()
    return elapsed / count * 1e6


def copy_calls(op_bytes: int) -> list[Call]:
    """A kernel that reads and writes `op_bytes` in all; copy_ could run on a copy engine."""
    count = max(1, op_bytes // 4)

    def make() -> Call:
        x = random(count)
        y = torch.empty_like(x)
        return lambda: torch.neg(x, out=y)

    return [make() for _ in range(buffer_count(op_bytes))]


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.bfloat16, device="cuda")


def fp8(*shape: int) -> torch.Tensor:
    return torch.empty(*shape, dtype=torch.float8_e4m3fn, device="cuda")


def jitnorm_rmsnorm(m: int, h: int) -> Call:
    x, w = random(m, h), random(h)
    out = torch.empty_like(x)
    return lambda: jitnorm.rmsnorm(x, w, out=out)


def jitnorm_add(m: int, h: int) -> Call:
    x, r, w = random(m, h), random(m, h), random(h)
    return lambda: jitnorm.fused_add_rmsnorm(x, r, w)


def jitnorm_fp8(m: int, h: int) -> Call:
    x, w, out, scale = random(m, h), random(h), fp8(m, h), torch.ones(1, device="cuda")
    return lambda: jitnorm.rmsnorm_quant(out, x, w, scale)


def jitnorm_add_fp8(m: int, h: int) -> Call:
    x, r, w, out, scale = random(m, h), random(m, h), random(h), fp8(m, h), torch.ones(1, device="cuda")
    return lambda: jitnorm.fused_add_rmsnorm_quant(out, x, r, w, scale)


def jitnorm_fp4(block_size: int) -> Maker:
    def make(m: int, h: int) -> Call:
        x, w = random(m, h), random(h)
        codes, scales = jitnorm.rmsnorm_fp4quant(x, w, block_size=block_size)
        return lambda: jitnorm.rmsnorm_fp4quant(x, w, codes, scales, block_size=block_size)

    return make


def jitnorm_add_fp4(m: int, h: int) -> Call:
    x, r, w = random(m, h), random(m, h), random(h)
    codes, scales = jitnorm.add_rmsnorm_fp4quant(x, r, w)
    return lambda: jitnorm.add_rmsnorm_fp4quant(x, r, w, codes, scales)


def jitnorm_general(spec: jitnorm.QuantSpec, *, normalizes: bool) -> Maker:
    """The ops over QuantSpec, which allocate their outputs."""

    def make(m: int, h: int) -> Call:
        x, w = random(m, h), random(h)
        if normalizes:
            return lambda: jitnorm.norm_quantize(x, w, spec=spec)
        return lambda: jitnorm.quantize(x, spec=spec)

    return make


def jitnorm_layernorm(m: int, h: int) -> Call:
    x, gamma, beta = random(m, h), torch.randn(h, device="cuda"), torch.randn(h, device="cuda")
    out = torch.empty_like(x)
    return lambda: jitnorm.layernorm(x, gamma, beta, out=out)


def jitnorm_qk(m: int, h: int) -> Call:
    """In place in a packed tensor of heads of 128: as many queries as values, a quarter of keys."""
    heads = h // 128
    qkv, w = random(m, heads + 2 * (heads // 4), 128), random(128)
    q, k = qkv[:, :heads], qkv[:, heads : heads + heads // 4]
    return lambda: jitnorm.qk_rmsnorm(q, k, w, w, q_out=q, k_out=k)


def jitnorm_gated(spec: jitnorm.QuantSpec, granularity: int | None = None) -> Maker:
    def make(m: int, h: int) -> Call:
        x = random(m, 2 * h)
        return lambda: jitnorm.silu_and_mul_quantize(x, spec=spec, granularity=granularity)

    return make


def jitnorm_mhc(streams: int) -> Maker:
    def make(m: int, h: int) -> Call:
        x, factors = random(m, streams, h), torch.randn(m, streams, device="cuda")
        w = torch.randn(h, device="cuda")
        return lambda: jitnorm.mhc_rmsnorm_quantize(x, factors, w)

    return make


def jitnorm_dequantize(spec: jitnorm.QuantSpec) -> Maker:
    def make(m: int, h: int) -> Call:
        q, out = jitnorm.quantize(random(m, h), spec=spec), random(m, h)
        return lambda: jitnorm.dequantize(q, out=out)

    return make


def jitnorm_of_input(op: Callable[[torch.Tensor], Any]) -> Maker:
    def make(m: int, h: int) -> Call:
        x = random(m, h)
        return lambda: op(x)

    return make


def jitnorm_batched(m: int, h: int) -> Call:
    x, scale = random(8, m // 8, h), torch.ones(1, device="cuda")
    return lambda: jitnorm.nvfp4_batched_quantize(x, scale)


def flashinfer(name: str) -> Maker:
    def make(m: int, h: int) -> Call:
        from flashinfer import norm

        x, r, w, scale = random(m, h), random(m, h), random(h), torch.ones(1, device="cuda")
        out, out8 = torch.empty_like(x), fp8(m, h)
        calls: dict[str, Call] = {
            "rmsnorm": lambda: norm.rmsnorm(x, w, out=out),
            "add": lambda: norm.fused_add_rmsnorm(x, r, w),
            "fp8": lambda: norm.rmsnorm_quant(out8, x, w, scale),
            "add fp8": lambda: norm.fused_add_rmsnorm_quant(out8, x, r, w, scale),
        }
        return calls[name]

    return make


def quack(name: str) -> Maker:
    def make(m: int, h: int) -> Call:
        from quack.rmsnorm import rmsnorm_fwd

        x, r, w = random(m, h), random(m, h), random(h)
        return (lambda: rmsnorm_fwd(x, w)) if name == "rmsnorm" else (lambda: rmsnorm_fwd(x, w, residual=r))

    return make


@dataclass(frozen=True)
class Op:
    name: str
    bytes_per_element: float
    by: dict[str, Maker]
    only_large: bool = False


def ops() -> list[Op]:
    """Each op, the bytes that it moves for each element of bfloat16 input, and who offers it."""
    mxfp8, fp8_token = jitnorm.MXFP8, jitnorm.FP8_TOKEN
    everything = [
        Op("rmsnorm", 4, {"jitnorm": jitnorm_rmsnorm, "flashinfer": flashinfer("rmsnorm"), "quack": quack("rmsnorm")}),
        Op("add_rmsnorm", 8, {"jitnorm": jitnorm_add, "flashinfer": flashinfer("add"), "quack": quack("add")}),
        Op("rmsnorm fp8", 3, {"jitnorm": jitnorm_fp8, "flashinfer": flashinfer("fp8")}),
        Op("add fp8", 7, {"jitnorm": jitnorm_add_fp8, "flashinfer": flashinfer("add fp8")}),
        Op("rmsnorm nvfp4", 2.5625, {"jitnorm": jitnorm_fp4(16)}),
        Op("rmsnorm mxfp4", 2.53125, {"jitnorm": jitnorm_fp4(32)}),
        Op("add nvfp4", 6.5625, {"jitnorm": jitnorm_add_fp4}),
        Op("rmsnorm mxfp8", 3.03125, {"jitnorm": jitnorm_general(mxfp8, normalizes=True)}),
        Op("fp8 token", 3, {"jitnorm": jitnorm_general(fp8_token, normalizes=True)}),
        Op("nvfp4 alone", 2.5625, {"jitnorm": jitnorm_general(jitnorm.NVFP4, normalizes=False)}),
    ]
    everything += [Op(name, size, {"jitnorm": make}, only_large=True) for name, size, make in large_ops()]
    missing = {name for name in ("flashinfer", "quack") if find_spec(name) is None}
    return [
        Op(op.name, op.bytes_per_element, {k: v for k, v in op.by.items() if k not in missing}, op.only_large)
        for op in everything
    ]


def large_ops() -> list[tuple[str, float, Maker]]:
    """The ops that are measured on large tensors only."""
    nvfp4, mxfp4, mxfp8, group = jitnorm.NVFP4, jitnorm.MXFP4, jitnorm.MXFP8, jitnorm.FP8_GROUP
    by_row, by_tensor = nvfp4.with_global_scale("row"), nvfp4.with_global_scale("tensor")
    return [
        ("layernorm", 4, jitnorm_layernorm),
        ("qk_rmsnorm", 5, jitnorm_qk),
        ("rmsnorm fp8 128", 3.03125, jitnorm_general(group, normalizes=True)),
        ("nvfp4 by row", 2.5625, jitnorm_general(by_row, normalizes=True)),
        ("nvfp4 by tensor", 4.5625, jitnorm_general(by_tensor, normalizes=False)),
        ("mxfp4 alone", 2.53125, jitnorm_general(mxfp4, normalizes=False)),
        ("mxfp8 alone", 3.03125, jitnorm_general(mxfp8, normalizes=False)),
        ("fp8 128 alone", 3.03125, jitnorm_general(group, normalizes=False)),
        ("four over six", 2.5625, jitnorm_general(replace(nvfp4, four_over_six=True), normalizes=False)),
        ("nvfp4 batched", 2.5625, jitnorm_batched),
        ("silu nvfp4", 4.5625, jitnorm_gated(nvfp4)),
        ("silu nvfp4 by 8", 4.5625, jitnorm_gated(nvfp4, 8)),
        ("silu mxfp8", 5.03125, jitnorm_gated(mxfp8)),
        ("mhc 4", 8.5625, jitnorm_mhc(4)),
        ("mhc 2", 4.5625, jitnorm_mhc(2)),
        ("decode nvfp4", 2.5625, jitnorm_dequantize(nvfp4)),
        ("decode mxfp8", 3.03125, jitnorm_dequantize(mxfp8)),
        ("weight nvfp4", 2.5625, jitnorm_of_input(jitnorm.quantize_weight)),
        ("amax", 2, jitnorm_of_input(jitnorm.compute_amax)),
    ]


def measure(op: Op, shapes: list[tuple[int, int]]) -> Iterator[Row]:
    for m, h in shapes:
        op_bytes = int(op.bytes_per_element * m * h)
        copy = graph_time(copy_calls(op_bytes))
        for by, make in op.by.items():
            calls = [make(m, h) for _ in range(buffer_count(op_bytes))]
            yield Row(op.name, by, m, h, op_bytes, graph_time(calls), copy, host_time(calls[0]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer shapes")
    parser.add_argument("--json", type=Path, help="where to write all figures")
    options = parser.parse_args()
    torch.manual_seed(0)
    rows = []
    print(f"{'op':15} {'by':10} {'M x H':>14} {'us':>8} {'copy':>8} {'roofline':>8} {'host us':>8}")
    shapes = QUICK_SHAPES if options.quick else SHAPES
    for op in ops():
        for row in measure(op, LARGE_SHAPES if op.only_large else shapes):
            rows.append(row)
            shape = f"{row.rows}x{row.hidden_size}"
            times = f"{row.time:8.2f} {row.copy:8.2f} {row.roofline:8.3f} {row.host:8.2f}"
            print(f"{row.op:15} {row.by:10} {shape:>14} {times}", flush=True)
    if options.json:
        about = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda}
        options.json.write_text(json.dumps({**about, "rows": [asdict(row) for row in rows]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
