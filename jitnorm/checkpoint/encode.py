"""Encodes rows of weights, and finds their largest magnitude, on the CPU or a GPU with the same bytes."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from jitnorm.checkpoint.selection import FLOATS
from jitnorm.kernels.spelling import did_you_mean
from jitnorm.memory import CudaMemory, HostMemory
from jitnorm.ops.amax import compute_amax
from jitnorm.ops.general import quantize

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from jitnorm.checkpoint.stored import StoredTensor
    from jitnorm.kernels.quant_spec import QuantSpec

DEVICES = ("cpu", "cuda")
_LARGEST = float(np.finfo(np.float32).max)


class Encoder:
    """Encodes blocks of rows; threads may share one.

    Args:
        spec: how to encode.
        device: ``cpu``, or ``cuda`` for the first GPU.

    Raises:
        ValueError: the device is unknown.
    """

    def __init__(self, spec: QuantSpec, device: str = "cpu") -> None:
        if device not in DEVICES:
            raise ValueError(
                f"device: {device!r} is not known; use one of {', '.join(DEVICES)}{did_you_mean(device, DEVICES)}"
            )
        self._spec, self._device = spec, device
        self._of_thread = threading.local()

    @property
    def _memory(self) -> HostMemory | CudaMemory:
        """The device's memory, opened separately by each thread, as the CUDA driver requires."""
        if not hasattr(self._of_thread, "memory"):
            self._of_thread.memory = HostMemory() if self._device == "cpu" else CudaMemory(0)
        memory: HostMemory | CudaMemory = self._of_thread.memory
        return memory

    def amax(self, rows: NDArray[Any]) -> float:
        """The largest magnitude of some rows; NaN if there is a NaN."""
        found = compute_amax(self._memory.put(rows))
        return float(self._memory.bytes_of(found).view(np.float32)[0])

    def encoded(self, rows: NDArray[Any], scale: float | None) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Encode some rows to the bytes of their codes and scales.

        Args:
            rows: whole blocks of rows, unless they are the last ones.
            scale: the global encode scale, or None.
        """
        memory = self._memory
        given = None if scale is None else memory.put(np.array([scale], np.float32))
        made = quantize(memory.put(rows), spec=self._spec, global_scale=given)
        return memory.bytes_of(made.data), memory.bytes_of(made.scale)


def encode_scale(amax: float) -> float:
    """NVFP4's global scale that makes codes and scales use their full range: ``448 * 6 / amax``, in float32.

    Example:
        >>> encode_scale(2688), encode_scale(0)
        (1.0, 1.0)
    """
    if amax == 0:
        return 1.0
    with np.errstate(over="ignore"):
        return min(float(np.float32(448 * 6) / np.float32(amax)), _LARGEST)


def rows_of(data: NDArray[np.uint8], tensor: StoredTensor) -> NDArray[Any]:
    """View some bytes of a matrix of floats as its rows."""
    kind: Any = ml_dtypes.bfloat16 if tensor.dtype == "BF16" else FLOATS[tensor.dtype]
    rows: NDArray[Any] = data.view(kind).reshape(-1, tensor.shape[1])
    return rows
