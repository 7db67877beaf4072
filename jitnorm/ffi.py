"""Imports TVM-FFI on first use, without what it would import for callers that may not use it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from functools import lru_cache
from importlib.machinery import ModuleSpec
from types import ModuleType

from jitnorm.forks import no_fork

# torch takes about a second. Its tensors carry the DLPack exchange protocol themselves, so torch can be imported later.
# cuda.bindings takes 0.1 s of 0.5. Its streams carry the protocol of streams themselves.
_HIDDEN = ("torch", "cuda.bindings")


class _Without:
    """A finder that makes imports of modules fail in the thread that created it; other threads are not affected.

    Has no base class, because importlib.abc would load shutil and tempfile with every `import jitnorm`.

    Args:
        names: of the modules.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names, self._thread = names, threading.get_ident()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in self._names and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(f"{fullname} is blocked during this import", name=fullname)
        return None


@lru_cache(maxsize=1)
def tvm_ffi() -> ModuleType:
    """Import and return the module `tvm_ffi`, which would otherwise import all of `_HIDDEN` that is installed."""
    with no_fork():  # a forked child would wait forever for a half-imported module
        finder = _Without([name for name in _HIDDEN if name not in sys.modules])
        sys.meta_path.insert(0, finder)
        try:
            import tvm_ffi as module
        finally:
            sys.meta_path.remove(finder)
        return module
