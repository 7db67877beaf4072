"""Checks that nobody else can have written the contents of a cache folder, before code is loaded from it."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from jitnorm.cache.errors import CacheError, CacheTrustError
from jitnorm.cache.files import SMALL_FILE, read_file

FOLDER_VARIABLE = "JITNORM_CACHE_DIR"
TRUST_VARIABLE = "JITNORM_CACHE_TRUST"

_ROOT_USER = 0
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def trust_is_limited() -> bool:
    """Whether code is loaded only from folders that only trusted owners can write to.

    Raises:
        CacheError: ``JITNORM_CACHE_TRUST`` has an unknown value.
    """
    value = os.environ.get(TRUST_VARIABLE, "")
    if value not in ("", "any"):
        raise CacheError(
            f"{TRUST_VARIABLE} is {value!r}; allowed is 'any', which accepts a cache folder of any owner and "
            "mode: unset it otherwise"
        )
    return value != "any"


@dataclass(frozen=True)
class Trust:
    """The requirements on a cache folder and everything read below it.

    Attributes:
        root: the folder.
        tier: the name of a read-only tier, whose files may also be root's; empty for the user's cache.
        is_limited: whether owners and modes are checked; default: unless ``JITNORM_CACHE_TRUST`` is ``any``.
    """

    root: Path
    tier: str = ""
    is_limited: bool = field(default_factory=trust_is_limited)

    def check(self, found: os.stat_result, *path: Path | str) -> None:
        """Reject a file or folder that others can write to, or that belongs to another user.

        Owner and mode apply to all names of a file, so hard links are judged like any other file.

        Args:
            found: its status.
            *path: its path, in parts that are only joined for display.

        Raises:
            CacheTrustError: it is rejected; the error names a remedy for the whole folder.
        """
        if not self.is_limited:
            return
        user = os.geteuid()
        if found.st_uid != user and not (self.tier and found.st_uid == _ROOT_USER):
            allowed = f"allowed {'are root and' if self.tier else 'is'} user {user}, who runs this process"
            raise self._error(Path(*path), f"belongs to user {found.st_uid}; {allowed}", f"chown -R {user}")
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            mode = f"has mode {stat.S_IMODE(found.st_mode):04o}: others can write to it"
            raise self._error(Path(*path), mode, "chmod -R go-w")

    @contextlib.contextmanager
    def open_folder(self, path: Path) -> Iterator[OpenFolder]:
        """Hold a folder below the root open, checked like each folder that leads to it.

        Each is opened relative to the descriptor of its parent, so none can be exchanged after its check.

        Raises:
            CacheTrustError: one of them is not trusted, or one that leads to ``path`` is not a folder.
            FileNotFoundError: one of them is missing.
            NotADirectoryError: ``path`` is not a folder.
            OSError: one of them cannot be opened.
        """
        names = path.parts[len(self.root.parts) :]
        descriptor = os.open(self.root, _FOLDER_FLAGS)
        try:
            self.check(os.fstat(descriptor), self.root)
            for depth, name in enumerate(names, 1):
                try:
                    inner = os.open(name, _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=descriptor)
                except NotADirectoryError:
                    if depth == len(names):
                        raise
                    raise CacheTrustError(f"{Path(self.root, *names[:depth])} is not a folder. Remove it") from None
                os.close(descriptor)
                descriptor = inner
                self.check(os.fstat(descriptor), self.root, *names[:depth])
            yield OpenFolder(self, path, descriptor)
        finally:
            os.close(descriptor)

    def _error(self, path: Path, fault: str, remedy: str) -> CacheTrustError:
        import shlex

        root = shlex.quote(str(self.root))
        if self.tier:
            subject, otherwise, instead = f"{path} of the cache tier {self.tier!r}", "install or copy it again", ""
        else:
            subject = f"the cache folder {path}" if path == self.root else str(path)
            otherwise = "delete it: everything in it can be rebuilt"
            instead = f"name another folder with {FOLDER_VARIABLE}, or "
        return CacheTrustError(
            f"{subject} {fault}. If you know what is in {root}, run {remedy} {root}; if not, {otherwise}. "
            f"Or {instead}set {TRUST_VARIABLE}=any to run whatever code it holds"
        )


@dataclass(frozen=True)
class OpenFolder:
    """A checked folder that is held open, so that reads go to that folder even if it is moved.

    Attributes:
        trust: the requirements it was checked against.
        path: its path when it was opened.
        descriptor: its descriptor.
    """

    trust: Trust
    path: Path
    descriptor: int

    def read(self, name: str, limit: int = SMALL_FILE) -> bytes:
        """Read a regular file of the folder.

        Raises:
            CacheTrustError: it is not trusted.
            OSError: it is missing, not a regular file, larger than ``limit`` bytes, or cannot be read.
        """
        return read_file(name, self.descriptor, limit, lambda found: self.trust.check(found, self.path, name))
