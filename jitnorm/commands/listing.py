"""What lies in the cache."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from time import time

from rich.table import Table

from jitnorm.cache import Entry
from jitnorm.commands.console import make_console
from jitnorm.commands.units import SHORT_KEY, age, size
from jitnorm.kernels.config import KernelConfig
from jitnorm.store import user_store

_DEFAULTS = set(str(KernelConfig("rmsnorm", 64)).split(",")[1:])


def list_cache(*, as_json: bool) -> None:
    """Print the entries of the cache, the newest last.

    Raises:
        CacheError: the cache cannot be used.
    """
    store = user_store()
    entries = sorted(store.entries(), key=lambda entry: entry.modified)
    if as_json:
        print(json.dumps([asdict(entry) for entry in entries], indent=1))
        return
    console = make_console()
    if entries:
        console.print(_table(entries))
    total = size(sum(entry.payload_size for entry in entries))
    console.print(f"{len(entries)} entries, {total}, in {store.layout.root}", highlight=False, markup=False)


def _table(entries: Sequence[Entry]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("key", "kind", "target", "backend"):
        table.add_column(heading, no_wrap=True)
    for heading in ("size", "age"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("config", overflow="fold")
    for entry in entries:
        manifest = entry.manifest
        table.add_row(
            entry.key[:SHORT_KEY],
            *(str(manifest.get(field, "")) for field in ("kind", "target", "backend")),
            size(entry.payload_size),
            age(time() - entry.modified),
            _without_defaults(str(manifest.get("config", ""))),
        )
    return table


def _without_defaults(config: str) -> str:
    """The text form of a configuration less the fields that `KernelConfig.parse` fills in."""
    return ",".join(field for field in config.split(",") if field not in _DEFAULTS)
