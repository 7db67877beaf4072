"""Measures the methods of sums over ranks, on ranks that are processes: `jitnorm tune-comm`."""

from __future__ import annotations

import json
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from jitnorm.call_config import config_of_call
from jitnorm.catalogue.all_reduce import ALL_REDUCE_NORM_QUANTIZE
from jitnorm.comm import Workspace, all_reduce_norm_quantize
from jitnorm.comm.calls import unfused
from jitnorm.comm.choices import METHODS, Entry, code_bits, device_name
from jitnorm.comm.layout import Layout
from jitnorm.dispatch import rounded_dispatcher
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.quant_spec import FP8_TOKEN, NVFP4, QuantSpec
from jitnorm.kernels.row_classes import class_of
from jitnorm.kernels.target import Target
from jitnorm.quantized import QuantizedTensor
from jitnorm.tune.processes import Exchange
from jitnorm.tune.replays import Replay, graph_replay, host_replay

FORMATS: dict[str, QuantSpec | None] = {"none": None, "fp8": FP8_TOKEN, "nvfp4": NVFP4.with_layout("128x4")}
"""One for each number of bits of a code."""
HIDDEN_SIZES = {"cuda": (2048, 4096, 7168), "cpu": (512,)}
ROWS = {"cuda": (1, 16, 64, 128, 256, 512, 1024, 2048, 4096, 16384), "cpu": (1, 16, 64)}
_DTYPE, _DTYPE_BYTES = "float16", 2
# Larger inputs are not sent to all ranks.
_MOST_ONE_SHOT_BYTES = 16 << 20
_DRAWN, _MOST_DRAWN = 12, {"cuda": 14, "cpu": 6}  # as a power of 2
_REPEATS = 7
_GRAPH_MICROSECONDS = {"cuda": 1500.0, "cpu": 1.0}
_DEADLINE = 60.0


@dataclass(frozen=True)
class Wanted:
    """A request for measurements.

    Attributes:
        device: ``cuda`` or ``cpu``.
        ranks: how many.
        hidden_sizes: elements of rows.
        formats: names out of `FORMATS`.
        rows: of the calls, ascending.
    """

    device: str
    ranks: int
    hidden_sizes: tuple[int, ...]
    formats: tuple[str, ...]
    rows: tuple[int, ...]

    def kernels(self, target: Target) -> list[KernelConfig]:
        """The kernels that the calls run, so that they can be built ahead."""
        calls = product(self.hidden_sizes, self.formats, self.rows)
        classes = dict.fromkeys((size, name, class_of(rows, size)) for size, name, rows in calls)
        return [
            *dict.fromkeys(
                config_of_call(
                    options, target, hidden_size=size, row_class=row_class, input=_DTYPE,
                    weight=_DTYPE if options["op"] == "rmsnorm" else "",
                )
                for size, name, row_class in classes
                for options in _options(FORMATS[name], self.ranks)
            )
        ]  # fmt: skip


def drawn_rows(device: str, seed: int) -> tuple[int, ...]:
    """Random numbers of rows, the same for the same seed, evenly from each power of 2 on, and 1."""
    chance = random.Random(seed)
    return tuple(sorted({1, *(int(2 ** chance.uniform(0, _MOST_DRAWN[device])) for _ in range(_DRAWN))}))


def _options(spec: QuantSpec | None, ranks: int) -> Iterator[Mapping[str, Any]]:
    """The options of all kernels of calls with a format."""
    common = (ranks, "rmsnorm", spec, True, False, False, False, False, True, True)
    one_shot, two_shot = (
        rounded_dispatcher(ALL_REDUCE_NORM_QUANTIZE, None, "once", method, *common) for method in METHODS[:2]
    )
    yield from (each.options for each in (one_shot, two_shot, *unfused(two_shot)))


def measure(exchange: Exchange, wanted: Wanted, seconds: float, driver: str, date: str) -> list[Entry]:
    """Measure all calls that the time allows, on each rank; all ranks return the same results.

    Raises:
        RuntimeError: methods give different bytes.
    """
    end, found = time.monotonic() + seconds, []
    for size in wanted.hidden_sizes:
        with_size = _Calls(exchange, wanted, size)
        for name in wanted.formats:
            times = with_size.times(name, end)
            if times is None:
                break
            sizes = tuple(rows * size * _DTYPE_BYTES for rows in wanted.rows)
            facts = device_name(_place(exchange, wanted)), wanted.ranks, size, code_bits(FORMATS[name]), driver, date
            found.append(Entry(*facts, sizes, times))
        with_size.workspace.close()
    return found


def _place(exchange: Exchange, wanted: Wanted) -> int | str:
    """Where a rank is, as `Workspace.from_exchange` takes it."""
    return exchange.rank if wanted.device == "cuda" else "cpu"


def _any(exchange: Exchange, is_so: bool) -> bool:
    """Whether something is true on any rank; all ranks ask at once."""
    return b"1" in exchange(b"1" if is_so else b"0")


