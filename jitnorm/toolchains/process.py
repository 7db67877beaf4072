"""Runs compilers with a time limit, no longer than this process, isolated from locale and flag variables."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jitnorm.forks import no_fork
from jitnorm.toolchains.errors import CompileError
from jitnorm.toolchains.lifeline import Lifeline
from jitnorm.toolchains.workplace import Workplace, WorkplaceError, work_in

if TYPE_CHECKING:
    from jitnorm.kernels.target import Target

_PROBE_SECONDS = 30.0
# Any other variable, such as CPATH or NVCC_APPEND_FLAGS, could change the output without changing the cache key.
# Zig's cache holds the C++ library that it builds for each machine.
_INHERITED_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "HOME", "ZIG_GLOBAL_CACHE_DIR")
# How compilers report a full disk in the locale set here.
_FULL = ("No space left on device", "Disk quota exceeded")


class TimeLimitError(Exception):
    """A program exceeded its time limit; holds its output so far."""


def time_limit() -> float:
    """Time limit of one compilation in seconds: ``JITNORM_COMPILE_TIMEOUT``, by default 300."""
    text = os.environ.get("JITNORM_COMPILE_TIMEOUT", "300")
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ValueError(f"JITNORM_COMPILE_TIMEOUT: {text!r} is not a number of seconds; use one above 0")
    return seconds


def run(argv: Sequence[str], folder: Path | None, seconds: float) -> tuple[int, str]:
    """Run a program and return its exit status (negative: killed by that signal) and its output.

    The program and its children are killed with this process.

    Raises:
        TimeLimitError: it did not finish in time; it and its children were killed.
        OSError: it cannot be started.
    """
    with no_fork():
        import subprocess

    with contextlib.closing(Lifeline()) as lifeline, contextlib.ExitStack() as running:
        # A forked child would keep the program's pipes open.
        with no_fork():
            process = running.enter_context(
                subprocess.Popen(
                    argv,
                    cwd=folder,
                    env=_environment(folder),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    pass_fds=(lifeline.end,),
                )
            )
            running.enter_context(_killing_on_error(process.pid))
            lifeline.tie(process.pid)
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired as expired:
            raise TimeLimitError((expired.output or b"").decode("utf-8", "replace")) from None
        return process.returncode, output.decode("utf-8", "replace")


def ask(argv: Sequence[str], folder: Path | None = None) -> str:
    """Run a program briefly and return its output.

    Raises:
        RuntimeError: it cannot be started, fails or hangs.
    """
    command = " ".join(argv)
    try:
        status, output = run(argv, folder, _PROBE_SECONDS)
    except TimeLimitError:
        raise RuntimeError(f"{command}: no answer within {_PROBE_SECONDS:g} s") from None
    except OSError as error:
        raise RuntimeError(f"{command}: cannot be started: {error}") from None
    if status != 0:
        raise RuntimeError(f"{command}: {_describe(status)}: {output.strip()[:500]}")
    return output


def compile_file(
    argv: Sequence[str],
    *,
    source: str,
    source_name: str,
    output_name: str,
    toolchain: str,
    target: Target,
    workplaces: Sequence[Workplace],
) -> bytes:
    """Run a compiler in a private folder and return the file it produces.

    Args:
        argv: the command; file names are relative to the folder, so that no path gets into the output.
        source: the text to compile.
        source_name: the file that it is written to.
        output_name: the file that the compiler produces.
        toolchain: name of the toolchain, for the error.
        target: what it builds for, for the error.
        workplaces: factories of the folder; if one is unusable or full, the next is tried.

    Raises:
        CompileError: the compiler failed, was killed, exceeded the time limit or produced no file; or no folder is
            usable.
    """
    seconds = time_limit()

    def compile_in(folder: Path) -> bytes:
        (folder / source_name).write_text(source, encoding="utf-8")
        log = ""
        try:
            status, log = run(argv, folder, seconds)
            if status == 0:
                return (folder / output_name).read_bytes()
            reason = _describe(status)
        except TimeLimitError as error:
            reason, log = f"killed after {seconds:g} s, the limit in JITNORM_COMPILE_TIMEOUT", str(error)
        except FileNotFoundError as error:
            reason = f"no such file: {error.filename}"
        except OSError as error:
            reason = str(error) if error.filename is None else f"{error.strerror}: {error.filename}"
        if any(text in log for text in _FULL):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        raise CompileError(toolchain, str(target), reason, log, source)

    try:
        return work_in(workplaces, compile_in)
    except WorkplaceError as error:
        raise CompileError(toolchain, str(target), str(error), "", source) from None


def _environment(folder: Path | None) -> dict[str, str]:
    inherited = {name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ}
    own = {"LC_ALL": "C", "CCACHE_DISABLE": "1"}  # ccache would write outside the folder
    return inherited | own | ({} if folder is None else {"TMPDIR": str(folder)})


@contextlib.contextmanager
def _killing_on_error(leader: int) -> Iterator[None]:
    """Kill a process group if it exceeds its time, or if this process is interrupted meanwhile."""
    import signal

    try:
        yield
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(leader, signal.SIGKILL)
        raise


def _describe(status: int) -> str:
    import signal

    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"
