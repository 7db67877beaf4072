"""Runs compilers: bounded in time and by this process's life, deaf to the user's locale and flag variables."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jitnorm.forks import no_fork
from jitnorm.toolchains.errors import CompileError
from jitnorm.toolchains.lifeline import Lifeline
from jitnorm.toolchains.workplace import Workplace, WorkplaceError, work_in

if TYPE_CHECKING:
    from jitnorm.kernels.target import Target

_PROBE_SECONDS = 30.0
# Anything else, such as CPATH or NVCC_APPEND_FLAGS, could change the output behind the cache key's back.
# Zig keeps the C++ library that it builds for each machine there.
_INHERITED_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "HOME", "ZIG_GLOBAL_CACHE_DIR")
# What compilers call it, in the locale that they have here.
_FULL = ("No space left on device", "Disk quota exceeded")


class TimeLimitError(Exception):
    """The program ran longer than it may; holds what it had written."""


def time_limit() -> float:
    """Seconds that one compilation may take: ``JITNORM_COMPILE_TIMEOUT``, by default 300."""
    text = os.environ.get("JITNORM_COMPILE_TIMEOUT", "300")
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ValueError(f"JITNORM_COMPILE_TIMEOUT: {text!r} is not a number of seconds; use one above 0")
    return seconds


def run(argv: Sequence[str], folder: Path | None, seconds: float) -> tuple[int, str]:
    """Run a program and return its exit status (negative: killed by that signal) and all that it wrote.

    It and all that it starts are killed with this process.

    Raises:
        TimeLimitError: it did not finish in time; it and all that it started have been killed.
        OSError: it cannot be started.
    """
    import subprocess

    with contextlib.closing(Lifeline()) as lifeline, contextlib.ExitStack() as running:
        # A forked child would keep the ends of pipes open that the program is given.
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
            lifeline.tie(process.pid)
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired as expired:
            _kill_group(process.pid)
            raise TimeLimitError((expired.output or b"").decode("utf-8", "replace")) from None
        except BaseException:
            _kill_group(process.pid)
            raise
        return process.returncode, output.decode("utf-8", "replace")


def ask(argv: Sequence[str], folder: Path | None = None) -> str:
    """What a program answers, for probes.

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
    """Run a compiler in a folder of its own and return the file that it makes.

    Args:
        argv: the command; it names its files relative to that folder, so that no path gets into the output.
        source: the text to compile.
        source_name: the file that it is written to.
        output_name: the file that the compiler makes.
        toolchain: its name, for the error.
        target: what it builds for, for the error.
        workplaces: what makes the folder; the next is taken where one cannot be used or is full.

    Raises:
        CompileError: the compiler failed, was killed, exceeded the time limit or made nothing; or no folder will do.
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


def _kill_group(leader: int) -> None:
    import signal

    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def _describe(status: int) -> str:
    import signal

    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"
