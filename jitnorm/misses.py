"""Handles misses: JITNORM_JIT decides whether to compile, and the record lists what was missing."""

from __future__ import annotations

import json
import logging
import os
import shlex
import time
from pathlib import Path

from jitnorm.cache import Store
from jitnorm.cache.files import make_folder

JIT_VARIABLE = "JITNORM_JIT"
MODES = ("auto", "deny", "record")

_LOG = logging.getLogger("jitnorm.cache")
_recorded: dict[tuple[Path, str, str], object] = {}


def jit_mode() -> str:
    """One of `MODES`: ``auto`` compiles misses, ``record`` also records them, ``deny`` records them and raises.

    Raises:
        ValueError: JITNORM_JIT has another value.
    """
    mode = os.environ.get(JIT_VARIABLE) or MODES[0]
    if mode not in MODES:
        raise ValueError(f"{JIT_VARIABLE}: is {mode!r}; allowed are {', '.join(MODES)}: unset it for {MODES[0]}")
    return mode


def record_file(store: Store) -> Path | None:
    """The file that records misses: JITNORM_MISS_RECORD, else in the user's cache; None if that is not writable."""
    if named := os.environ.get("JITNORM_MISS_RECORD"):
        return Path(os.path.expanduser(named))
    return store.layout.misses if store.writable else None


def record_miss(store: Store, config: str, target: str) -> None:
    """Append a miss to the record, once per process; warns once if the record cannot be written."""
    path = record_file(store)
    if path is None:
        return _warn(Path(), "no folder is writable; set JITNORM_MISS_RECORD to a file")
    mine = object()
    if _recorded.setdefault((path, config, target), mine) is not mine:
        return None
    line = json.dumps({"config": config, "target": target, "time": round(time.time(), 3)}) + "\n"
    try:
        if path == store.layout.misses:
            make_folder(path.parent)
        # One write in append mode, so that lines of several processes do not mix. A pipe without a reader is an error.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(path, flags | (os.O_NOFOLLOW if path == store.layout.misses else 0), 0o600)
        try:
            os.write(descriptor, line.encode("ascii"))
        finally:
            os.close(descriptor)
    except OSError as error:
        _warn(path, str(error))


def warm_command(config: str, target: str) -> str:
    """The command that warms a kernel."""
    return f"jitnorm warm --config {shlex.quote(config)} --arch {target}"


def _warn(path: Path, reason: str) -> None:
    mine = object()
    if _recorded.setdefault((path, "", ""), mine) is mine:
        _LOG.warning("cannot record misses of the cache: %s", reason)
