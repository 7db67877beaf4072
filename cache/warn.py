"""Logs warnings once per process, however often the cause recurs."""

from __future__ import annotations

import logging
from pathlib import Path

logger = logging.getLogger("jitnorm.cache")

_given: dict[tuple[str, Path], object] = {}


def warn_once(topic: str, path: Path, message: str, *args: object) -> None:
    """Log a warning about ``path``, unless this process already logged one on the same topic and path."""
    # setdefault is atomic among threads, and unlike a lock it cannot be held during a fork.
    mine = object()
    if _given.setdefault((topic, path), mine) is mine:
        logger.warning(message, *args)
