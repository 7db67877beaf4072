"""Results of a benchmark, and the files that store them."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jitnorm.bench.shapes import Shape

JITNORM = "jitnorm"


@dataclass(frozen=True)
class Row:
    """One measurement; times in microseconds.

    Attributes:
        op: the name of the op.
        by: the implementation, ``jitnorm`` or a peer.
        rows: M.
        hidden_size: H.
        op_bytes: bytes that the op reads and writes.
        time: device time of the op.
        copy: device time of a copy of as many bytes in the same run.
        host: time until the call returns.
    """

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
        """The fraction of the copy's speed that the op reaches."""
        return self.copy / self.time

    @property
    def throughput(self) -> float:
        """Throughput in TB/s."""
        return self.op_bytes / self.time / 1e6

    @property
    def shape(self) -> Shape:
        """M and H."""
        return self.rows, self.hidden_size


@dataclass(frozen=True)
class Setup:
    """The setup of a run.

    Attributes:
        date: in ISO format.
        device: the name of the GPU or processor.
        driver: the version of the GPU's driver; empty for the CPU.
        versions: versions of jitnorm, torch, CUDA and the peers.
        values: of inputs, one of `tensors.VALUES`.
    """

    date: str
    device: str
    driver: str
    versions: dict[str, str]
    values: str = "normal"

    @property
    def is_gpu(self) -> bool:
        """Whether a GPU was measured."""
        return bool(self.driver)


@dataclass(frozen=True)
class Results:
    """All results of one run."""

    setup: Setup
    rows: tuple[Row, ...]


def to_json(results: Results) -> str:
    """Encode a file of results: one row per line, times to six digits; values of inputs only if not normal."""
    setup = {name: value for name, value in asdict(results.setup).items() if (name, value) != ("values", "normal")}
    head = json.dumps(setup, indent=1).removesuffix("\n}")
    rows = ",\n".join(f"  {json.dumps(_rounded(row))}" for row in results.rows)
    return f'{head},\n "rows": [\n{rows}\n ]\n}}\n'


def _rounded(row: Row) -> dict[str, Any]:
    return {name: float(f"{value:.6g}") if isinstance(value, float) else value for name, value in asdict(row).items()}


def write(results: Results, path: Path) -> None:
    """Write a file of results atomically, creating its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(to_json(results), encoding="utf-8")
    draft.replace(path)


def read(path: Path) -> Results:
    """Read the results in a file.

    Raises:
        ValueError: it cannot be read, or is not a file of results.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        rows = tuple(Row(**row) for row in content.pop("rows"))
        return Results(Setup(**content), rows)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"cannot read {path}: {error}; expected a file from jitnorm bench --json") from None
