"""Measures ops at shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from jitnorm.bench.calls import Call
from jitnorm.bench.cases import op_named
from jitnorm.bench.measured import Maker, Measured
from jitnorm.bench.results import JITNORM, Row
from jitnorm.bench.shapes import Shape, shape_text
from jitnorm.bench.tensors import Tensors

_MEMORY = 3  # times the op's bytes: enough for the tensors of any library


def measure(
    op: Measured,
    shapes: Iterable[Shape],
    makers: Mapping[str, Maker],
    device: str,
    leave_out: Callable[[str], None] | None = None,
    values: str = "normal",
) -> Iterator[Row]:
    """Measure an op at each shape: the copy of its bytes, then the calls of each of `makers`.

    Args:
        op: the op.
        shapes: M and H.
        makers: its calls, by implementation.
        device: ``cuda`` or ``cpu``.
        leave_out: called with what is skipped and why: shapes that do not fit in the GPU's memory, and other
            implementations that raise an exception. None: nothing is skipped.
        values: of inputs, one of `VALUES`.

    Raises:
        RuntimeError: a kernel cannot be built, or the device lacks memory.
    """
    from jitnorm.bench.timing import memory

    new = Tensors(device, values)
    for m, h in shapes:
        at = f"{op.name} at {shape_text((m, h))}"
        op_bytes = op.bytes_at(m, h)
        if leave_out and _MEMORY * op_bytes > memory(device):
            leave_out(f"{at}: takes {_MEMORY * op_bytes / 1e9:.0f} GB")
            continue
        copy = copy_time(op_bytes, device)
        for by, make in makers.items():
            try:
                taken, host = _times(make, new, m, h, op_bytes)
            except Exception as error:
                if leave_out is None or by == JITNORM:
                    raise
                leave_out(f"{at} by {by}: {type(error).__name__}: {str(error).strip().partition(chr(10))[0]}")
                continue
            yield Row(op.name, by, m, h, op_bytes, taken, copy, host)


def measure_again(row: Row, device: str, values: str) -> Row:
    """Repeat jitnorm's measurement, and that of the copy of its bytes."""
    op = op_named(row.op)
    copy_time.cache_clear()
    return next(measure(op, [row.shape], {JITNORM: op.make}, device, values=values))


def _times(make: Maker, new: Tensors, m: int, h: int, op_bytes: int) -> tuple[float, float]:
    """Measure the time on the device and on the host."""
    from jitnorm.bench.timing import buffer_count, device_time, host_time

    calls = [keeping(make(new, m, h)) for _ in range(buffer_count(op_bytes))]
    taken = device_time(calls, new.device)
    return taken, host_time(calls[0], taken) if new.device == "cuda" else taken


def keeping(call: Call) -> Call:
    """Wrap a call so that it keeps its results until it is made again.

    Otherwise, calls that allocate, such as all of quack's, would write the same memory one after another, which then
    never leaves the L2 cache, while calls with given outputs have one for each buffer.
    """
    kept: list[Any] = []

    def make_and_keep() -> None:
        kept.clear()
        kept.append(call())

    return make_and_keep


@cache
def copy_time(op_bytes: int, device: str) -> float:
    """Measure a copy, once for all ops that move as many bytes."""
    from jitnorm.bench.timing import copy_calls, device_time

    return device_time(copy_calls(op_bytes, Tensors(device)), device)
