"""Finds the cache folder, and checks whether it can be used."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple

from jitnorm.cache.errors import CacheTrustError, CacheUnusableError
from jitnorm.cache.files import make_folder
from jitnorm.cache.layout import Layout
from jitnorm.cache.trust import FOLDER_VARIABLE, Trust
from jitnorm.cache.warn import warn_once

# The root of an always empty store: nothing exists there, and only root could create anything.
_NOWHERE = Path("/proc/no-cache")


class Root(NamedTuple):
    """A checked cache folder.

    Attributes:
        path: the folder, without symbolic links.
        writable: whether artifacts can be published to it.
    """

    path: Path
    writable: bool


def default_root() -> Path:
    """Return the cache folder of this environment, which need not exist.

    ``JITNORM_CACHE_DIR`` if set, else ``$XDG_CACHE_HOME/jitnorm``, else ``~/.cache/jitnorm``.

    Example:
        >>> default_root().is_absolute()
        True
    """
    if named := os.environ.get(FOLDER_VARIABLE):
        return Path(os.path.expanduser(named))
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if base.is_absolute():  # the XDG specification says to ignore relative paths
        return base / "jitnorm"
    home = Path(os.path.expanduser("~"))
    return (home if home.is_absolute() else _NOWHERE) / ".cache" / "jitnorm"


def root_is_explicit() -> bool:
    """Whether the user named the cache folder, and so should learn if it cannot be used."""
    return bool(os.environ.get(FOLDER_VARIABLE))


def open_root(path: Path, *, explicit: bool) -> Root:
    """Create a cache folder if it is missing, and check it.

    Args:
        path: the folder. Symbolic links are resolved.
        explicit: whether the user named this folder. A default folder may be unusable: that is logged once, and
            nothing is published to it.

    Raises:
        CacheTrustError: it is not a folder, belongs to another user, or is writable by others. The last
            two are accepted if ``JITNORM_CACHE_TRUST`` is ``any``.
        CacheUnusableError: it was named explicitly and cannot be created or written.
        CacheError: ``JITNORM_CACHE_TRUST`` has an unknown value.

    Example:
        >>> import tempfile
        >>> open_root(Path(tempfile.mkdtemp()), explicit=True).writable
        True
    """
    path = Path(os.path.realpath(path))
    trust = Trust(path)
    reason = None
    for folder in Layout(path).folders:
        reason = reason or _make_writable(folder)
        # Also the folders within, which others may have created while the root was open to them.
        _check(folder, trust)
    if reason is None:
        return Root(path, writable=True)
    if explicit:
        raise CacheUnusableError(
            f"the cache folder {path}, named by {FOLDER_VARIABLE}, cannot be used: {reason}. "
            f"Make it writable, or set {FOLDER_VARIABLE} to a folder that you can write to"
        )
    warn_once(
        "root",
        path,
        "the cache folder %s cannot be used: %s. New builds are kept in memory only; "
        "set %s to a folder that you can write to",
        path,
        reason,
        FOLDER_VARIABLE,
    )
    # A folder that somebody else creates later would be unchecked.
    return Root(path if os.path.isdir(path) else _NOWHERE, writable=False)


def _make_writable(folder: Path) -> str | None:
    """Create a folder if missing; return why it cannot be written, or None if it can."""
    if folder.is_relative_to(_NOWHERE):
        return "there is no home folder"
    try:
        make_folder(folder)
    except OSError as error:
        return str(error)
    if os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
        return None
    return f"{folder} is not writable"


def _check(folder: Path, trust: Trust) -> None:
    try:
        found = folder.lstat()
    except OSError:
        return  # nothing can be loaded from it
    if not stat.S_ISDIR(found.st_mode):
        raise CacheTrustError(
            f"the cache folder {folder} is not a folder. Remove it, or name another with {FOLDER_VARIABLE}"
        )
    trust.check(found, folder)
