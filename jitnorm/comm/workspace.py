"""Workspace: the memory through which the ranks of a group exchange rows and learn of each other's failures."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from importlib import import_module
from itertools import count
from numbers import Integral, Real
from typing import Any
from weakref import WeakValueDictionary

from jitnorm.comm.choices import Choices, Steps, agreed, code_bits, device_name, one_shot_bytes, steps_for
from jitnorm.comm.cuda_memory import CudaMemory
from jitnorm.comm.host_memory import HostMemory
from jitnorm.comm.layout import NOT_YET, Layout
from jitnorm.comm.memory import Exchange, Memory
from jitnorm.comm.torch_memory import TorchMemory
from jitnorm.comm.views import address_of, example_of, tensor_at
from jitnorm.errors import CommError
from jitnorm.kernels.all_reduce_rules import MAX_RANKS
from jitnorm.kernels.config_rules import FLOAT_DTYPES, MAX_HIDDEN_SIZE
from jitnorm.kernels.dtypes import DTYPES
from jitnorm.kernels.numerics import round_up
from jitnorm.kernels.quant_spec import QuantSpec, require_one_of

# Without measurements, the most bytes of a call's rows that are sent to all ranks. With two ranks, the other methods
# send as many: 512 rows of 7168 took 30 us either way, and 37 if ranks passed on codes of sums that are not rounded.
# With more ranks, they send fewer, but cross the links once more, which takes as long as sending this many bytes.
_ONE_SHOT_BYTES, _BYTES_OF_A_TRIP = 8 << 20, 2 << 20
_MOST_ROWS = 1 << 19
_MOST_VIEWS = 1024
_numbers = count()
# Workspaces by name, for programs that cannot hold objects.
_workspaces: WeakValueDictionary[str, Workspace] = WeakValueDictionary()


class Workspace:
    """A rank's memory for calls over ranks; all ranks create theirs at the same time, with the same sizes.

    Calls with a workspace run one after another on one stream, in the same order on every rank. They can be captured in
    CUDA graphs.

    Attributes:
        rank: the number of this rank.
        ranks: the number of ranks, 2 to 8.
        name: the name by which torch operators refer to the workspace while it exists.
        deadline: how long a kernel waits for another rank, in seconds.
        layout: the layout of the memory.
        choices: measurements of how rows are summed fastest; the same on all ranks.
        is_synchronous: whether calls have finished when they return, as on the CPU, and raise their own errors.
    """

    def __init__(self, rank: int, layout: Layout, memory: Memory, deadline: float, choices: Choices) -> None:
        self.rank, self.ranks, self.deadline, self.layout = rank, layout.ranks, deadline, layout
        self.choices, self._steps = choices, dict[tuple[int, int, bool], Steps]()
        self._memory, self.is_synchronous = memory, memory.is_synchronous
        self.name = f"workspace {next(_numbers)}"
        _workspaces[self.name] = self
        self._controls: dict[type, Any] = {}
        self._views: dict[Hashable, Any] = {}
        self._good = bytes(memory.status)
        self._initialize()

    @classmethod
    def from_exchange(
        cls,
        rank: int,
        ranks: int,
        exchange: Exchange,
        *,
        max_rows: int,
        hidden_size: int,
        dtype: Any = "bfloat16",
        device: str | int = "cpu",
        deadline: float = 30.0,
        one_shot_rows: int | None = None,
        output_bytes: int | None = None,
    ) -> Workspace:
        """The workspace of ranks that can exchange a few bytes: GPUs of one host, or processes on the CPU.

        Ranks on GPUs share memory through CUDA IPC, or are threads of one process.

        Args:
            rank: the number of this rank, starting at 0.
            ranks: the number of ranks, 2 to 8.
            exchange: an all-gather: called with bytes, it returns those of all ranks in order. It is called a few times
                here and in `reset`; rank 0 sends the measurements of its GPU, a few KB at most.
            max_rows: the maximum number of rows of a call.
            hidden_size: the maximum number of elements of a row.
            dtype: the dtype of inputs: float16, bfloat16 or float32, by name or as a library's object.
            device: ``"cpu"``, or the ordinal of this rank's CUDA device.
            deadline: how long a kernel waits for another rank, in seconds.
            one_shot_rows: the maximum number of rows of a one-shot call; None: as many as are faster that way, as
                measured or by a rule. For more rows, ranks divide them.
            output_bytes: each rank's memory for the results of calls with more rows; None: twice `max_rows` rows of the
                input and 1 MiB, enough for codes with scales and a sum with a residual.

        Raises:
            ValueError: a number is not allowed, or differs between ranks.

        Example:
            >>> from jitnorm.comm.threads import on_threads
            >>> def work(rank, exchange):
            ...     return Workspace.from_exchange(rank, 2, exchange, max_rows=4, hidden_size=64).ranks
            >>> on_threads(2, work)
            [2, 2]
        """
        if device != "cpu" and not isinstance(device, int):
            raise ValueError(f"device: is {device!r}; pass 'cpu' or the ordinal of a CUDA device")
        sizes = max_rows, hidden_size, dtype, deadline, one_shot_rows, output_bytes
        layout, choices = _agreed_layout(exchange, rank, ranks, device, *sizes)
        if isinstance(device, int):
            return cls(rank, layout, CudaMemory(rank, exchange, layout.window_bytes, device), deadline, choices)
        return cls(rank, layout, HostMemory(rank, exchange, layout.window_bytes), deadline, choices)

    @classmethod
    def from_torch(
        cls,
        group: Any,
        *,
        max_rows: int,
        hidden_size: int,
        dtype: Any = "bfloat16",
        device: Any = None,
        deadline: float = 30.0,
        one_shot_rows: int | None = None,
        output_bytes: int | None = None,
    ) -> Workspace:
        """The workspace of the ranks of a torch process group, each with a GPU of one host, over symmetric memory.

        Args:
            group: a group of `torch.distributed`, of any backend.
            max_rows: as of `from_exchange`.
            hidden_size: as of `from_exchange`.
            dtype: as of `from_exchange`.
            device: this rank's; None for torch's current CUDA device.
            deadline: as of `from_exchange`.
            one_shot_rows: as of `from_exchange`.
            output_bytes: as of `from_exchange`.

        Raises:
            ValueError: a number is not allowed, or differs between ranks.
        """
        import torch
        from torch import distributed

        rank, ranks = distributed.get_rank(group), distributed.get_world_size(group)
        where = torch.device("cuda", torch.cuda.current_device() if device is None else torch.device(device).index)

        def exchange(own: bytes) -> list[bytes]:
            gathered: list[Any] = [None] * ranks
            distributed.all_gather_object(gathered, own, group)
            return gathered

        sizes = max_rows, hidden_size, dtype, deadline, one_shot_rows, output_bytes
        layout, choices = _agreed_layout(exchange, rank, ranks, where.index, *sizes)
        return cls(rank, layout, TorchMemory(group, layout.window_bytes, where), deadline, choices)

    def control(self, tensor: Any) -> Any:
        """The control block as a tensor that can be passed along with another one."""
        kind = type(tensor)
        if kind not in self._controls:
            self._controls[kind] = _like(self._memory.control, tensor)
        return self._controls[kind]

    def empty(self, rows: int, hidden_size: int = 0, library: str = "") -> Any:
        """A tensor in the window for the input of the next call, which then need not be copied.

        There is only one such place: each tensor overwrites the previous one. It exists only in a workspace for more
        than `one_shot_rows` rows.

        Args:
            rows: the number of rows, up to `max_rows`.
            hidden_size: elements of a row; 0 for the workspace's hidden size.
            library: ``torch`` or ``numpy``; by default torch on GPUs and NumPy on the CPU.

        Returns:
            an uninitialized tensor (rows, hidden_size) of the workspace's dtype.

        Raises:
            ValueError: the sizes do not fit, or there is no such place.
        """
        size = hidden_size or self.layout.hidden_size
        self._admit_size(rows, size)
        if not self.layout.output_bytes:
            raise ValueError("rows: are not divided by the ranks of this workspace; any tensor will do as an input")
        on_host = self._memory.device < 0
        like = example_of(library or ("numpy" if on_host else "torch"), self._memory.device)
        return self.input_view(like, (rows, size))

    def input_view(self, like: Any, shape: tuple[int, ...]) -> Any:
        """The part of the window for inputs, as a tensor of the library of another."""
        return self._view(like, self.layout.input_offset, shape, self.layout.dtype)

    def outputs(self, like: Any, found: Mapping[str, tuple[tuple[int, ...], str]]) -> dict[str, Any]:
        """Tensors in the window, one behind the other.

        Args:
            like: a tensor of their library.
            found: their shapes and dtypes by name.

        Raises:
            ValueError: there is no room for them.
        """
        made, offset = {}, self.layout.output_offset
        for name, (shape, dtype) in found.items():
            made[name] = self._view(like, offset, shape, dtype)
            offset += round_up(math.prod(shape) * DTYPES[dtype].bytes, 128)
        if offset > self.layout.window_bytes:
            raise ValueError(
                f"workspace: has {self.layout.output_bytes} output_bytes, but the call writes "
                f"{offset - self.layout.output_offset}; make one with more"
            )
        return made

    def _view(self, like: Any, offset: int, shape: tuple[int, ...], dtype: str) -> Any:
        key = type(like), offset, shape, dtype
        if key not in self._views:
            if len(self._views) >= _MOST_VIEWS:
                self._views.clear()
            address = self._memory.windows[self.rank] + offset
            self._views[key] = tensor_at(like, address, shape, dtype, self._memory)
        return self._views[key]

    def holds(self, tensor: Any) -> bool:
        """Whether a tensor begins in the window."""
        first = self._memory.windows[self.rank]
        return first <= address_of(tensor) < first + self.layout.window_bytes

    def admit(self, rows: int, hidden_size: int, dtype: str) -> None:
        """Raise CommError after a failure, and ValueError if such rows do not fit."""
        self.check()
        if dtype != self.layout.dtype:
            raise ValueError(
                f"input: dtype is {dtype}, but the workspace is for {self.layout.dtype}; make one for {dtype}"
            )
        self._admit_size(rows, hidden_size)

    def _admit_size(self, rows: int, hidden_size: int) -> None:
        layout = self.layout
        for what, found, most in (("rows", rows, layout.max_rows), ("columns", hidden_size, layout.hidden_size)):
            if found > most:
                raise ValueError(f"input: has {found} {what}, but the workspace is for {most}; make one for more")

    def method_of(self, rows: int, hidden_size: int, spec: QuantSpec | None, round_sum: bool) -> str:
        """How the rows of a call are summed: as measured, or by the rule for unmeasured calls and unrounded sums."""
        layout = self.layout
        by_rule = "one_shot" if rows <= layout.rows else "two_shot"
        if not round_sum:
            return by_rule
        key = int(hidden_size), code_bits(spec), bool(rows <= layout.rows)
        if key not in self._steps:
            fits = {"one_shot": key[2], "two_shot": layout.output_bytes > 0, "not_fused": layout.output_bytes > 0}
            self._steps[key] = steps_for(self.choices, *key[:2], [method for method in fits if fits[method]])
        size = rows * hidden_size * DTYPES[layout.dtype].bytes
        return next((method for most, method in self._steps[key] if size <= most), by_rule)

    def check(self) -> None:
        """Raise CommError if this rank knows of a failure in a call that has ended.

        Call it once the device has finished the calls in question. Calls with the workspace begin with it.
        """
        found = bytes(self._memory.status)
        if found == self._good:
            return
        words = memoryview(found).cast("q")
        late, disagreeing = (
            tuple(i for i in range(self.ranks) if words[first + i]) for first in (0, MAX_RANKS)
        )  # fmt: skip
        call = max(words) - 1
        raise CommError(self.rank, call, late, disagreeing, self.deadline)

    def reset(self) -> None:
        """Make the workspace ready for calls again after a failure; all of its ranks call this at once."""
        self._initialize()

    def close(self) -> None:
        """Release the memory, on all ranks at once; none may make or wait for another call, or use the results of one.

        Without this call, memory from torch, and that of the CPU, is freed with the last tensor in it.
        """
        self._memory.synchronize()
        self._controls.clear()
        self._views.clear()
        self._memory.close()

    def _initialize(self) -> None:
        memory, layout = self._memory, self.layout
        memory.synchronize()
        memory.barrier()  # from here on, no rank writes into another's window
        memory.fill_window(0, layout.mark_bytes // 4, 0)
        word = NOT_YET[DTYPES[layout.dtype].bytes]
        memory.fill_window(layout.mark_bytes, (layout.input_offset - layout.mark_bytes) // 4, word)
        memory.write_control(layout.control(self.rank, self.deadline, memory.status_address, memory.windows))
        memory.clear_status()
        memory.synchronize()
        memory.barrier()


def workspace_named(name: str) -> Workspace:
    """The workspace of this process with a name; ValueError if there is none any more."""
    try:
        return _workspaces[name]
    except KeyError:
        raise ValueError(
            f"workspace: is {name!r}, which is none of {sorted(_workspaces)}; keep the one meant"
        ) from None


def _agreed_layout(exchange: Exchange, rank: int, ranks: int, device: str | int, *sizes: Any) -> tuple[Layout, Choices]:
    """The layout of all ranks, and their choices."""
    require_one_of("ranks", ranks, tuple(range(2, MAX_RANKS + 1)))
    require_one_of("rank", rank, tuple(range(ranks)))
    choices = agreed(exchange, rank, ranks, device_name(device))
    layout = _layout(ranks, one_shot_bytes(choices, _one_shot_bytes(ranks)), *sizes)
    _require_same(exchange, layout)
    return layout, choices


def _one_shot_bytes(ranks: int) -> int:
    """Bytes up to which sending all rows to all ranks takes less time than sending parts of them and then the sums."""
    sent, sent_in_parts = ranks - 1, 2 * (ranks - 1) / ranks
    more = sent - sent_in_parts
    return min(_ONE_SHOT_BYTES, int(_BYTES_OF_A_TRIP / more)) if more else _ONE_SHOT_BYTES


def _layout(
    ranks: int, most_bytes: int, max_rows: int, hidden_size: int, dtype: Any, deadline: float,
    one_shot_rows: int | None, output_bytes: int | None,
) -> Layout:  # fmt: skip
    """The layout for such sizes; without `one_shot_rows`, calls of up to `most_bytes` may be one-shot."""
    _require_size("max_rows", max_rows, _MOST_ROWS)
    _require_size("hidden_size", hidden_size, MAX_HIDDEN_SIZE)
    if not isinstance(deadline, Real) or not 0 < deadline <= 3600:
        raise ValueError(f"deadline: is {deadline!r}; seconds, more than 0 and up to 3600, are allowed")
    name = (getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)).removeprefix("torch.")
    require_one_of("dtype", name, FLOAT_DTYPES)
    row_bytes = Layout(ranks, max_rows, max_rows, hidden_size, name, 0).row_bytes
    if one_shot_rows is None:
        one_shot_rows = max(1, most_bytes // row_bytes)
    _require_size("one_shot_rows", one_shot_rows)
    if max_rows <= one_shot_rows and output_bytes is None:
        return Layout(ranks, max_rows, max_rows, hidden_size, name, 0)
    if output_bytes is None:
        output_bytes = 2 * max_rows * row_bytes + (1 << 20)
    output_bytes = round_up(max(output_bytes, max_rows * row_bytes), 128)  # not_fused writes all sums
    return Layout(ranks, max_rows, min(max_rows, one_shot_rows), hidden_size, name, output_bytes)


def _require_size(name: str, size: Any, most: float = math.inf) -> None:
    if not isinstance(size, Integral) or not 1 <= int(size) <= most:
        allowed = "at least 1" if most == math.inf else f"1 to {most}"
        raise ValueError(f"{name}: is {size!r}; whole numbers of {allowed} are allowed")


def _require_same(exchange: Exchange, layout: Layout) -> None:
    """Raise ValueError on every rank if one has another layout."""
    all_of_them = [text.decode() for text in exchange(repr(layout).encode())]
    if len(all_of_them) != layout.ranks:
        raise ValueError(
            f"exchange: returned {len(all_of_them)} messages; expected one of each of {layout.ranks} ranks"
        )
    others = [i for i, text in enumerate(all_of_them) if text != repr(layout)]
    if others:
        differing = f"ranks {others} make another workspace than {layout}: {all_of_them[others[0]]}"
        raise ValueError(f"{differing}; pass the same sizes on all ranks")


def _like(control: Any, tensor: Any) -> Any:
    """The control block in the library of a tensor: all tensors of a call must be of one library."""
    library = type(tensor).__module__.partition(".")[0]
    return control if library == "tvm_ffi" else import_module(library).from_dlpack(control)
