"""From ops and shapes to figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from jitnorm.bench.cases import Maker, Op
from jitnorm.bench.results import Row
from jitnorm.bench.shapes import Shape
from jitnorm.bench.tensors import Tensors


def measure(op: Op, shapes: Iterable[Shape], makers: Mapping[str, Maker], device: str) -> Iterator[Row]:
    """Measure an op at each shape: the copy of its bytes, then the calls of each of `makers`.

    Args:
        op: the op.
        shapes: M and H.
        makers: its calls, by who offers it.
        device: ``cuda`` or ``cpu``.

    Raises:
        RuntimeError: a kernel cannot be built, or the device lacks memory.
    """
    from jitnorm.bench.timing import buffer_count, copy_calls, device_time, host_time

    new = Tensors(device)
    for m, h in shapes:
        op_bytes = int(op.bytes_per_element * m * h)
        copy = device_time(copy_calls(op_bytes, new), device)
        for by, make in makers.items():
            calls = [make(new, m, h) for _ in range(buffer_count(op_bytes))]
            taken = device_time(calls, device)
            yield Row(op.name, by, m, h, op_bytes, taken, copy, host_time(calls[0]) if device == "cuda" else taken)
