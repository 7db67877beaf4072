"""Packs entries into one file, an uncompressed tar in the layout of the cache. Archives are reproducible."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from jitnorm.cache.artifact import Artifact, decode_artifact, encode_manifest
from jitnorm.cache.errors import ArchiveError, CacheUnusableError, CorruptEntryError
from jitnorm.cache.key import check_key
from jitnorm.cache.layout import LIMITS, MANIFEST, PAYLOAD, SIGNATURE
from jitnorm.cache.private import new_file
from jitnorm.cache.store import SignatureCheck, Store

_MEMBER = re.compile(rf"v1/([0-9a-f]{{2}})/(\1[0-9a-f]{{62}})/({re.escape(MANIFEST)}|{PAYLOAD}|{SIGNATURE})")
_FILE_MODE = 0o644
# Two empty blocks end a tar; without them it may be truncated.
_BLOCK = 512
_MAGIC = slice(257, 265)


@dataclass(frozen=True)
class Imported:
    """The result of an import.

    Attributes:
        added: keys of the new entries.
        present: keys of the entries that were already there.
    """

    added: tuple[str, ...]
    present: tuple[str, ...]


def export_archive(store: Store, path: Path, keys: Iterable[str] | None = None) -> tuple[str, ...]:
    """Write entries to an archive, replacing an existing file.

    Args:
        store: the store of the entries.
        path: the archive; it appears once it is complete.
        keys: keys of the entries; default: all.

    Returns:
        The keys of the archived entries.

    Raises:
        ArchiveError: one of the entries is absent or damaged.
        ValueError: one of the keys is not valid.
        OSError: the archive cannot be written.
    """
    import tarfile

    wanted = sorted({entry.key for entry in store.entries()} if keys is None else set(keys))
    with (
        new_file(path.absolute(), _FILE_MODE) as file,
        tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for key in wanted:
            for name, data in _files_of(store, key):
                member = tarfile.TarInfo(f"v1/{key[:2]}/{key}/{name}")
                member.size, member.mode = len(data), _FILE_MODE
                archive.addfile(member, io.BytesIO(data))
    return tuple(wanted)


def import_archive(store: Store, path: Path, check: SignatureCheck | None = None) -> Imported:
    """Add all entries of an archive to a store, or none if anything in it is invalid.

    Args:
        store: the store to add to.
        path: an archive that `export_archive` wrote.
        check: verifies the signature of every entry; None to require none.

    Raises:
        ArchiveError: it is not an archive, or an entry is damaged, incomplete or not trusted. Nothing is added then.
        CacheUnusableError: the store cannot be written.
        OSError: the archive cannot be read, or an entry cannot be written; earlier entries are added.
    """
    if not store.writable:
        raise CacheUnusableError(f"the cache {store.name} cannot be written; set JITNORM_CACHE_DIR to one that can")
    with path.open("rb") as file:
        for _ in _entries_in(file, path, check):
            pass  # errors are raised before anything is added
        file.seek(0)
        added, present = [], []
        for key, artifact, signature in _entries_in(file, path, check):
            if store.load(key) is None:
                store.publish(key, artifact, signature)
                added.append(key)
            else:
                present.append(key)
    return Imported(tuple(added), tuple(present))


def _files_of(store: Store, key: str) -> Iterator[tuple[str, bytes]]:
    """The files of an entry in archive order, the manifest first."""
    check_key(key)
    artifact = store.load(key)
    if artifact is None:
        raise ArchiveError(f"{store.name} has no entry {key}; list what it has with jitnorm cache ls")
    yield MANIFEST, encode_manifest(key, artifact)
    yield PAYLOAD, artifact.payload
    signature = store.signature(key)
    if signature is not None:
        yield SIGNATURE, signature


def _entries_in(
    file: IO[bytes], path: Path, check: SignatureCheck | None
) -> Iterator[tuple[str, Artifact, bytes | None]]:
    """Read and verify the entries of an archive."""
    key = ""
    files: dict[str, bytes] = {}
    for found, name, data in _members_in(file, path):
        if found != key:
            if files:
                yield _entry(key, files, path, check)
            if found < key:
                raise ArchiveError(f"the archive {path} has the entry {found} out of order")
            key, files = found, {}
        if name in files:
            raise ArchiveError(f"the archive {path} has the {name} of {key} twice")
        files[name] = data
    if files:
        yield _entry(key, files, path, check)


def _members_in(file: IO[bytes], path: Path) -> Iterator[tuple[str, str, bytes]]:
    """Yield key, name and content of each file in an archive, read block by block.

    tarfile only parses single headers here, never the archive, because it would read anything after an extended header
    into memory, however large.
    """
    size = os.fstat(file.fileno()).st_size
    while (header := file.read(_BLOCK)) != bytes(_BLOCK):
        key, name, count = _checked_header(header, path)
        if count > size - file.tell():
            raise ArchiveError(f"the archive {path} was cut off within the {name} of {key}; copy it again")
        data = file.read(count)
        file.seek(-count % _BLOCK, os.SEEK_CUR)
        yield key, name, data
    if file.read(_BLOCK) != bytes(_BLOCK):
        raise ArchiveError(f"the archive {path} was cut off: its end is missing; copy it again")


def _checked_header(header: bytes, path: Path) -> tuple[str, str, int]:
    """Parse a header to the key, file and size. Only regular files of plain USTAR are allowed."""
    import tarfile

    try:
        member = tarfile.TarInfo.frombuf(header, "ascii", "backslashreplace")
    except (tarfile.TarError, ValueError) as error:
        raise ArchiveError(f"{path} is not an archive of a cache, or was cut off: {error}; export it again") from error
    found = _MEMBER.fullmatch(member.name)
    if found is None or member.type != tarfile.REGTYPE or header[_MAGIC] != tarfile.POSIX_MAGIC:
        raise ArchiveError(f"the archive {path} has {member.name!r}, which is not a file of an entry")
    limit = LIMITS[found[3]]
    if not 0 <= member.size <= limit:
        raise ArchiveError(f"the archive {path} has {member.name!r} of {member.size} bytes; allowed are {limit}")
    return found[2], found[3], member.size


def _entry(
    key: str, files: dict[str, bytes], path: Path, check: SignatureCheck | None
) -> tuple[str, Artifact, bytes | None]:
    signature = files.get(SIGNATURE)
    try:
        if MANIFEST not in files or PAYLOAD not in files:
            raise CorruptEntryError("it is incomplete")
        if check is not None:
            check(files[MANIFEST], signature)
        return key, decode_artifact(key, files[MANIFEST], files[PAYLOAD]), signature
    except CorruptEntryError as error:
        raise ArchiveError(f"the entry {key} of the archive {path} is refused: {error}") from error
