"""What lies in the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from time import time
from typing import Any

from jitnorm.cache import Cache
from jitnorm.cache.listing import read_entry
from jitnorm.commands.console import print_json_list, print_rows, say
from jitnorm.commands.selection import Filter, Item, folder_tiers, items
from jitnorm.commands.units import SHORT_KEY, age, size
from jitnorm.kernels.config import KernelConfig
from jitnorm.store import user_cache

_FIELDS = ("kind", "target", "backend", "config")  # of manifests, what is shown
_HEADINGS = ("key", "tier", "kind", "target", "backend", "size", "age", "used", "config")
_RIGHT = ("size", "age", "used")
_DEFAULTS = set(str(KernelConfig("rmsnorm", 64)).split(",")[1:])
_SORTS: dict[str, Callable[[Item], Any]] = {
    "age": lambda item: item.entry.modified,
    "used": lambda item: item.used,
    "size": lambda item: item.entry.payload_size,
    "key": lambda item: item.entry.key,
    "kind": lambda item: _text(item, "kind"),
    "target": lambda item: _text(item, "target"),
    "config": lambda item: _text(item, "config"),
}


def list_cache(wanted: Filter, *, tier: str | None, sort: str, as_json: bool) -> None:
    """Print the entries of the cache.

    Args:
        wanted: which.
        tier: of which tier; None for all that are folders.
        sort: one of the names in `_SORTS`.
        as_json: for programs.

    Raises:
        ValueError: there is no such tier or no such order.
        CacheError: the cache cannot be used, or a remote tier does not answer.
    """
    if sort not in _SORTS:
        raise ValueError(f"sort: {sort!r} is not known; use one of {', '.join(_SORTS)}")
    cache = user_cache()
    found = sorted(items(cache, wanted, tier, fields=_FIELDS), key=_SORTS[sort])
    if as_json:
        print_json_list(map(as_object, _whole(cache, found)))
        return
    if found:
        print_rows(_HEADINGS, [_row(item) for item in found], right=_RIGHT)
    held = {item.tier for item in found} or {cache.store.name}
    for name in (each.name for each in cache.tiers if each.name in held):
        sizes = [item.entry.payload_size for item in found if item.tier == name]
        say(f"{len(sizes)} entries, {size(sum(sizes))}, in {name}")


def as_object(item: Item) -> dict[str, Any]:
    """An entry as `--json` shows it."""
    entry = item.entry
    return {
        "key": entry.key,
        "tier": item.tier,
        "payload_size": entry.payload_size,
        "modified": entry.modified,
        "used": item.used,
        "manifest": dict(entry.manifest),
    }


def _whole(cache: Cache, found: Iterable[Item]) -> Iterator[Item]:
    """The same items with all of their manifests, one after the other; less those that are gone."""
    stores = {store.name: store for store in folder_tiers(cache)}
    for item in found:
        store = stores.get(item.tier)
        entry = read_entry(store, item.entry.key) if store else item.entry
        if entry is not None:
            yield replace(item, entry=entry)


def _row(item: Item) -> tuple[str, ...]:
    return (
        item.entry.key[:SHORT_KEY],
        item.tier.partition(" ")[0],
        *(_text(item, field) for field in ("kind", "target", "backend")),
        size(item.entry.payload_size),
        since(item.entry.modified),
        since(item.used),
        short_config(_text(item, "config")),
    )


def since(moment: float) -> str:
    """How long ago a moment was; `-` for 0, which stands for none that is known."""
    return age(time() - moment) if moment else "-"


def short_config(config: str) -> str:
    """The text form of a configuration less the fields that `KernelConfig.parse` fills in."""
    return ",".join(field for field in config.split(",") if field not in _DEFAULTS)


def _text(item: Item, field: str) -> str:
    return str(item.entry.manifest.get(field, ""))
