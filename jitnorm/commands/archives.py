"""Entries to a file and back."""

from __future__ import annotations

from pathlib import Path

from jitnorm.cache.archive import export_archive, import_archive
from jitnorm.cache.opening import signature_check
from jitnorm.commands.console import print_json
from jitnorm.commands.selection import Filter, select_some
from jitnorm.commands.units import size
from jitnorm.store import user_store


def export_file(path: Path, wanted: Filter, *, as_json: bool) -> None:
    """Write entries of the user's cache to an archive, and print which.

    Raises:
        CacheError: nothing is meant, or an entry is damaged.
        ValueError: a key is not one, or the beginning of several.
        OSError: the file cannot be written.
    """
    store = user_store()
    keys = export_archive(store, path, select_some(store, wanted))
    count = path.stat().st_size
    if as_json:
        print_json({"file": path, "bytes": count, "keys": keys})
    else:
        print(f"{len(keys)} entries, {size(count)}, in {path}")


def import_file(path: Path, *, as_json: bool) -> None:
    """Add the entries of an archive to the user's cache, and print which.

    Raises:
        CacheError: the archive is none, damaged or not trusted; or the cache cannot be written.
        OSError: the archive cannot be read, or an entry cannot be written.
    """
    store = user_store()
    done = import_archive(store, path, signature_check())
    if as_json:
        print_json({"file": path, "added": done.added, "present": done.present})
    else:
        print(f"{len(done.added)} entries added to {store.layout.root}, {len(done.present)} were there already")
