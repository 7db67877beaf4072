"""The device that a command runs on, the first GPU or else the CPU, and copies of arrays to and from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jitnorm.dispatch import cuda_target
from jitnorm.kernels.target import Target
from jitnorm.launcher import launcher

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Place:
    """A device to run on.

    Attributes:
        target: the target to build kernels for.
        name: the device's name, for people to read.
        memory: copies arrays to the device and back.
        why_cpu: why the device is not a GPU; empty if it is.
    """

    target: Target
    name: str
    memory: HostMemory | CudaMemory
    why_cpu: str = ""


def first_gpu() -> Target:
    """The target of ``cuda:0``.

    Raises:
        RuntimeError: there is no driver or no GPU, or the launcher, which detects them, cannot be built.
        ValueError: the GPU is not supported.
    """
    if launcher().device_count() == 0:
        raise RuntimeError("the CUDA driver sees no GPU")
    return cuda_target(0)


def target_or_default(name: str | None) -> tuple[Target, str]:
    """The target of a name, or by default that of the first GPU, else the CPU and the reason.

    Raises:
        ValueError: the name is unknown.
    """
    if name is not None:
        return Target(name), ""
    try:
        return first_gpu(), ""
    except (RuntimeError, ValueError) as error:
        return Target("cpu"), str(error)


def find_place(*, only_cpu: bool = False) -> Place:
    """The first GPU if it is usable, else the CPU.

    Args:
        only_cpu: do not look for a GPU.

    Raises:
        RuntimeError: the launcher cannot be built.
    """
    launcher()  # the CPU needs it as well, so its absence must not look like that of a GPU
    if only_cpu:
        return _cpu("--cpu is given")
    try:
        return _gpu()
    except (RuntimeError, ValueError, ImportError) as error:
        return _cpu(str(error))


def _gpu() -> Place:
    from jitnorm.toolchains import select

    target = first_gpu()
    select(target)
    return Place(target, f"{launcher().device_name(0)} ({target})", CudaMemory(0))


def _cpu(why: str) -> Place:
    return Place(Target("cpu"), "the CPU", HostMemory(), why)


class HostMemory:
    """The host's memory, where arrays are passed as they are."""

    def put(self, array: NDArray[Any]) -> Any:
        """The array as an argument of an op."""
        return array

    def bytes_of(self, tensor: Any) -> NDArray[Any]:
        """The bytes of a tensor whose elements are one byte each, in its shape."""
        import numpy as np

        return tensor.view(np.uint8)  # type: ignore[no-any-return]


class CudaMemory:
    """A GPU's memory, as `tvm_ffi.Tensor`s on the default stream; needs no array framework, but the extra `cuda`.

    Args:
        device: ordinal of the GPU.

    Raises:
        ImportError: cuda-core, which copies, is not installed.
    """

    def __init__(self, device: int) -> None:
        try:
            from cuda.bindings import driver
            from cuda.core import Device
        except ImportError as error:
            raise ImportError(
                'cuda-core, which copies to and from the GPU, is missing: pip install "jitnorm[cuda]"'
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
        """A copy of the bytes of a dense tensor whose elements are one byte each, in its shape."""
        import numpy as np

        array = np.empty(tuple(tensor.shape), np.uint8)
        self._check(self._driver.cuMemcpyDtoH(array.ctypes.data, tensor.data_ptr(), array.nbytes))
        return array

    def _check(self, answer: tuple[Any, ...]) -> None:
        if answer[0] != self._driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"CUDA driver: a copy failed with {answer[0].name}")
