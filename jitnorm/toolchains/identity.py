"""Remembers how compilers identify themselves, so that a warm process need not start them.

A memo is valid while the compiler's files are unchanged: same real path, size, modification time and inode.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

_FORMAT = 1  # raised when the meaning of an identity's text changes
_MAX_LENGTH = 500
_seen: dict[str, str] = {}


class MemoFolder(Protocol):
    """A folder that keeps memos. Nobody but this user can have written what it returns."""

    def read(self, name: str, limit: int) -> bytes:
        """Read a memo; OSError if there is none of at most ``limit`` bytes."""

    def write(self, name: str, content: bytes) -> None:
        """Write a memo atomically; OSError if that is not possible."""


def memoised(files: Sequence[Path], probe: Callable[[], str], memo_dir: MemoFolder | None = None) -> str:
    """The identity that ``probe`` returns for a compiler made of ``files``, asked at most once per state of the files.

    Args:
        files: files that may change the answer when they change.
        probe: asks the compiler; returns one line of printable ASCII, at most 500 characters.
        memo_dir: the folder for memos. With None or an unwritable folder, only this process remembers the answer.

    Raises:
        ValueError: the answer is malformed.
        OSError: one of the files cannot be read.
    """
    stamp = repr((_FORMAT, [_state(file) for file in files]))
    if stamp in _seen:
        return _seen[stamp]
    memo = f"{_digest(stamp)}.txt"
    answer = None if memo_dir is None else _read(memo_dir, memo)
    if answer is None:
        answer = probe()
        if not _well_formed(answer):
            raise ValueError(f"identity: {answer!r} is not one line of 1 to {_MAX_LENGTH} printable characters")
        if memo_dir is not None:
            with contextlib.suppress(OSError):  # a memo only saves time
                memo_dir.write(memo, answer.encode("ascii"))
    _seen[stamp] = answer
    return answer


def _state(file: Path) -> tuple[str, int, int, int]:
    real = os.path.realpath(file)
    status = os.stat(real)
    return real, status.st_size, status.st_mtime_ns, status.st_ino


def _digest(stamp: str) -> str:
    import hashlib

    return hashlib.sha256(stamp.encode("utf-8", "surrogateescape")).hexdigest()


def _well_formed(answer: str) -> bool:
    return 0 < len(answer) <= _MAX_LENGTH and answer.isascii() and answer.isprintable()


def _read(memo_dir: MemoFolder, name: str) -> str | None:
    try:
        answer = memo_dir.read(name, _MAX_LENGTH).decode("ascii")
    except (OSError, UnicodeDecodeError):
        return None
    return answer if _well_formed(answer) else None
