"""Where a rank's tensors lie: NumPy's on the CPU, torch's on the GPU of the rank's number."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from comm.processes import Exchange
from jitnorm.comm import Workspace

# Multicast is not needed, and is not set up on every machine.
WITHOUT_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"}
_GROUP_SECONDS = 60


class Device:
    """The CPU or a GPU, for one rank.

    Args:
        kind: ``cpu`` or ``cuda``.
        exchange: of the rank.
    """

    def __init__(self, kind: str, exchange: Exchange) -> None:
        self.kind, self.rank, self._exchange = kind, exchange.rank, exchange
        self.is_gpu = kind == "cuda"
        if self.is_gpu:
            import torch

            os.environ.update(WITHOUT_MULTICAST)
            torch.cuda.set_device(self.rank)
            self._torch = torch

    def workspace(self, max_rows: int, hidden_size: int, dtype: str, deadline: float) -> Workspace:
        """A workspace, whose ranks share memory without torch's help."""
        return Workspace.from_exchange(
            self.rank, self._exchange.ranks, self._exchange, max_rows=max_rows, hidden_size=hidden_size, dtype=dtype,
            device=self.rank if self.is_gpu else "cpu", deadline=deadline,
        )  # fmt: skip

    def group(self) -> Any:
        """The group of all ranks, of torch.distributed: NCCL's on GPUs, gloo's else."""
        from torch import distributed

        if not distributed.is_initialized():
            store = f"file://{self._exchange.folder / 'store'}"
            device = {"device_id": self._torch.device("cuda", self.rank)} if self.is_gpu else {}
            distributed.init_process_group(
                "nccl" if self.is_gpu else "gloo", store, timedelta(seconds=_GROUP_SECONDS), self._exchange.ranks,
                self.rank, **device,
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
        return np.asarray(tensor.cpu())

    def synchronize(self) -> None:
        """Wait for what was launched."""
        if self.is_gpu:
            self._torch.cuda.synchronize()

    def agree(self, is_wanted: bool) -> bool:
        """Whether any rank wants it; all ranks ask at once."""
        return b"1" in self._exchange(b"1" if is_wanted else b"0")