class _Calls:
    """Calls of one hidden size on one rank, with inputs in the workspace, as if a GEMM wrote them there."""

    def __init__(self, exchange: Exchange, wanted: Wanted, hidden_size: int) -> None:
        self._exchange, self._wanted, self._size = exchange, wanted, hidden_size
        most, is_gpu = wanted.rows[-1], wanted.device == "cuda"
        row_bytes = Layout(wanted.ranks, most, most, hidden_size, _DTYPE, 0).row_bytes
        if is_gpu:
            import torch

            torch.cuda.set_device(exchange.rank)
        self.workspace = Workspace.from_exchange(
            exchange.rank, wanted.ranks, exchange, max_rows=most, hidden_size=hidden_size, dtype=_DTYPE,
            device=_place(exchange, wanted), deadline=_DEADLINE, output_bytes=0,
            one_shot_rows=max(1, _MOST_ONE_SHOT_BYTES // row_bytes),
        )  # fmt: skip
        self._x, self._residual = self.workspace.empty(most), self._new(most, 9)
        self._x[...] = self._new(most, exchange.rank)
        self._weight = self._new(1, 10)[0]

    def _new(self, rows: int, seed: int) -> Any:
        """Random rows on the device."""
        shape = rows, self._size
        if self._wanted.device == "cpu":
            return np.random.default_rng(seed).standard_normal(shape, np.float32).astype(_DTYPE)
        import torch

        generator = torch.Generator("cuda").manual_seed(seed)
        return torch.randn(shape, generator=generator, dtype=torch.float16, device="cuda")

    def call(self, name: str, method: str, rows: int) -> Callable[[], Any]:
        """The call of a format, method and number of rows."""
        return partial(
            all_reduce_norm_quantize, self._x[:rows], self._weight, self.workspace, spec=FORMATS[name],
            residual=self._residual[:rows], method=method,
        )  # fmt: skip

    def times(self, name: str, end: float) -> dict[str, tuple[float | None, ...]] | None:
        """The times of each method, for each number of rows; None if time ran out before all were measured."""
        times: dict[str, list[float | None]] = {method: [] for method in METHODS}
        for rows in self._wanted.rows:
            if _any(self._exchange, time.monotonic() > end):
                return None
            able = [method for method in METHODS if method != "one_shot" or rows <= self.workspace.layout.rows]
            self._require_same(name, rows, able)
            for method in METHODS:
                times[method].append(self._time(name, method, rows) if method in able else None)
        return {method: tuple(of_method) for method, of_method in times.items()}

    def _require_same(self, name: str, rows: int, methods: Sequence[str]) -> None:
        """Raise RuntimeError if methods differ in a byte; this also loads the kernels."""
        first, *others = (list(_tensors(self.call(name, method, rows)())) for method in methods)
        differ = [
            method for method, found in zip(methods[1:], others, strict=True) if not all(map(_is_same, first, found))
        ]
        self.workspace.check()  # now that all calls have ended
        if _any(self._exchange, bool(differ)):
            raise RuntimeError(
                f"{', '.join(differ) or 'another rank'}: gives other bytes than {methods[0]} for {rows} rows of "
                f"{self._size}, {name}; please report it"
            )

    def _time(self, name: str, method: str, rows: int) -> float:
        """Microseconds of a call on the slowest rank, in the median."""
        call, rounds = self.call(name, method, rows), self._rounds(rows)

        def work() -> None:
            for _ in range(rounds):
                call()

        replay: Replay
        if self._wanted.device == "cpu":
            replay = host_replay(work)
        else:
            replay = graph_replay(work, self.call(name, "one_shot", 1))
        own = []
        for _ in range(_REPEATS):
            self._exchange(b"")
            own.append(replay())
        self.workspace.check()
        by_rank = [json.loads(times) for times in self._exchange(json.dumps(own).encode())]
        slowest: list[float] = [max(times) for times in zip(*by_rank, strict=True)]
        return round(statistics.median(slowest[1:]) / rounds, 3)

    def _rounds(self, rows: int) -> int:
        estimate = 5 + rows * self._size * _DTYPE_BYTES / 200e3
        return max(1, math.ceil(_GRAPH_MICROSECONDS[self._wanted.device] / estimate))


def _tensors(reduced: Any) -> Iterator[Any]:
    """All tensors of a result."""
    for part in reduced:
        if isinstance(part, QuantizedTensor):
            yield from (part.data, part.scale)
        elif part is not None:
            yield part


def _is_same(one: Any, other: Any) -> bool:
    """Whether two tensors have the same bytes."""
    if isinstance(one, np.ndarray):
        return bool(np.array_equal(one.view(np.uint8), other.view(np.uint8)))
    import torch

    return bool(torch.equal(one.view(torch.uint8), other.view(torch.uint8)))
