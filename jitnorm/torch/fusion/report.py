"""Fusions of this process, stored with inductor's own counters, which its caches restore."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch._dynamo.utils import counters
from torch.fx import Node

_PREFIX = "jitnorm.torch.fuse "
_FRAME = re.compile(r'File "(.+?)", line (\d+), in (\S+)')
_TORCH = str(Path(torch.__file__).parent)


@dataclass(frozen=True)
class Fusion:
    """A norm in compiled programs, and whether it became one op.

    Attributes:
        op: the op; empty if the norm was left alone.
        config: the op's options, in the text form of a kernel's configuration.
        place: where the program computes the norm: file, line and function.
        unrounded: values that the program rounds to 16 bits and the op does not: ``sum``, ``normalized``, ``norm``.
        reason: why the norm, or else its quantization, is not fused; empty if it is.
        count: how often it is in compiled graphs.
    """

    op: str
    config: str
    place: str
    unrounded: tuple[str, ...]
    reason: str
    count: int = 1

    def __str__(self) -> str:
        what = f"{self.op} {self.config}".strip() or "not fused"
        unrounded = f"; does not round {', '.join(self.unrounded)}" if self.unrounded else ""
        reason = f"; {self.reason}" if self.reason else ""
        return f"{self.count} x {what} at {self.place}{unrounded}{reason}"


def record(fusion: Fusion) -> None:
    """Count what a pass did."""
    counters["inductor"][_PREFIX + json.dumps({**asdict(fusion), "count": 1})] += 1


def fusions() -> list[Fusion]:
    """All norms in programs compiled with `fuse` in this process, fused or not."""
    found = []
    for key, count in counters["inductor"].items():
        if key.startswith(_PREFIX):
            fields = json.loads(key.removeprefix(_PREFIX))
            found.append(Fusion(**{**fields, "unrounded": tuple(fields["unrounded"]), "count": count}))
    return found


def place_of(node: Node) -> str:
    """The line of the program that a node comes from: the innermost outside of torch."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    outside = [frame for frame in frames if not frame[0].startswith(_TORCH)] or frames or [("unknown", "0", "unknown")]
    file, line, function = outside[-1]
    return f"{file}:{line} in {function}"
