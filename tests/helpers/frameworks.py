"""The same values as tensors of each framework."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray


def to_numpy(array: NDArray[Any]) -> Any:
    return array


def to_torch(array: NDArray[Any], device: str = "cpu") -> Any:
    """A torch tensor with its own memory; strides are not kept."""
    import torch

    stored = np.ascontiguousarray(array)
    if stored.dtype.kind == "V" or stored.dtype.name in ("bfloat16", "float8_e4m3fn"):
        bits = torch.tensor(stored.view(f"i{stored.dtype.itemsize}"))
        return bits.view(getattr(torch, array.dtype.name)).to(device)
    return torch.tensor(stored).to(device)


def to_jax(array: NDArray[Any]) -> Any:
    import jax

    return jax.device_put(array, jax.devices("cpu")[0])


def to_tvm(array: NDArray[Any]) -> Any:
    import tvm_ffi

    return tvm_ffi.from_dlpack(to_torch(array))


CPU_FRAMEWORKS: dict[str, Callable[[NDArray[Any]], Any]] = {
    "numpy": to_numpy,
    "torch": to_torch,
    "jax": to_jax,
    "tvm_ffi": to_tvm,
}


def to_torch_cuda(array: NDArray[Any]) -> Any:
    return to_torch(array, "cuda")


def to_cupy(array: NDArray[Any]) -> Any:
    import cupy

    if array.dtype.name in ("float16", "float32", "uint8"):
        return cupy.asarray(array)
    try:
        return cupy.asarray(array.view(f"u{array.dtype.itemsize}")).view(array.dtype)
    except (TypeError, ValueError):
        pytest.skip(f"this CuPy has no {array.dtype.name}")


def to_jax_gpu(array: NDArray[Any]) -> Any:
    import jax

    return jax.device_put(array, jax.devices("gpu")[0])


def to_tvm_cuda(array: NDArray[Any]) -> Any:
    import torch
    import tvm_ffi

    tensor = to_torch_cuda(array)
    torch.cuda.synchronize()
    return tvm_ffi.from_dlpack(tensor)


GPU_FRAMEWORKS: dict[str, Callable[[NDArray[Any]], Any]] = {
    "torch": to_torch_cuda,
    "cupy": to_cupy,
    "jax": to_jax_gpu,
    "tvm_ffi": to_tvm_cuda,
}
