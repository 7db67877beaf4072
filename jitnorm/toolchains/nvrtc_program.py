"""Compiles one program to a cubin or to PTX, by the C functions of the NVRTC library.

Calls go through ctypes: a build takes 0.1 s, and importing NVIDIA's bindings 0.07 s, cuda-core 0.2 s more.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path


class NvrtcError(RuntimeError):
    """NVRTC rejected a program.

    Args:
        reason: the name of the status, such as ``NVRTC_ERROR_COMPILATION``.
        log: the compiler's output.
    """

    def __init__(self, reason: str, log: str = "") -> None:
        super().__init__(reason, log)
        self.reason, self.log = reason, log


def cubin_of(library: Path, source: str, name: str, options: tuple[str, ...]) -> bytes:
    """Compile a CUDA source to machine code; NvrtcError with the log if it does not compile."""
    with _compiled(library, source, name, options) as program:
        return program.read("CUBIN")


def ptx_of(library: Path, source: str, name: str, options: tuple[str, ...] = ()) -> str:
    """Compile a CUDA source to PTX; NvrtcError with the log if it does not compile."""
    with _compiled(library, source, name, options) as program:
        return program.read("PTX").rstrip(b"\0").decode("ascii", "replace")


@cache
def _load(library: Path) -> ctypes.CDLL:
    loaded = ctypes.CDLL(str(library))
    # The library opens its second half by name, but the wheel of NVRTC 13.0 lacks the run path to it.
    major = library.name.rpartition(".")[2]
    for builtins in sorted(library.parent.glob(f"libnvrtc-builtins.so.{major}.*")):
        ctypes.CDLL(str(builtins), ctypes.RTLD_GLOBAL)
    loaded.nvrtcGetErrorString.restype = ctypes.c_char_p
    return loaded


class _Program:
    """An nvrtcProgram."""

    def __init__(self, library: ctypes.CDLL, source: str, name: str) -> None:
        self._library, self._handle = library, ctypes.c_void_p()
        created = library.nvrtcCreateProgram(ctypes.byref(self._handle), source.encode(), name.encode(), 0, None, None)
        self._check(created)

    def compile(self, options: tuple[str, ...]) -> None:
        texts = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        status = self._library.nvrtcCompileProgram(self._handle, len(options), texts)
        if status != 0:
            self._check(status, self.read("ProgramLog").rstrip(b"\0").decode("utf-8", "replace"))

    def read(self, what: str) -> bytes:
        """Read ``CUBIN``, ``PTX`` or ``ProgramLog``."""
        size = ctypes.c_size_t()
        self._check(getattr(self._library, f"nvrtcGet{what}Size")(self._handle, ctypes.byref(size)))
        buffer = ctypes.create_string_buffer(size.value)
        self._check(getattr(self._library, f"nvrtcGet{what}")(self._handle, buffer))
        return buffer.raw

    def destroy(self) -> None:
        self._library.nvrtcDestroyProgram(ctypes.byref(self._handle))

    def _check(self, status: int, log: str = "") -> None:
        if status != 0:
            raise NvrtcError(self._library.nvrtcGetErrorString(status).decode(), log)


@contextmanager
def _compiled(library: Path, source: str, name: str, options: tuple[str, ...]) -> Iterator[_Program]:
    program = _Program(_load(library), source, name)
    try:
        program.compile(options)
        yield program
    finally:
        program.destroy()
