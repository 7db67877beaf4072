"""Coverage of code: lines of Python, and branches of native code that was built with instrumentation."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

_EDGES = 1 << 16  # as in edges.c


class Coverage:
    """The lines run in some folders of Python, and the branches of native code where scripts/readers/edges.c is loaded.

    Args:
        folders: whose modules count.
    """

    def __init__(self, *folders: Path) -> None:
        self._folders = tuple(map(str, folders))
        self._seen: set[tuple[CodeType, int, int]] = set()
        self._new = False
        process = ctypes.CDLL(None)
        self._edges = None
        if hasattr(process, "jitnorm_edges"):
            native = (ctypes.c_uint8 * _EDGES).in_dll(process, "jitnorm_edges")
            self._edges, self._seen_edges = np.frombuffer(native, np.uint8), np.zeros(_EDGES, np.uint8)

    def extended_by(self, work: Callable[[], object]) -> bool:
        """Whether work takes a branch that none before took."""
        self._new = False
        if self._edges is not None:
            self._edges[:] = 0
        sys.settrace(self._trace)
        try:
            work()
        finally:
            sys.settrace(None)
        if self._edges is not None:
            self._new |= bool((self._edges & ~self._seen_edges).any())
            self._seen_edges |= self._edges
        return self._new

    @property
    def size(self) -> int:
        """How many branches have been taken."""
        return len(self._seen) + (0 if self._edges is None else int(np.count_nonzero(self._seen_edges)))

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(self._folders):
            return None
        code, last = frame.f_code, 0

        def step(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal last
            branch = (code, last, frame.f_lineno)
            if branch not in self._seen:
                self._seen.add(branch)
                self._new = True
            last = frame.f_lineno
            return step

        return step
