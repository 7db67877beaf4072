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
from dataclasses import asdict, dataclass
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
    missing = {name for name in ("flashinfer", "quack") if find_spec(name) is None}
    return [
        Op(op.name, op.bytes_per_element, {k: v for k, v in op.by.items() if k not in missing}) for op in everything
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
    print(f"{'op':14} {'by':10} {'M x H':>14} {'us':>8} {'copy':>8} {'roofline':>8} {'host us':>8}")
    for op in ops():
        for row in measure(op, QUICK_SHAPES if options.quick else SHAPES):
            rows.append(row)
            shape = f"{row.rows}x{row.hidden_size}"
            times = f"{row.time:8.2f} {row.copy:8.2f} {row.roofline:8.3f} {row.host:8.2f}"
            print(f"{row.op:14} {row.by:10} {shape:>14} {times}", flush=True)
    if options.json:
        about = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda}
        options.json.write_text(json.dumps({**about, "rows": [asdict(row) for row in rows]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
