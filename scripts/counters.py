"""Shows, with ncu's counters, what kernels wait for where an op is slower than a copy of the same bytes.

    python scripts/counters.py [OP:MxH...]    names from jitnorm bench, such as "rmsnorm nvfp4:16384x8192"

Needs access to the GPU's counters, and ncu on PATH. Prints a Markdown table: microseconds under ncu, at its clocks and
with a cold cache; DRAM bytes per byte of the op; shares of the peak, for DRAM's throughput, issue slots and
pipelines, while a multiprocessor is busy; resident warps; instructions per element.
"""

from __future__ import annotations

import csv
import io
import subprocess
import sys

CELLS = (
    "rmsnorm:16384x8192", "add_rmsnorm:16384x8192", "add_rmsnorm:512x8192", "rmsnorm fp8:1024x8192",
    "rmsnorm nvfp4:16384x8192", "rmsnorm nvfp4:4096x32768", "rmsnorm mxfp4:16384x8192", "rmsnorm mxfp4:4096x32768",
    "rmsnorm nvfp4:512x8192", "add nvfp4:16384x8192", "nvfp4 by row:16384x8192", "layernorm:16384x8192",
    "mhc 2:16384x8192", "four over six:16384x8192", "silu nvfp4:16384x8192",
)  # fmt: skip
_BUSY = "avg.pct_of_peak_sustained_active"
METRICS = {
    "us": "gpu__time_duration.sum",
    "DRAM": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "read": "dram__bytes_read.sum",
    "written": "dram__bytes_write.sum",
    "issue": f"smsp__issue_active.{_BUSY}",
    "ALU": f"sm__inst_executed_pipe_alu.{_BUSY}",
    "FMA": f"sm__inst_executed_pipe_fma.{_BUSY}",
    "LSU": f"l1tex__data_pipe_lsu_wavefronts.{_BUSY}",
    "warps": f"sm__warps_active.{_BUSY}",
    "registers": "launch__registers_per_thread",
    "instructions": "smsp__thread_inst_executed.sum",
}


def main(cells: list[str]) -> None:
    command = [
        *("ncu", "--csv", "--clock-control", "none", "--print-units", "base", "--profile-from-start", "off"),
        *("--metrics", ",".join(METRICS.values()), sys.executable, __file__, "--run", *cells),
    ]
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=600).stdout
    lines = printed.splitlines()
    header = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if header is None:
        sys.exit(f"ncu counted nothing:\n{printed[-2000:]}")
    by_launch: dict[str, dict[str, float]] = {}
    for row in csv.DictReader(io.StringIO("\n".join(lines[header:]))):
        by_launch.setdefault(row["ID"], {})[row["Metric Name"]] = float(row["Metric Value"].replace(",", ""))
    launches = list(by_launch.values())
    if len(launches) != len(cells):
        sys.exit(f"ncu saw {len(launches)} launches, not one of each of {len(cells)} ops")
    print("| op | us | bytes | DRAM | issue | ALU | FMA | LSU | warps | registers | instructions |")
    print("| --- |" + " --- |" * 10)
    for cell, launch in zip(cells, launches, strict=True):
        print(row_text(cell, {name: launch[metric] for name, metric in METRICS.items()}))


def row_text(cell: str, found: dict[str, float]) -> str:
    from jitnorm.bench.cases import op_named

    name, rows, columns = parsed(cell)
    op = op_named(name)
    elements = rows * columns
    moved = (found["read"] + found["written"]) / op.bytes_at(rows, columns)
    shares = " | ".join(f"{found[name]:.0f} %" for name in ("DRAM", "issue", "ALU", "FMA", "LSU", "warps"))
    return (
        f"| {name} {rows}x{columns} | {found['us'] / 1e3:.1f} | {moved:.2f} | {shares} | {found['registers']:.0f} "
        f"| {found['instructions'] / elements:.1f} |"
    )


def parsed(cell: str) -> tuple[str, int, int]:
    name, _, shape = cell.rpartition(":")
    rows, _, columns = shape.partition("x")
    return name, int(rows), int(columns)


def run(cells: list[str]) -> None:
    """Run each op twice; the second call is counted."""
    import torch

    from jitnorm.bench.cases import op_named
    from jitnorm.bench.peers import makers
    from jitnorm.bench.tensors import Tensors

    for cell in cells:
        name, rows, columns = parsed(cell)
        op = op_named(name)
        call = makers(op, ["jitnorm"])["jitnorm"](Tensors("cuda"), rows, columns)
        call()
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        call()
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run(sys.argv[2:])
    else:
        main(sys.argv[1:] or list(CELLS))
