"""Times each op with each backend, and a copy of the same bytes; docs/benchmarking.md explains the method.

    python scripts/backends.py [--json FILE] [--text FILE] [--backends nvrtc cute]

Each backend is measured in a separate process without kernels of other backends. Ops that a backend lacks are built by
another, named in the column `built by`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from jitnorm.bench.cases import OPS
from jitnorm.bench.measure import measure
from jitnorm.bench.results import Row
from jitnorm.store import user_store

BACKENDS = ("nvrtc", "nvcc", "cute")
SHAPES = [(16, 7168), (1024, 4096), (4096, 4096), (16384, 8192), (4096, 32768)]
MEASURED = {
    "rmsnorm", "add_rmsnorm", "layernorm", "rmsnorm fp8", "add fp8", "rmsnorm nvfp4", "rmsnorm mxfp4", "add nvfp4",
    "rmsnorm mxfp8", "fp8 token", "rmsnorm fp8 128", "nvfp4 by row", "nvfp4 alone", "mxfp4 alone", "mxfp8 alone",
}  # fmt: skip
TIME_LIMIT = 1800.0


def measure_all() -> Iterator[dict[str, Any]]:
    """Measure the backend that JITNORM_BACKEND names."""
    torch.manual_seed(0)
    known: set[str] = set()
    for op in (op for op in OPS if op.name in MEASURED):
        for row in measure(op, SHAPES, {"": op.make}, "cuda"):
            built = {entry.key: entry.manifest.get("backend") for entry in user_store().entries()}
            new = {str(built[key]) for key in built.keys() - known} - {"None"}
            known |= built.keys()
            yield {**asdict(row), "by": os.environ["JITNORM_BACKEND"], "built_by": "+".join(sorted(new))}


def measure_in_process(backend: str, folder: Path) -> list[dict[str, Any]]:
    """Measure one backend in a process with an empty cache."""
    path = folder / f"{backend}.json"
    environment = {**os.environ, "JITNORM_BACKEND": backend, "JITNORM_CACHE_DIR": str(folder / backend)}
    command = [sys.executable, __file__, "--worker", str(path)]
    subprocess.run(command, env=environment, check=True, timeout=TIME_LIMIT)
    found: list[dict[str, Any]] = json.loads(path.read_text())
    return found


def table(rows: list[dict[str, Any]], backends: list[str]) -> Iterator[str]:
    """Tabulate the roofline of each backend, and its geometric mean."""
    yield f"{'op':15} {'M x H':>14} " + " ".join(f"{backend + ' us':>10} {'roofline':>9}" for backend in backends)
    cells: dict[tuple[str, int, int], dict[str, Row]] = {}
    for each in rows:
        row = Row(**{name: value for name, value in each.items() if name != "built_by"})
        cells.setdefault((row.op, row.rows, row.hidden_size), {})[row.by] = row
    for (op, m, h), by in cells.items():
        figures = " ".join(f"{by[name].time:10.2f} {by[name].roofline:9.3f}" for name in backends)
        yield f"{op:15} {f'{m}x{h}':>14} {figures}"
    means = []
    for name in backends:
        logarithms = [math.log(by[name].roofline) for by in cells.values()]
        means.append(f"{'':10} {math.exp(sum(logarithms) / len(logarithms)):9.3f}")
    yield f"{'geometric mean':30} " + " ".join(means)
    missing = sorted({(each["by"], each["op"]) for each in rows if each["built_by"] not in ("", each["by"])})
    yield from (f"{op}: {backend} lacks it; another backend built it" for backend, op in missing)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="where to write all figures")
    parser.add_argument("--text", type=Path, help="where to write the table")
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=["nvrtc", "cute"])
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        options.worker.write_text(json.dumps(list(measure_all())))
        return
    with tempfile.TemporaryDirectory(prefix="jitnorm-backends-") as folder:
        rows = [row for backend in options.backends for row in measure_in_process(backend, Path(folder))]
    text = "\n".join(table(rows, options.backends)) + "\n"
    print(text, end="")
    if options.text:
        options.text.write_text(text)
    if options.json:
        about = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda}
        options.json.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
