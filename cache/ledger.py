"""Keeps a running total of the cache's disk space, shared by all processes.

The ledger is a text file: the first line has the last measurement and its time in seconds since the epoch, each further
line a signed number for space added or freed since. Lines are appended in one write, so no writer waits for another or
loses a number. Without a valid first line the total is unknown. The total is a hint: uncounted files make it drift
until the cache is measured again.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from typing import NamedTuple

from jitnorm.cache.files import GONE, is_at, make_folder
from jitnorm.cache.flock import locked_open
from jitnorm.cache.layout import Layout
from jitnorm.cache.private import private_folder

_TRIES = 3
_MOST_BYTES = 1 << 16
# A ledger is restarted long before it has this many bytes.
_READ_BYTES, _PIECE_BYTES = 1 << 24, 1 << 20
_DUE_AFTER_SECONDS = 86400.0
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class Total(NamedTuple):
    """The state of a ledger.

    Attributes:
        space: bytes on the disk.
        is_due: whether the cache should be measured again, because the ledger is old, long or an estimate.
    """

    space: int
    is_due: bool


def add(layout: Layout, change: int) -> Total | None:
    """Add ``change`` bytes, and return the new total; None if it is unknown."""
    line = f"{change:+d}\n".encode()
    with contextlib.suppress(OSError, ValueError):
        for _ in range(_TRIES):
            descriptor = _open(layout)
            try:
                if change:
                    os.write(descriptor, line)
                if is_at(descriptor, layout.ledger):  # otherwise it was replaced meanwhile
                    return _parse(_read(descriptor))
            except OSError as error:
                if error.errno not in GONE:  # and another host did that
                    raise
            finally:
                os.close(descriptor)
    return None


class Recount:
    """Restarts the ledger from a measurement that starts now; one at a time. Fails silently.

    Space added meanwhile counts as not measured, so the new total may be too high, but never too low.
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
        """Restart with ``space`` bytes, unless the ledger was replaced meanwhile."""
        path = self._layout.ledger
        late = b""
        with contextlib.suppress(OSError):
            if self._old is None:
                return
            # Locked, because another recount could replace it meanwhile, and what was added since would be lost.
            with locked_open(self._old) as alone, private_folder(self._layout.private) as folder:
                if not (alone and is_at(self._old, path)):
                    return
                new = folder / path.name
                first = f"{space} {time.time() if is_exact else 0:.0f}\n".encode()
                descriptor = os.open(new, _FLAGS | os.O_EXCL, 0o600)
                try:
                    os.write(descriptor, first + self._added())  # unsynced: it need not survive a power failure
                finally:
                    os.close(descriptor)
                new.rename(path)
                late += self._added()  # later writers notice that the old ledger is no longer in its place
        for line in late.split():
            add(self._layout, int(line))

    def __exit__(self, *_: object) -> None:
        if self._old is not None:
            os.close(self._old)

    def _added(self) -> bytes:
        """The new lines of the old ledger that add space."""
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


def _parse(data: bytes) -> Total:
    """Parse a ledger; `ValueError` if it is damaged or its total is unknown."""
    first, _, rest = data.partition(b"\n")
    space, when = map(int, first.split())
    is_old = abs(time.time() - when) > _DUE_AFTER_SECONDS  # or in the future, written with a wrong clock
    return Total(space + sum(map(int, rest.split())), is_old or len(data) > _MOST_BYTES)
