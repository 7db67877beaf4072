"""Measures calls with drawn ops, options, dtypes, lengths and addresses, and lists those that are farthest from a copy.

    python scripts/drawn_calls.py SEED [--count 100] [--ops PART] [--json FILE] [--against FILE]

What is tuned for a list of cases may be slow at any other: nobody chooses these. Each call is measured on the GPU, or
on the CPU if there is none, beside a copy of its bytes. `--against` compares with what `--json FILE` wrote for the same
seed, perhaps by another version: how long calls take, and whether they write the same bytes.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import torch
from jitnorm.kernels.dtypes import DTYPES

from jitnorm.bench.measure import copy_time, keeping
from jitnorm.bench.measured import MATRICES, Measured, op_of
from jitnorm.bench.tensors import Tensors
from jitnorm.bench.timing import buffer_count, device_time
from jitnorm.catalogue import OPS
from jitnorm.catalogue.op import Op

Found = dict[str, Any]
"""A call and what was measured, as JSON."""
# The least and the most elements of a call, and of a row, as exponents of two.
_ELEMENTS, _LENGTHS = (21.0, 25.0), (7.0, 14.5)
# Bytes to which inputs are aligned; 0 for lengths that are no multiple of 16, whose rows are aligned as these allow.
_ADDRESSES = (16, 16, 16, 8, 4, 2, 0)
_QUANTS = ("fp8", "fp8_token", "fp8_group", "int8_token", "nvfp4", "mxfp4", "mxfp8", "e4m3/64/f32", "e2m1/32/e4m3")
_REPLAYS = 5
_WORST = 20


@dataclass(frozen=True)
class DrawnCall:
    """A call of an op.

    Attributes:
        op: the op with its choices.
        rows: rows of its input.
        hidden_size: elements of each.
        address: bytes to which inputs are aligned; 0 for lengths that are no multiple of 16.
    """

    op: Measured
    rows: int
    hidden_size: int
    address: int

    def __str__(self) -> str:
        choices = ", ".join(f"{name}={value}" for name, value in self.op.choices.items())
        return f"{self.op.op}({choices}) {self.rows}x{self.hidden_size} by {self.address}"


def draw(seed: int, ops: str = "", elements: tuple[float, float] = _ELEMENTS) -> Iterator[DrawnCall]:
    """Draw calls without end, of ops whose names contain a part."""
    numbers = random.Random(seed)
    names = [name for name, op in OPS.items() if op.computes and ops in name]
    if not names:
        raise ValueError(f"ops: is {ops!r}, which no name of an op contains")
    while True:
        call = _drawn(numbers, OPS[numbers.choice(names)], elements)
        if call is not None:
            yield call


def _drawn(numbers: random.Random, op: Op, elements: tuple[float, float]) -> DrawnCall | None:
    """A call of an op; None if what was drawn does not go together."""
    choices = {name: _choice(numbers, op, name, default) for name, default in op.choices.items()}
    choices = {name: value for name, value in choices.items() if value != op.choices[name]}
    if "input" not in op.choices:
        choices["input"] = numbers.choice(("bfloat16", "bfloat16", "float16", "float32"))
    address = numbers.choice(_ADDRESSES)
    hidden_size = _length(numbers, address)
    rows = int(2 ** numbers.uniform(*elements)) // hidden_size // MATRICES * MATRICES
    aligned = max(address or 16, DTYPES[choices.get("input", "bfloat16")].bytes)
    try:
        measured = op_of(op.name, op.name, vector_bytes=aligned, **choices)
        measured.config(hidden_size)
    except ValueError:
        return None
    fits = rows and not any(at % of for at, of in zip((rows, hidden_size), measured.multiples, strict=True))
    is_counted = measured.bytes_per_element > 0  # those of ``sum_rows`` are not
    return DrawnCall(measured, rows, hidden_size, address) if fits and is_counted else None


def _length(numbers: random.Random, address: int) -> int:
    """The length of rows, evenly on a logarithmic scale."""
    length = max(128, int(2 ** numbers.uniform(*_LENGTHS)))
    whole = length // 16 * 16 if numbers.random() < 0.7 else length // 128 * 128
    return whole if address else whole + numbers.randrange(1, 16)


def _choice(numbers: random.Random, op: Op, name: str, default: Any) -> Any:
    """A choice of an op's caller, most often the default."""
    if name == "quant":
        return numbers.choice([default, *map(str, op.formats)] if op.formats else _QUANTS)
    if name in ("layout", "global_scale") and (allowed := getattr(op, f"{name}s")):
        return numbers.choice(allowed)
    if name == "weight":
        return numbers.choice((default, default, "float32"))
    if name in ("unit_bias", "keep_norm", "residual", "frozen", "gate_bias"):
        return numbers.random() < 0.3
    return default


