"""Errors of toolchains. Messages are composed of parts, each of which is also an attribute."""

from __future__ import annotations

import re
from collections.abc import Sequence

_LOG_CHARACTERS_SHOWN = 4000
_LINES_AROUND_ERROR = 2
# Compilers locate errors in our source as "kernel.cpp:3:5: error: ..." or "kernel.cu(3): error: ...".
_ERROR_LINE = re.compile(r"^kernel\.\w+[(:](\d+)\b.*\berror\b", re.MULTILINE)


class ToolchainMissingError(RuntimeError):
    """A compiler is not installed.

    Args:
        what: the missing compiler.
        looked: the places that were searched.
        remedy: what the user can install or set.
    """

    def __init__(self, what: str, looked: Sequence[str], remedy: str) -> None:
        super().__init__(what, looked, remedy)
        self.what, self.looked, self.remedy = what, tuple(looked), remedy

    def __str__(self) -> str:
        return f"{self.what} was not found; looked at: {'; '.join(self.looked)}; remedy: {self.remedy}"


class CompileError(RuntimeError):
    """A compiler rejected a source, crashed or took too long.

    Args:
        toolchain: name of the toolchain.
        target: name of the target.
        reason: one line, such as ``exit status 1`` or ``killed by SIGSEGV``.
        log: everything the compiler wrote; the message shows the beginning.
        source: the compiled text; the message shows the lines around the first error.
    """

    def __init__(self, toolchain: str, target: str, reason: str, log: str, source: str) -> None:
        super().__init__(toolchain, target, reason, log, source)
        self.toolchain, self.target, self.reason, self.log, self.source = (
            toolchain,
            target,
            reason,
            log,
            source,
        )

    def __str__(self) -> str:
        headline = f"{self.toolchain}: compiling for {self.target} failed: {self.reason}"
        return "\n".join(part for part in (headline, _shortened(self.log), self.excerpt) if part)

    @property
    def excerpt(self) -> str:
        """The numbered source lines around the first error; empty if the log names no line."""
        found = _ERROR_LINE.search(self.log)
        if found is None:
            return ""
        at = int(found[1])
        numbered = list(enumerate(self.source.splitlines(), start=1))
        nearby = numbered[max(0, at - 1 - _LINES_AROUND_ERROR) : at + _LINES_AROUND_ERROR]
        return "\n".join(f"{'>' if number == at else ' '}{number:5} | {line}" for number, line in nearby)


def _shortened(log: str) -> str:
    log = log.strip()
    left_out = len(log) - _LOG_CHARACTERS_SHOWN
    if left_out <= 0:
        return log
    return f"{log[:_LOG_CHARACTERS_SHOWN]}\n... {left_out} more characters in the attribute `log`"
