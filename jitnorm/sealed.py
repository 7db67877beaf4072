"""Tables of measurements as files: JSON with one entry per line, which ends with a digest of everything before it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from jitnorm.cache.files import make_folder
from jitnorm.cache.private import new_file
from jitnorm.store import read_file

# Follows the part that the digest covers.
_SEAL = b',\n "sha256": '
_MAX_BYTES = 1 << 26


def read_sealed(path: Path) -> bytes:
    """The text of a file that `write_sealed` wrote.

    Raises:
        OSError: it cannot be read.
        ValueError: it is another kind of file, or incomplete.
    """
    raw = read_file(path, _MAX_BYTES)
    end = raw.rfind(_SEAL)
    if end < 0:
        raise ValueError("it is not a table of measurements; remove it, or measure again")
    if raw[end:] != _seal(memoryview(raw)[:end]):
        raise ValueError("it does not match its digest; remove it, or measure again")
    return raw


def write_sealed(head: Mapping[str, Any], entries: Iterable[Mapping[str, Any]], path: Path) -> None:
    """Write a table atomically, creating its folder: the members of `head`, then the entries, one per line."""
    members = json.dumps(dict(head), indent=1).removesuffix("\n}")
    lines = ",\n".join(f"  {json.dumps(entry)}" for entry in entries)
    text = f'{members},\n "entries": [\n{lines}\n ]'.encode()
    make_folder(path.parent)
    with new_file(path) as file:
        file.write(text + _seal(text))


def _seal(text: bytes | memoryview) -> bytes:
    return _SEAL + f'"{hashlib.sha256(text).hexdigest()}"\n}}\n'.encode()
