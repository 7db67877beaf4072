"""Records which entries living processes have loaded, so that pruning spares them.

A process holds one file open and locked for each cache that it loads from, and adds the keys that it loads. The kernel
releases the lock with the process and its last forked child. Where a lock proves nothing, on another host or on a file
system without locks, a file counts for a day.

Creating or emptying a file would take longer than everything else here, so processes take over the files of dead ones:
each line has the token of its writer, and lines of earlier writers are ignored.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from jitnorm.cache.files import GONE, is_at, make_folder
from jitnorm.cache.flock import try_lock
from jitnorm.cache.layout import Layout
from jitnorm.cache.process import host_token, is_dead

_UNSURE_FOR_SECONDS = 86400.0
_NO_FILE = -1
# The first line, "TOKEN locked|unlocked PID", has this length; then comes one line per key, "TOKEN KEY".
_HEADER_BYTES = 64
_LINE_BYTES = 16 + 1 + 64 + 1
# If a process has loaded more than any should, only some of it counts.
_MAX_BYTES = _HEADER_BYTES + 200_000 * _LINE_BYTES
# Files to take over, per host. Processes often start together, so they start looking at different places.
_SLOTS = 128
_FIRST_SLOTS = 8


@dataclass
class _Record:
    descriptor: int
    token: str = ""
    keys: set[str] = field(default_factory=set)
    lines: Iterator[int] = field(default_factory=itertools.count)


_records: dict[Path, _Record] = {}


def note_use(layout: Layout, key: str) -> None:
    """Record that this process has loaded ``key``, or is about to publish it. Best effort: fails silently."""
    with contextlib.suppress(OSError):
        record = _records.get(layout.root) or _start_record(layout)
        if record.descriptor == _NO_FILE:
            return
        if _is_removed(record.descriptor):  # the cache was deleted, and this file with it
            release_uses(layout)
            record = _start_record(layout)
        if key not in record.keys:
            record.keys.add(key)
            place = _HEADER_BYTES + next(record.lines) * _LINE_BYTES
            os.pwrite(record.descriptor, f"{record.token} {key}\n".encode(), place)


def release_uses(layout: Layout) -> None:
    """Record that this process no longer uses anything in a cache."""
    record = _records.pop(layout.root, None)
    if record is not None and record.descriptor != _NO_FILE:
        os.close(record.descriptor)


def keys_in_use(layout: Layout, *, dry_run: bool = False) -> set[str]:
    """The keys that living processes have loaded. Removes the files of dead ones, unless ``dry_run``."""
    keys: set[str] = set()
    with contextlib.suppress(FileNotFoundError):
        for path in [Path(item) for item in os.scandir(layout.uses)]:
            with contextlib.suppress(OSError):
                keys |= _keys_in(path, dry_run)
    return keys


def _is_removed(descriptor: int) -> bool:
    try:
        return os.fstat(descriptor).st_nlink == 0
    except OSError as error:
        return error.errno in GONE


def _start_record(layout: Layout) -> _Record:
    mine = _Record(_NO_FILE)
    with contextlib.suppress(OSError):
        mine.descriptor, locked = _open_file(layout)
        mine.token = os.urandom(8).hex()
        header = f"{mine.token} {'locked' if locked else 'unlocked'} {os.getpid()}"
        os.pwrite(mine.descriptor, f"{header.ljust(_HEADER_BYTES - 1)}\n".encode(), 0)
    # Atomic among threads, and unlike a lock it cannot be held during a fork.
    first = _records.setdefault(layout.root, mine)
    if first is not mine and mine.descriptor != _NO_FILE:
        os.close(mine.descriptor)
    return first


def _open_file(layout: Layout) -> tuple[int, bool]:
    """Open a file that nobody uses; return its descriptor, and whether it is locked."""
    prefix = f"{layout.uses}/{host_token()}."
    first = os.getpid() % _FIRST_SLOTS
    for slot in range(first, first + _SLOTS):
        descriptor = _open_or_create(layout, f"{prefix}{slot % _SLOTS}")
        locked = try_lock(descriptor)
        if locked:
            return descriptor, True
        os.close(descriptor)
        if locked is None:
            break
    return _open_or_create(layout, f"{prefix}{os.getpid()}-{os.urandom(8).hex()}"), False


def _open_or_create(layout: Layout, path: str) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        make_folder(layout.uses)
        return os.open(path, flags, 0o600)


def _keys_in(path: Path, dry_run: bool) -> set[str]:
    """The keys in a file if its process may be alive; otherwise remove it."""
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, encoding="utf-8", errors="replace") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return set()
        is_free = try_lock(descriptor)
        header, *lines = file.read(_MAX_BYTES).split("\n")
        if is_free is not False and not _may_live(path, header, found.st_mtime, is_free is True):
            # While the lock is held, so that nobody else can have taken it over; but another pruner may have removed it
            # before, and a living process have created the file that is there now.
            if not dry_run and is_at(descriptor, path):
                path.unlink()
            return set()
    mine = header.partition(" ")[0] + " "
    return {line[len(mine) :] for line in lines if line.startswith(mine) and len(line) == _LINE_BYTES - 1}


def _may_live(path: Path, header: str, modified: float, is_free: bool) -> bool:
    """Whether the process of an unlocked file may be alive."""
    _, state, pid, *_ = (*header.split(), "", "", "")
    if path.name.rpartition(".")[0] == host_token():
        if is_free and state == "locked":
            return False
        if pid.isdecimal() and is_dead(int(pid)):
            return False
    return abs(time.time() - modified) < _UNSURE_FOR_SECONDS


# A child keeps its parent's files open, and so locked, for the entries it inherited, and starts its own files.
os.register_at_fork(after_in_child=_records.clear)
