"""Measures the kernels of one case, called on tensors as the interface of their configuration requires."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from jitnorm.bench.calls import Call
from jitnorm.bench.cases import op_named
from jitnorm.bench.measured import MATRICES, make_sums_positive
from jitnorm.bench.tensors import Tensors
from jitnorm.kernels.arguments import ScalarArgument, TensorArgument
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.extents import sizes_of
from jitnorm.kernels.interface import interface
from jitnorm.kernels.numerics import ceil_div
from jitnorm.kernels.target import Target
from jitnorm.manager import get_kernel
from jitnorm.tune.cases import Case
from jitnorm.tune.choose import Times

_EPS = 1e-6


class Meter(Protocol):
    """A way to measure the kernels of a case."""

    def time(self, config: KernelConfig) -> Times:
        """Microseconds of a call, for each row count."""

    def copy(self) -> Times:
        """Microseconds of a copy of as many bytes."""

    def is_same(self, one: KernelConfig, other: KernelConfig) -> bool:
        """Whether two kernels write the same bytes."""


@dataclass(frozen=True)
class Run:
    """Calls with one row count: several sets of arguments, which together exceed the caches."""

    rows: int
    op_bytes: int
    arguments: Sequence[list[Any]]


class DeviceMeter:
    """Measures on a device, like `jitnorm bench`.

    Args:
        case: the case whose kernels are measured.
        target: the target of the kernels.
        backend: the backend that builds them.
        device: ``cuda`` or ``cpu``.
        replays: how many replays a time is the median of.
    """

    def __init__(self, case: Case, target: Target, backend: str, device: str = "cuda", replays: int = 9) -> None:
        from jitnorm.bench.timing import buffer_count

        self._target, self._backend, self._device, self._replays = target, backend, device, replays
        op = op_named(case.op)
        self._runs = []
        for rows in case.rows:
            op_bytes = op.bytes_at(rows, case.config.hidden_size)
            sets = [_arguments(case.config, rows, Tensors(device)) for _ in range(buffer_count(op_bytes))]
            self._runs.append(Run(rows, op_bytes, sets))

    def time(self, config: KernelConfig) -> Times:
        """See `Meter.time`."""
        from jitnorm.bench.timing import device_time

        return tuple(
            device_time([self._call(config, each) for each in run.arguments], self._device, self._replays)
            for run in self._runs
        )

    def copy(self) -> Times:
        """See `Meter.copy`."""
        from jitnorm.bench.timing import copy_calls, device_time

        new = Tensors(self._device)
        return tuple(device_time(copy_calls(run.op_bytes, new), self._device) for run in self._runs)

    def is_same(self, one: KernelConfig, other: KernelConfig) -> bool:
        """See `Meter.is_same`; compares every tensor, outputs and unchanged inputs."""
        import torch

        for run in self._runs:
            first, second = (_copies(run.arguments[0]) for _ in range(2))
            self._call(one, first)()
            self._call(other, second)()
            for a, b in zip(first, second, strict=True):
                if isinstance(a, torch.Tensor) and not torch.equal(a.view(torch.uint8), b.view(torch.uint8)):
                    return False
        return True

    def _call(self, config: KernelConfig, arguments: list[Any]) -> Call:
        kernel = get_kernel(config, self._target, backend=self._backend)
        if self._device == "cpu":
            return lambda: kernel(*arguments)
        import torch

        # Looked up at each call, because graphs are captured on another stream.
        return lambda: kernel(*arguments, torch.cuda.current_stream().cuda_stream)


def _arguments(config: KernelConfig, rows: int, new: Tensors) -> list[Any]:
    """Arguments for the kernel: random numbers, scales of 1, outputs of zeros; in place with a residual."""
    named: dict[str, Any] = {}
    for argument in interface(config):
        if isinstance(argument, ScalarArgument):
            named[argument.name] = _EPS
        elif argument.is_present:
            same = argument.may_be if config.residual else None
            named[argument.name] = named[same] if same else _tensor(argument, config, rows, new)
    make_sums_positive(named)
    return list(named.values())


def _tensor(argument: TensorArgument, config: KernelConfig, rows: int, new: Tensors) -> Any:
    matrices = MATRICES if config.batched else 1
    rows = ceil_div(rows, matrices)
    leading = (matrices, rows) if config.batched else (rows,)
    found = new.of(sizes_of(argument.shape, leading, rows, matrices), argument.dtypes[-1], argument.is_output)
    return found.zero_() if argument.is_output else found


def _copies(arguments: list[Any]) -> list[Any]:
    """Copy arguments to new memory; a tensor passed twice stays one tensor."""
    copies = {id(each): each.clone() for each in arguments if not isinstance(each, float)}
    return [copies.get(id(each), each) for each in arguments]
