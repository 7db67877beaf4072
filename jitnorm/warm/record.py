"""Reads configurations from a record of misses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.target import Target
from jitnorm.store import read_file

_MAX_BYTES = 1 << 26


def read_record(path: Path) -> Iterator[tuple[KernelConfig, Target]]:
    """Read the configurations and targets of a record: one JSON object per line, with ``config`` and ``target``.

    A truncated last line, such as a full disk leaves, is skipped.

    Raises:
        ValueError: the file or a line cannot be read.
        CacheTrustError: it is in the user's cache, and others could have written it.
    """
    try:
        lines = read_file(path, _MAX_BYTES).decode("utf-8").splitlines(keepends=True)
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"from: cannot read {path}: {error}") from None
    for number, line in enumerate(lines, 1):
        if not line.strip() or not line.endswith("\n"):
            continue
        try:
            found = json.loads(line)
            yield KernelConfig.parse(found["config"]), Target(found["target"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"from: {path}, line {number}: {error}") from None
