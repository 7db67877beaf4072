"""Alias files, which list the keys of artifacts of one source. Only hints: artifacts are verified as always."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from jitnorm.cache.artifact import Artifact
from jitnorm.cache.files import GONE, is_at, make_folder
from jitnorm.cache.key import is_key

SOURCE_KEY = "source_key"
# One key per compiler version: more than anybody has.
_MAX_KEYS = 64
MAX_BYTES = 2 * 66 * _MAX_KEYS
# How often a key is written if each time a sweep removes the file.
_TRIES = 8


def source_key_of(artifact: Artifact) -> str | None:
    """The source key in an artifact's manifest; None if it has none."""
    found = artifact.manifest.get(SOURCE_KEY)
    return found if isinstance(found, str) and is_key(found) else None


def encode_alias(keys: tuple[str, ...]) -> bytes:
    """Encode an alias file, with only the newest keys if there are too many."""
    return "".join(f"{key}\n" for key in keys[-_MAX_KEYS:]).encode("ascii")


def decode_alias(raw: bytes) -> tuple[str, ...]:
    """Decode the keys in an alias file, ignoring anything else."""
    lines = raw[:MAX_BYTES].decode("ascii", "replace").splitlines()
    return tuple(dict.fromkeys(line for line in lines if is_key(line)))


def read_alias(path: Path) -> tuple[str, ...]:
    """Read the keys in an alias file; none if it cannot be read."""
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with open(path, "rb", buffering=0, opener=lambda name, _: os.open(name, flags)) as file:
            return decode_alias(file.read(MAX_BYTES) or b"")
    except OSError:
        return ()


def add_to_alias(path: Path, key: str) -> None:
    """Add a key to an alias file if possible; aliases are only hints.

    The key is appended in one write, so that concurrent writers lose none, and once more if a sweep removed or replaced
    the file meanwhile.
    """
    with contextlib.suppress(OSError):
        for _ in range(_TRIES):
            known = read_alias(path)
            if key in known or len(known) >= _MAX_KEYS or _append(path, key):
                return


def _append(path: Path, key: str) -> bool:
    """Append a key to an alias file; return whether that file is still there."""
    descriptor = _open_to_append(path)
    try:
        # On a separate line, even if an earlier writer was interrupted within one.
        os.write(descriptor, f"\n{key}\n".encode("ascii"))
        os.fsync(descriptor)
        return is_at(descriptor, path)
    except OSError as error:
        if error.errno not in GONE:
            raise
        return False
    finally:
        os.close(descriptor)


def _open_to_append(path: Path) -> int:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:  # the folder may also have been empty and just removed
        make_folder(path.parent)
        return os.open(path, flags, 0o600)
