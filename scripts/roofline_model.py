"""Predicts, from an op's machine code, how close it comes to a copy of the same bytes; see docs/performance.md.

    python scripts/roofline_model.py                   # the tables of docs/performance.md
    python scripts/roofline_model.py --markdown        # writes them into that page
    python scripts/roofline_model.py --measured FILE   # predicted beside measured

FILE is what `jitnorm bench --json FILE` or `scripts/benchmark` wrote. No GPU is needed: kernels are
compiled by NVRTC and disassembled by nvdisasm (pip install nvidia-cuda-nvdisasm). See machine_code.py for what is
counted and roofline.py for the model.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.generator import generate
from jitnorm.kernels.numerics import CHUNK_SIZE
from jitnorm.kernels.row_classes import class_of
from jitnorm.kernels.schedule import row_schedule
from jitnorm.kernels.target import Target
from machine_code import PIPES, count, executed
from roofline import GPUS, Gpu, Prediction, copy_time, predict

from jitnorm.bench.cases import op_named
from jitnorm.toolchains.nvrtc import Nvrtc
from jitnorm.toolchains.search import on_path, on_sys_path
from jitnorm.tuning import without_user_tables
from jitnorm.warm.expand import configs_of

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "performance.md"
MEASURED = ROOT / "docs" / "benchmarks" / "h200-2026-11-22.json"
MARK = "<!-- From here on scripts/roofline_model.py --markdown writes this page. -->\n"
ROWS = 16384
HIDDEN_SIZES = (4096, 8192)
CALIBRATED = ((16384, 8192), (4096, 4096))
# Below this, latency dominates, which the model ignores.
FEWEST_ELEMENTS = 1 << 24

# Ops of `jitnorm bench`.
OPS = (
    "rmsnorm", "add_rmsnorm", "rmsnorm fp8", "add fp8", "fp8 token", "rmsnorm mxfp8", "rmsnorm nvfp4", "add nvfp4",
    "rmsnorm mxfp4", "add mxfp4", "nvfp4 alone", "silu nvfp4", "four over six",
)  # fmt: skip


def config_of(op: str, rows: int, hidden_size: int, target: Target) -> KernelConfig:
    """The kernel that a call with contiguous bfloat16 tensors runs without tuning."""
    with without_user_tables():
        measured, row_class = op_named(op), class_of(rows, hidden_size)
        chosen = {**measured.choices, "hidden_size": hidden_size, "row_class": row_class}
        (config,) = configs_of(measured.op, chosen, target)
    return config


@cache
def per_element(config: KernelConfig, target: Target) -> dict[str, float]:
    """Instructions per element, by pipe; ValueError if the kernel reloads rows or has partial chunks."""
    schedule = row_schedule(config, target)
    if not schedule.holds_row or config.hidden_size % CHUNK_SIZE:
        raise ValueError(f"config: {config} reloads rows or loads partial chunks, which is not counted")
    rounds = schedule.chunks_per_lane // schedule.chunks_at_once
    trips = rounds if rounds > 1 else None
    counts = count(executed(listing_of(config, target), trips))
    elements = config.hidden_size * schedule.rows_at_once / schedule.threads_per_row
    return {name: number / elements for name, number in counts.items()}


def listing_of(config: KernelConfig, target: Target) -> str:
    """The machine code of a kernel, as nvdisasm prints it."""
    nvdisasm = on_sys_path("nvidia/cu13/bin/nvdisasm") or on_path("nvdisasm")
    if nvdisasm is None:
        raise SystemExit("nvdisasm is missing: pip install nvidia-cuda-nvdisasm")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(Nvrtc().compile(generate(config, target).text, target))
        file.flush()
        command = [str(nvdisasm), "--print-code", file.name]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def counts_of(op: str, rows: int, hidden_size: int, target_name: str) -> dict[str, float]:
    target = Target(target_name)
    return per_element(config_of(op, rows, hidden_size, target), target)


def prediction(op: str, rows: int, hidden_size: int, gpu: Gpu, copy: float | None = None) -> Prediction:
    """Predict the time of an op on a GPU; `copy` is the measured time of a copy, if any."""
    elements = rows * hidden_size
    counts = counts_of(op, rows, hidden_size, gpu.target)
    return predict(counts, elements, copy or copy_time(op_named(op).bytes_at(rows, hidden_size), gpu), gpu)


def tables() -> str:
    """The generated part of docs/performance.md."""
    wanted = [(op, ROWS, size, target) for op in OPS for size in HIDDEN_SIZES for target in ("sm_90a", "sm_100a")]
    wanted += [(op, *shape, "sm_90a") for op in OPS for shape in CALIBRATED]
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda each: counts_of(*each), wanted))
    return "\n".join([*_count_table(), "", *_prediction_table(), "", *_calibration_table(), ""])


def count_row(op: str, hidden_size: int) -> str:
    """A row of the table of instructions."""
    cells = [op, str(hidden_size)]
    for target in ("sm_90a", "sm_100a"):
        counts = counts_of(op, ROWS, hidden_size, target)
        cells += [f"{counts.get(name, 0):.1f}" for name in ("issue", *PIPES)]
    return _row(cells)


def prediction_row(op: str, hidden_size: int) -> str:
    """A row of the table of predictions."""
    b200 = prediction(op, ROWS, hidden_size, GPUS["B200"])
    cells = [op, str(hidden_size), f"{b200.copy:.1f}"]
    for found in (b200, prediction(op, ROWS, hidden_size, GPUS["GB200"])):
        cells += [f"{found.instructions:.1f}", f"{found.roofline:.2f}", found.limit]
    return _row(cells)


def _count_table() -> Iterator[str]:
    yield "## Instructions per element"
    yield ""
    yield f"{ROWS} rows. *All* are issue slots; LSU is in words of 4 bytes. Built by"
    yield f"{Nvrtc().identity()}."
    yield ""
    pipes = ["all", *(pipe.upper() for pipe in PIPES)]
    yield from _head(["op", "H", *(f"sm_90a {pipes[0]}", *pipes[1:]), *(f"sm_100a {pipes[0]}", *pipes[1:])])
    yield from (count_row(op, size) for op in OPS for size in HIDDEN_SIZES)


def _prediction_table() -> Iterator[str]:
    yield "## Predicted for Blackwell"
    yield ""
    yield f"{ROWS} rows; nothing here was measured. Times of the copy and of the instructions are in microseconds."
    yield ""
    gpus = (f"{name} {what}" for name in ("B200", "GB200") for what in ("instructions", "roofline", "limit"))
    yield from _head(["op", "H", "copy", *gpus])
    yield from (prediction_row(op, size) for op in OPS for size in HIDDEN_SIZES)


def _calibration_table() -> Iterator[str]:
    yield "## The model beside an H200"
    yield ""
    yield f"Roofline as predicted, and as measured in `{MEASURED.relative_to(ROOT)}`; *limit* is the model's."
    yield ""
    shapes = [f"{m} x {h}: {what}" for m, h in CALIBRATED for what in ("predicted", "measured", "limit")]
    yield from _head(["op", *shapes])
    compared = {(row["op"], row["rows"], row["hidden_size"]): (row, found) for row, found in beside(MEASURED)}
    for op in OPS:
        pairs = [compared[op, m, h] for m, h in CALIBRATED if (op, m, h) in compared]
        if pairs:
            cells = [[f"{p.roofline:.2f}", f"{row['copy'] / row['time']:.2f}", p.limit] for row, p in pairs]
            yield _row([op, *(cell for three in cells for cell in three)])


def _head(names: list[str]) -> Iterator[str]:
    yield _row(names)
    yield _row(["---"] * len(names))


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def beside(file: Path) -> Iterator[tuple[dict[str, Any], Prediction]]:
    """The rows of a measurement that the model covers, with its predictions from the times of their copies."""
    measured = json.loads(file.read_text(encoding="utf-8"))
    gpu = next((gpu for name, gpu in GPUS.items() if name in measured["device"]), None)
    if gpu is None:
        raise SystemExit(f"{file}: measured on {measured['device']!r}; there are figures of {', '.join(GPUS)}")
    for row in measured["rows"]:
        is_large = row["rows"] * row["hidden_size"] >= FEWEST_ELEMENTS
        if row["by"] == "jitnorm" and row["op"] in OPS and is_large:
            try:
                found = prediction(row["op"], row["rows"], row["hidden_size"], gpu, row["copy"])
            except ValueError:  # of a kernel that is not counted
                continue
            yield row, found


def print_beside(file: Path) -> None:
    print(f"{'op':15} {'M x H':>14} {'us':>8} {'copy':>8} {'measured':>8} {'predicted':>9}  limit")
    covered = list(beside(file))
    for row, found in covered:
        shape = f"{row['rows']}x{row['hidden_size']}"
        times = f"{row['time']:8.2f} {row['copy']:8.2f} {row['copy'] / row['time']:8.3f} {found.roofline:9.3f}"
        print(f"{row['op']:15} {shape:>14} {times}  {found.limit}")
    others = len(json.loads(file.read_text(encoding="utf-8"))["rows"]) - len(covered)
    print(f"Left out: {others} rows of other ops, of peers, or of fewer than {FEWEST_ELEMENTS} elements.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--markdown", action="store_true", help=f"write the tables into {PAGE.relative_to(ROOT)}")
    parser.add_argument("--measured", type=Path, help="a benchmark's JSON, to print predicted beside measured")
    options = parser.parse_args()
    if options.measured:
        print_beside(options.measured)
    elif options.markdown:
        by_hand, _, _ = PAGE.read_text(encoding="utf-8").partition(MARK)
        PAGE.write_text(f"{by_hand}{MARK}\n{tables()}", encoding="utf-8")
    else:
        print(tables(), end="")


if __name__ == "__main__":
    main()
