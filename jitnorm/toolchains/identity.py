"""Remembers what a compiler said about itself, so that a warm process need not start it to ask.

A memo is trusted as long as the compiler's files are the same ones: same real path, size, time of
change and inode.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

_FORMAT = 1  # raised when the text of an identity changes its meaning
_MAX_LENGTH = 500
_seen: dict[str, str] = {}


def memoised(files: Sequence[Path], probe: Callable[[], str], memo_dir: Path | None = None) -> str:
    """What ``probe`` answers about the compiler made of ``files``, asked at most once per state of the files.

    Args:
        files: the files whose change means that the answer may change.
        probe: asks the compiler; its answer is one line of printable ASCII, at most 500 characters.
        memo_dir: folder of the memos, made if needed. With None or an unwritable folder the answer
            is remembered for this process only.

    Raises:
        ValueError: the answer has another form.
        OSError: one of the files cannot be read.
    """
    stamp = repr((_FORMAT, [_state(file) for file in files]))
    if stamp in _seen:
        return _seen[stamp]
    memo = None if memo_dir is None else memo_dir / f"{_digest(stamp)}.txt"
    answer = None if memo is None else _read(memo)
    if answer is None:
        answer = probe()
        if not _well_formed(answer):
            raise ValueError(f"identity: {answer!r} is not one line of 1 to {_MAX_LENGTH} printable characters")
        if memo is not None:
            _write(memo, answer)
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


def _read(memo: Path) -> str | None:
    try:
        with open(memo, "rb") as file:
            answer = file.read(_MAX_LENGTH + 1).decode("ascii")
    except (OSError, UnicodeDecodeError):
        return None
    return answer if _well_formed(answer) else None


def _write(memo: Path, answer: str) -> None:
    import tempfile

    try:
        memo.parent.mkdir(parents=True, exist_ok=True)
        handle, private = tempfile.mkstemp(dir=memo.parent, prefix=".", suffix=".tmp")
    except OSError:
        return  # a memo only saves time
    try:
        with open(handle, "w", encoding="ascii") as file:
            file.write(answer)
        os.replace(private, memo)
    except OSError:
        os.unlink(private)
