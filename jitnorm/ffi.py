"""Imports TVM-FFI on first use, without importing torch."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from functools import lru_cache
from importlib.machinery import ModuleSpec
from types import ModuleType

from jitnorm.forks import no_fork


class _WithoutTorch:
    """A finder that makes `import torch` fail in the thread that created it; other threads are not affected.

    Has no base class, because importlib.abc would load shutil and tempfile with every `import jitnorm`.
    """

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "torch" and threading.get_ident() == self._thread:
            raise ModuleNotFoundError("torch is blocked during this import", name="torch")
        return None


@lru_cache(maxsize=1)
def tvm_ffi() -> ModuleType:
    """Import and return the module `tvm_ffi`.

    Otherwise it would import torch if installed, which takes about a second, even for callers that use NumPy or JAX.
    Torch tensors carry the DLPack exchange protocol themselves, so torch can be imported later.
    """
    with no_fork():  # a forked child would wait forever for a half-imported module
        hides_torch = "torch" not in sys.modules
        finder = _WithoutTorch()
        if hides_torch:
            sys.meta_path.insert(0, finder)
        try:
            import tvm_ffi as module
        finally:
            if hides_torch:
                sys.meta_path.remove(finder)
        return module
