"""Tensors of the caller's library in the window of a rank."""

from __future__ import annotations

import math
from typing import Any

from jitnorm.comm.memory import Memory
from jitnorm.interop import framework_of
from jitnorm.kernels.quant_spec import require_one_of
from jitnorm.launcher import launcher


def library_of(tensor: Any) -> str:
    """The library of a tensor that can be in a window: torch or numpy.

    Raises:
        TypeError: it belongs to another one.
    """
    name = type(framework_of(tensor, "input")).__name__.lower()
    if name not in ("torch", "numpy"):
        raise TypeError(f"input: is of {name}; tensors in a window are those of torch or NumPy, so convert it")
    return name


def example_of(library: str, device: int) -> Any:
    """An empty tensor of a library, on a CUDA device or, for -1, the host."""
    require_one_of("library", library, ("torch", "numpy"))
    if library == "torch":
        import torch

        return torch.empty(0, device="cpu" if device < 0 else f"cuda:{device}")
    import numpy as np

    return np.empty(0, np.uint8)


def address_of(tensor: Any) -> int:
    """The address of the first element of a tensor."""
    return int(tensor.data_ptr() if library_of(tensor) == "torch" else tensor.ctypes.data)


def tensor_at(like: Any, address: int, shape: tuple[int, ...], dtype: str, memory: Memory) -> Any:
    """A dense tensor at an address, of the library of `like`.

    Args:
        like: any tensor of the library.
        address: of its elements.
        shape: of the tensor.
        dtype: its DLPack name; where the library lacks it, bytes take its place.
        memory: the object that owns the memory, which the tensor keeps alive.
    """
    found = framework_of(like, "input").empty((0,), dtype, like).dtype
    size = math.prod(shape) * found.itemsize
    flat = launcher().at_address((size,), "uint8", memory.device, address, memory)
    return _imported(like, flat).view(found).reshape(shape)


def copied(to: Any, tensor: Any) -> Any:
    """`to`, filled with the elements of a tensor."""
    if library_of(tensor) == "torch":
        return to.copy_(tensor)
    to[...] = tensor
    return to


def _imported(like: Any, tensor: Any) -> Any:
    if library_of(like) == "torch":
        import torch

        return torch.from_dlpack(tensor)
    import numpy as np

    return np.from_dlpack(tensor)
