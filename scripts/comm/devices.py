"""The device of a rank's tensors: NumPy's on the CPU, torch's on the GPU with the rank's number."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from jitnorm.comm import Workspace
from jitnorm.tune.processes import Exchange
from jitnorm.tune.replays import graph_replay, host_replay

# Multicast is not needed, and is not set up on every machine.
WITHOUT_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"}
_GROUP_SECONDS = 60


class Device:
    """The CPU or a GPU, for one rank.

    Args:
        kind: ``cpu`` or ``cuda``.
        exchange: of the rank.
        memory: how ranks share a GPU's memory: ``torch``, or ``ipc`` by jitnorm alone.
        backend: of torch's group, where one is needed.
    """

    def __init__(self, kind: str, exchange: Exchange, memory: str = "torch", backend: str = "gloo") -> None:
        self.kind, self.rank, self._exchange, self._backend = kind, exchange.rank, exchange, backend
        self._memory, self.is_gpu = memory, kind == "cuda"
        if self.is_gpu:
            import torch

            os.environ.update(WITHOUT_MULTICAST)
            torch.cuda.set_device(self.rank)
            self._torch = torch

    def workspace(
        self, max_rows: int, hidden_size: int, dtype: str, deadline: float, one_shot_rows: int | None = None
    ) -> Workspace:
        """A workspace of all ranks, with room for calls of every method."""
        sizes: dict[str, Any] = {
            "max_rows": max_rows, "hidden_size": hidden_size, "dtype": dtype, "deadline": deadline,
            "one_shot_rows": one_shot_rows, "output_bytes": 8 * max_rows * hidden_size + (1 << 20),
        }  # fmt: skip
        if self.is_gpu and self._memory == "torch":
            return Workspace.from_torch(self.group(), **sizes)
        device = self.rank if self.is_gpu else "cpu"
        return Workspace.from_exchange(self.rank, self._exchange.ranks, self._exchange, device=device, **sizes)

    def group(self) -> Any:
        """The group of all ranks, of torch.distributed."""
        from torch import distributed

        if not distributed.is_initialized():
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
            device = {"device_id": self._torch.device("cuda", self.rank)} if self._backend == "nccl" else {}
            distributed.init_process_group(
                self._backend, f"file://{self._exchange.folder / 'store'}", timedelta(seconds=_GROUP_SECONDS),
                self._exchange.ranks, self.rank, **device,
            )  # fmt: skip
        return distributed.group.WORLD

    def put(self, array: NDArray[Any] | None) -> Any:
        """The array on the device."""
        if array is None or not self.is_gpu:
            return array
        bits, dtype = array, None
        if array.dtype == ml_dtypes.bfloat16:
            bits, dtype = array.view(np.int16), self._torch.bfloat16
        tensor = self._torch.from_numpy(np.ascontiguousarray(bits)).cuda()
        return tensor if dtype is None else tensor.view(dtype)

    def get(self, tensor: Any) -> NDArray[Any]:
        """The tensor as NumPy's, in the dtypes that the CPU target has."""
        if not self.is_gpu:
            return np.asarray(tensor)
        name = str(tensor.dtype).removeprefix("torch.")
        if name in ("bfloat16", "float8_e4m3fn", "float8_e8m0fnu"):
            bits = self._torch.int16 if tensor.element_size() == 2 else self._torch.uint8
            array: NDArray[Any] = tensor.view(bits).cpu().numpy()
            return array.view(getattr(ml_dtypes, name))
        if name == "float4_e2m1fn_x2":
            return np.asarray(tensor.view(self._torch.uint8).cpu())
        return np.asarray(tensor.cpu())

    def synchronize(self) -> None:
        """Wait for what was launched."""
        if self.is_gpu:
            self._torch.cuda.synchronize()

    def captured(self, calls: list[Callable[[], object]], rounds: int) -> Callable[[], float]:
        """Make a function that runs rounds of the calls, on a GPU as a graph, and returns their microseconds."""

        def work() -> None:
            for _ in range(rounds):
                for call in calls:
                    call()

        if not self.is_gpu:
            return host_replay(work)
        meeting = self._torch.zeros(1, device="cuda")
        return graph_replay(work, lambda: self._torch.distributed.all_reduce(meeting, group=self.group()))

    def facts(self) -> dict[str, str]:
        """Facts about the device and its libraries."""
        if not self.is_gpu:
            return {"device": "CPU"}
        torch = self._torch
        versions = {"torch": torch.__version__, "CUDA": torch.version.cuda, "NCCL": str(torch.cuda.nccl.version())}
        return {"device": torch.cuda.get_device_name(), **versions, **WITHOUT_MULTICAST}

    def agree(self, is_wanted: bool) -> bool:
        """Whether any rank wants something; all ranks ask at once."""
        return b"1" in self._exchange(b"1" if is_wanted else b"0")
