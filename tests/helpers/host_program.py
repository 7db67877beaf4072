"""C++ compiled from the kernels' headers and called through ctypes."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.generator import compose
from jitnorm.kernels.target import Target
from numpy.typing import NDArray

from jitnorm.toolchains.cxx import Cxx


def load_with_headers(config: KernelConfig, functions: str, folder: Path) -> ctypes.CDLL:
    """Compile functions with the CPU kernels' headers that they use, for a configuration."""
    compiler = Cxx()
    library = folder / f"{abs(hash((config, functions)))}.so"
    text = compose(config, Target("cpu"), functions)
    library.write_bytes(compiler.build_shared(text, compiler.flags()))
    return ctypes.CDLL(str(library))


def pointer(array: NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def call_over(function: Any, values: NDArray[Any], result_dtype: Any) -> NDArray[Any]:
    """The output of ``function(const In* from, Int64 count, Out* to)`` for contiguous `values`."""
    values = np.ascontiguousarray(values)
    results = np.empty(values.shape, result_dtype)
    function(pointer(values), ctypes.c_int64(values.size), pointer(results))
    return results