def measure(call: DrawnCall, device: str, number: int) -> Found:
    """Measure a call, and what it writes for inputs that its number determines."""
    new, moved = Tensors(device), call.op.bytes_at(call.rows, call.hidden_size)
    torch.manual_seed(number)
    written = _digest(call.op.make(new, call.rows, call.hidden_size))
    calls = [keeping(call.op.make(new, call.rows, call.hidden_size)) for _ in range(buffer_count(moved))]
    taken = device_time(calls, device, _REPLAYS)
    return {
        "call": str(call), "address": call.address, "digest": written, "us": taken,
        "share": copy_time(round(moved, -5) or moved, device) / taken,
    }  # fmt: skip


def _digest(call: Any) -> int:
    """A number that depends on each byte of a call's tensors, once it has been made."""
    return sum(map(_sum_of_bytes, _tensors_of([call(), call.keywords])))


def _tensors_of(found: Any) -> Iterator[torch.Tensor]:
    if isinstance(found, torch.Tensor):
        yield found
    elif isinstance(found, dict):
        yield from _tensors_of(list(found.values()))
    elif isinstance(found, list | tuple):
        for each in found:
            yield from _tensors_of(each)
    elif hasattr(found, "spec"):
        yield from _tensors_of([getattr(found, name) for name in ("data", "scale", "row_scale", "tensor_scale")])


def _sum_of_bytes(tensor: torch.Tensor) -> int:
    data = tensor.detach().contiguous().view(torch.uint8).flatten().long()
    return int((data * (torch.arange(len(data), device=data.device) % 65521 + 1)).sum())


def report(found: list[Found], before: dict[str, Found]) -> bool:
    """Print the calls farthest from a copy, the mean by address, and the comparison; whether bytes are the same."""
    for each in sorted(found, key=lambda each: each["share"])[:_WORST]:
        print(f"{each['share']:.2f} {each['us']:8.1f} us  {each['call']}")
    for address in sorted({each["address"] for each in found}):
        at = [each for each in found if each["address"] == address]
        share = geometric_mean(each["share"] for each in at)
        of = [each["us"] / before[each["call"]]["us"] for each in at if each["call"] in before]
        took = f", {geometric_mean(of):.3f} of the time before, {max(of):.2f} at most" if of else ""
        where = f"by {address}" if address else "of other lengths"
        print(f"{where}: {len(at)} calls, {share:.3f} of a copy in the mean{took}")
    differ = [call for each in found if (call := each["call"]) in before and each["digest"] != before[call]["digest"]]
    for call in differ:
        print(f"other bytes: {call}")
    return not differ


def main(arguments: list[str] | None = None) -> int:
    """Run the command; 1 if bytes differ from those before, else 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seed", type=int)
    parser.add_argument("--count", type=int, default=100, help="how many calls; default: 100")
    parser.add_argument("--ops", default="", metavar="PART", help="only ops whose names contain it")
    parser.add_argument("--elements", nargs=2, type=float, default=_ELEMENTS, help="of a call, as powers of two")
    parser.add_argument("--json", type=Path, help="where to write what was found")
    parser.add_argument("--against", type=Path, help="what to compare with")
    chosen = parser.parse_args(arguments)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    found: list[Found] = []
    for number, call in enumerate(islice(draw(chosen.seed, chosen.ops, tuple(chosen.elements)), chosen.count)):
        try:
            found.append(measure(call, device, number))
        except ValueError as error:
            print(f"left out: {call}: {error}", file=sys.stderr)
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    before = json.loads(chosen.against.read_text(encoding="utf-8")) if chosen.against else []
    return 0 if report(found, {each["call"]: each for each in before}) else 1


if __name__ == "__main__":
    sys.exit(main())
