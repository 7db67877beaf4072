"""Copies of arrays to the memory of a device and back."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any

from jitnorm.kernels.dtypes import DTYPES
from jitnorm.launcher import launcher

if TYPE_CHECKING:
    from numpy.typing import NDArray

# cuda-core fills its package while it is imported, so another thread that imports from it at that time misses names.
_importing = Lock()


class HostMemory:
    """The host's memory, where arrays are passed without conversion."""

    def put(self, array: NDArray[Any]) -> Any:
        """The array as an argument of an op."""
        return array

    def bytes_of(self, tensor: Any) -> NDArray[Any]:
        """The bytes of a dense tensor, in row-major order."""
        import numpy as np

        return tensor.view(np.uint8)  # type: ignore[no-any-return]


class CudaMemory:
    """A GPU's memory, as `tvm_ffi.Tensor`s on the default stream; needs no array framework, but the extra `cuda`.

    Args:
        device: ordinal of the GPU.

    Raises:
        ImportError: cuda-core, which copies, is not installed, or is older than 1.0.
    """

    def __init__(self, device: int) -> None:
        with _importing:
            try:
                from cuda.bindings import driver
                from cuda.core import Device
            except ImportError as error:
                raise ImportError(
                    f'copies to and from the GPU need cuda-core 1.0 or later: pip install "jitnorm[cuda]" ({error})'
                ) from error
        Device(device).set_current()
        self._device = device
        self._driver: Any = driver

    def put(self, array: NDArray[Any]) -> Any:
        """A copy of a contiguous array as an argument of an op."""
        tensor = launcher().allocate(array.shape, array.dtype.name, self._device)
        self._check(self._driver.cuMemcpyHtoD(tensor.data_ptr(), array.ctypes.data, array.nbytes))
        return tensor

    def bytes_of(self, tensor: Any) -> NDArray[Any]:
        """A copy of the bytes of a dense tensor, in row-major order."""
        import numpy as np

        *leading, last = tensor.shape
        array = np.empty((*leading, last * DTYPES[str(tensor.dtype)].bytes), np.uint8)
        self._check(self._driver.cuMemcpyDtoH(array.ctypes.data, tensor.data_ptr(), array.nbytes))
        return array

    def _check(self, answer: tuple[Any, ...]) -> None:
        if answer[0] != self._driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"CUDA driver: a copy failed with {answer[0].name}")
