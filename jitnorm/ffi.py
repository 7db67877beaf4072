"""TVM-FFI, imported when it is first needed and without dragging torch in."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Sequence
from functools import lru_cache
from importlib.machinery import ModuleSpec
from types import ModuleType


class _WithoutTorch:
    """A finder that makes `import torch` fail in the thread that made it; other threads see nothing of it.

    It has no base class: importlib.abc would load shutil and tempfile with every `import jitnorm`.
    """

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "torch" and threading.get_ident() == self._thread:
            raise ModuleNotFoundError("torch is kept out of this import", name="torch")
        return None


# A module that a thread is importing stays half imported in a forked child, and its import lock held: forks wait.
_importing = threading.RLock()
_FORK_WAITS_SECONDS = 10.0


def _after_fork_in_parent() -> None:
    with contextlib.suppress(RuntimeError):  # the wait has ended without it
        _importing.release()


def _after_fork_in_child() -> None:
    global _importing
    _importing = threading.RLock()


os.register_at_fork(
    before=lambda: _importing.acquire(timeout=_FORK_WAITS_SECONDS) and None,
    after_in_parent=_after_fork_in_parent,
    after_in_child=_after_fork_in_child,
)


@lru_cache(maxsize=1)
def tvm_ffi() -> ModuleType:
    """The module `tvm_ffi`.

    Its import would import torch wherever torch is installed, at a cost of about a second, also for callers who
    use NumPy or JAX. Torch tensors carry the DLPack exchange protocol themselves, so torch may come later.
    """
    with _importing:
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
