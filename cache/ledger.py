"""How much disk space a cache takes, as a running total that all processes share.

A text file: first what was measured and when, in seconds since the epoch, then a signed number a line for what was
added or removed since. A line is appended in one write, so no writer waits for another or loses what it says. Without
a first line like that nobody knows the total. It is a hint: files that nobody counts make it drift until the cache is
measured again.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from jitnorm.cache.files import make_folder
from jitnorm.cache.layout import Layout
from jitnorm.cache.private import private_folder

_TRIES = 3
_MOST_BYTES = 1 << 16
# A ledger is begun anew long before it has as many.
_READ_BYTES, _PIECE_BYTES = 1 << 24, 1 << 20
_DUE_AFTER_SECONDS = 86400.0
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class Total:
    """What a ledger says.

    Attributes:
        space: bytes on the disk.
        is_due: whether the cache should be measured again, as the ledger is old, long or an estimate.
    """

    space: int
    is_due: bool


def add(layout: Layout, change: int) -> Total | None:
    """Count ``change`` bytes, and return the total with them; None if it is not known."""
    line = f"{change:+d}\n".encode()
    with contextlib.suppress(OSError, ValueError):
        for _ in range(_TRIES):
            descriptor = _open(layout)
            try:
                if change:
                    os.write(descriptor, line)
                if _is_at(descriptor, layout.ledger):  # if not, it was replaced meanwhile
                    return _parse(_read(descriptor))
            finally:
                os.close(descriptor)
    return None


class Recount:
    """A new beginning of the ledger, from a measurement that starts now; one at a time. Fails silently.

    What is added meanwhile counts as not measured, so that the new total is rather too high than too low.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._old: int | None = None
        self._seen = 0

    def __enter__(self) -> Recount:
        with contextlib.suppress(OSError):
            self._old = _open(self._layout)
            self._seen = os.fstat(self._old).st_size
        return self

    def finish(self, space: int, *, is_exact: bool) -> None:
        """Begin anew with ``space`` bytes; not if the ledger is no longer the one that was there."""
        path = self._layout.ledger
        if self._old is None or not _is_at(self._old, path):
            return
        late = b""
        with contextlib.suppress(OSError), private_folder(self._layout.private) as folder:
            new = folder / path.name
            first = f"{space} {time.time() if is_exact else 0:.0f}\n".encode()
            descriptor = os.open(new, _FLAGS | os.O_EXCL, 0o600)
            try:
                os.write(descriptor, first + self._added())  # unsynced: it need not outlive a loss of power
            finally:
                os.close(descriptor)
            new.rename(path)
            late += self._added()  # whoever comes later finds that the old ledger is no longer in its place
        for line in late.split():
            add(self._layout, int(line))

    def __exit__(self, *_: object) -> None:
        if self._old is not None:
            os.close(self._old)

    def _added(self) -> bytes:
        """The new lines of the old ledger that count something as added."""
        assert self._old is not None
        data = _read(self._old, self._seen)
        self._seen += len(data)
        return b"".join(line + b"\n" for line in data.split(b"\n") if re.fullmatch(rb"[+][0-9]+", line))


def _open(layout: Layout) -> int:
    try:
        return os.open(layout.ledger, _FLAGS, 0o600)
    except FileNotFoundError:
        make_folder(layout.version)
        return os.open(layout.ledger, _FLAGS, 0o600)


def _read(descriptor: int, begin: int = 0) -> bytes:
    parts, end = [], begin + _READ_BYTES
    while part := os.pread(descriptor, min(_PIECE_BYTES, end - begin), begin):
        parts.append(part)
        begin += len(part)
    if begin == end:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    return b"".join(parts)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


def _parse(data: bytes) -> Total:
    """Read a ledger; a `ValueError` if it is damaged or its total is not known."""
    first, _, rest = data.partition(b"\n")
    space, when = map(int, first.split())
    is_old = abs(time.time() - when) > _DUE_AFTER_SECONDS  # or from the future, by a clock that was wrong
    return Total(space + sum(map(int, rest.split())), is_old or len(data) > _MOST_BYTES)
