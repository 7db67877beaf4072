"""What is asked of NVRTC, once its library is loaded: one program to a cubin or to PTX.

This goes through cuda-bindings, on which cuda-core rests: importing cuda-core itself costs 0.2 s more.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class NvrtcError(RuntimeError):
    """NVRTC refused a program.

    Args:
        reason: the name of the status, such as ``NVRTC_ERROR_COMPILATION``.
        log: what the compiler wrote.
    """

    def __init__(self, reason: str, log: str = "") -> None:
        super().__init__(reason, log)
        self.reason, self.log = reason, log


def cubin_of(source: str, name: str, options: tuple[str, ...]) -> bytes:
    """Machine code of a CUDA source; NvrtcError, with the log, if it does not compile."""
    from cuda.bindings import nvrtc

    with _compiled(source, name, options) as program:
        cubin = bytearray(_checked(nvrtc.nvrtcGetCUBINSize(program)))
        _checked(nvrtc.nvrtcGetCUBIN(program, cubin))
    return bytes(cubin)


def ptx_of(source: str, name: str, options: tuple[str, ...] = ()) -> str:
    """PTX of a CUDA source; NvrtcError, with the log, if it does not compile."""
    from cuda.bindings import nvrtc

    with _compiled(source, name, options) as program:
        ptx = bytearray(_checked(nvrtc.nvrtcGetPTXSize(program)))
        _checked(nvrtc.nvrtcGetPTX(program, ptx))
    return _text(ptx)


@contextmanager
def _compiled(source: str, name: str, options: tuple[str, ...]) -> Iterator[Any]:
    from cuda.bindings import nvrtc

    program = _checked(nvrtc.nvrtcCreateProgram(source.encode(), name.encode(), 0, [], []))
    try:
        status = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])[0]
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise NvrtcError(status.name, _log_of(program))
        yield program
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _log_of(program: Any) -> str:
    from cuda.bindings import nvrtc

    log = bytearray(_checked(nvrtc.nvrtcGetProgramLogSize(program)))
    _checked(nvrtc.nvrtcGetProgramLog(program, log))
    return _text(log)


def _text(buffer: bytearray) -> str:
    return buffer.rstrip(b"\0").decode("utf-8", "replace")


def _checked(answer: tuple[Any, ...]) -> Any:
    """The value of a call that cuda-bindings answers with (status, value)."""
    status, *values = answer
    if status.value != 0:
        raise NvrtcError(status.name)
    return values[0] if values else None
