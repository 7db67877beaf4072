"""Results of a benchmark, and their files."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from jitnorm.bench.shapes import Shape

JITNORM = "jitnorm"


@dataclass(frozen=True)
class Row:
    """One measurement; times in microseconds.

    Attributes:
        op: the name of the op.
        by: who offers it, ``jitnorm`` or a peer.
        rows: M.
        hidden_size: H.
        op_bytes: what the op reads and writes.
        time: that the op takes on the device.
        copy: that a copy of as many bytes took in the same run.
        host: until the call returns.
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
        """The part of the copy's speed that the op reaches."""
        return self.copy / self.time

    @property
    def throughput(self) -> float:
        """In TB/s."""
        return self.op_bytes / self.time / 1e6

    @property
    def shape(self) -> Shape:
        """M and H."""
        return self.rows, self.hidden_size


@dataclass(frozen=True)
class Setup:
    """What was measured with, when and where.

    Attributes:
        date: in ISO's form.
        device: the name of the GPU or of the processor.
        driver: the version of the GPU's; empty for the CPU.
        versions: of jitnorm, torch, CUDA and the peers.
    """

    date: str
    device: str
    driver: str
    versions: dict[str, str]


@dataclass(frozen=True)
class Results:
    """All figures of one run."""

    setup: Setup
    rows: tuple[Row, ...]


def to_json(results: Results) -> str:
    """The content of a file of results."""
    return json.dumps({**asdict(results.setup), "rows": [asdict(row) for row in results.rows]}, indent=1) + "\n"


def write(results: Results, path: Path) -> None:
    """Write a file of results, whole or not at all; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(to_json(results), encoding="utf-8")
    draft.replace(path)


def read(path: Path) -> Results:
    """The results in a file.

    Raises:
        ValueError: it cannot be read, or holds something else.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        rows = tuple(Row(**row) for row in content.pop("rows"))
        return Results(Setup(**content), rows)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"cannot read {path}: {error}; it has to be a file that jitnorm bench --json wrote") from None
