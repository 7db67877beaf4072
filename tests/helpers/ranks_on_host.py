"""Ranks whose kernels in CUDA C++ run on the host, all at once, and send each other rows through one memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from cute_on_host import DTYPES_IN_C, POISON, Arrays, cuda_ptx_of
from jitnorm.kernels.arguments import TensorArgument
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.dtypes import DTYPES
from jitnorm.kernels.extents import sizes_of
from jitnorm.kernels.interface import interface
from jitnorm.kernels.launch_recipe import launch_recipe
from jitnorm.kernels.numerics import ceil_div, round_up
from jitnorm.kernels.row_ops import CONTROL_WORDS
from jitnorm.kernels.target import Target
from numpy.typing import NDArray
from ptx_machine import run_launches
from recipe_extents import evaluate
from warp_orders import NewOrder

from jitnorm.comm.layout import NOT_YET, STATUS_WORDS, Layout

_LINE = 256
_BYTES = 1 << 24  # of the memory of all ranks


class RanksOnHost:
    """Ranks that make calls of a kernel, one after another, with workspaces as `jitnorm.comm.Workspace` has them.

    Attributes:
        status: of each rank, the words in which its kernels report failures.
    """

    def __init__(self, config: KernelConfig, target: Target, layout: Layout, *, deadline: float) -> None:
        self._config, self._target, self._layout = config, target, layout
        self._memory = np.full(_BYTES, POISON, np.uint8)
        self._end = _LINE
        self._windows = tuple(self._place(layout.window_bytes) for _ in range(layout.ranks))
        statuses = [self._place(STATUS_WORDS * 8) for _ in range(layout.ranks)]
        self.status = [self._words(at, STATUS_WORDS) for at in statuses]
        self._controls = [self._place(CONTROL_WORDS * 8) for _ in range(layout.ranks)]
        for rank, window in enumerate(self._windows):
            self._memory[window:][: layout.mark_bytes] = 0
            slots = self._memory[window + layout.mark_bytes : window + layout.input_offset]
            slots.view(np.uint32)[:] = NOT_YET[DTYPES[config.input].bytes]
            self.status[rank][:] = 0
            self._words(self._controls[rank], CONTROL_WORDS)[:] = layout.control(
                rank, deadline, statuses[rank], self._windows
            )

    def call(self, given: Sequence[Arrays | None], order: NewOrder) -> list[Arrays]:
        """Make a call; the outputs of each rank.

        Args:
            given: the inputs of each rank by name, of which ``input`` has all rows; None for a rank that does not come.
            order: in which the warps of all ranks advance.
        """
        recipe = launch_recipe(self._config, self._target)
        rows = next(each["input"].shape[0] for each in given if each is not None)
        free, calls = self._end, [each and self._prepared(rank, each) for rank, each in enumerate(given)]
        grid = evaluate(recipe["grid"], rows, second_rows=rows)
        parameters = [each and each[0] for each in calls]
        ptx = cuda_ptx_of(self._config, self._target)
        run_launches(ptx, self._memory, parameters, grid, recipe["block"], recipe["cluster"], order=order)
        self._end = free
        return [{name: view.copy() for name, view in each[1].items()} if each else {} for each in calls]

    def _prepared(self, rank: int, given: Arrays) -> tuple[list[int | float], Arrays]:
        """The parameters of a rank's launch, and views of its outputs, poisoned."""
        config, layout, all_rows = self._config, self._layout, given["input"].shape[0]
        first = rank * ceil_div(all_rows, layout.ranks) if config.scatters else 0
        rows = max(0, min(all_rows - first, ceil_div(all_rows, layout.ranks))) if config.scatters else all_rows
        is_shared = config.divides_rows and not config.scatters  # what it writes
        shared = self._windows[rank] + layout.output_offset
        parameters: list[int | float] = []
        outputs: Arrays = {}
        whole = self._stored(rank, given["input"])
        for argument in _present(config):
            if argument.name == "workspace":
                parameters.append(self._controls[rank])
                continue
            shape = sizes_of(argument.shape, (rows,), rows, second_rows=all_rows)
            dtype = np.dtype(DTYPES_IN_C[argument.c_type])
            if argument.name in ("input", "whole"):
                at = whole + (first * shape[-1] * dtype.itemsize if argument.name == "input" else 0)
            elif argument.is_output:
                size = int(np.prod(shape)) * dtype.itemsize
                is_kept = argument.name in ("residual_out", "y_out") and config.all_reduce != "two_shot"
                at = shared if is_shared and not is_kept else self._place(size)
                shared += round_up(size, _LINE) if at == shared else 0
                outputs[argument.name] = self._memory[at : at + size].view(dtype).reshape(shape)
                outputs[argument.name].view(np.uint8)[...] = POISON
            else:
                at = self._place(given[argument.name].nbytes)
                self._fill(at, given[argument.name])
            parameters += [at, shape[-1]] if argument.is_strided else [at]
        return [*parameters, 1e-6, rows, *([all_rows] if config.scatters else [])], outputs

    def _stored(self, rank: int, input: NDArray[np.generic]) -> int:
        """Where all rows of a rank's input are: in its window, if other ranks read them."""
        is_read = self._config.all_reduce not in ("one_shot", "one_shot_scatter", "all_gather")
        at = self._windows[rank] + self._layout.input_offset if is_read else self._place(input.nbytes)
        self._fill(at, input)
        return at

    def _place(self, size: int) -> int:
        """An address of so many bytes that nothing else has, with some behind them."""
        at, self._end = self._end, self._end + round_up(size, _LINE) + _LINE
        assert self._end <= _BYTES, "the memory of all ranks is too small"
        return at

    def _fill(self, at: int, array: NDArray[np.generic]) -> None:
        self._memory[at : at + array.nbytes] = array.reshape(-1).view(np.uint8)

    def _words(self, at: int, count: int) -> NDArray[np.int64]:
        return self._memory[at : at + count * 8].view(np.int64)


def _present(config: KernelConfig) -> Iterator[TensorArgument]:
    return (each for each in interface(config) if each.is_present and isinstance(each, TensorArgument))
