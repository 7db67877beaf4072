"""What lies in the cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import time
from typing import Any

from rich.table import Table

from jitnorm.commands.console import cell, print_json, print_table, say
from jitnorm.commands.selection import Filter, Item, items
from jitnorm.commands.units import SHORT_KEY, age, size
from jitnorm.kernels.config import KernelConfig
from jitnorm.store import user_cache

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
    found = sorted(items(cache, wanted, tier), key=_SORTS[sort])
    if as_json:
        print_json([as_object(item) for item in found])
        return
    if found:
        print_table(_table(found))
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


def _table(found: Sequence[Item]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("key", "tier", "kind", "target", "backend"):
        table.add_column(heading, no_wrap=True)
    for heading in ("size", "age", "used"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("config", overflow="fold")
    for item in found:
        table.add_row(
            item.entry.key[:SHORT_KEY],
            item.tier.partition(" ")[0],
            *(cell(_text(item, field)) for field in ("kind", "target", "backend")),
            size(item.entry.payload_size),
            since(item.entry.modified),
            since(item.used),
            cell(short_config(_text(item, "config"))),
        )
    return table


def since(moment: float) -> str:
    """How long ago a moment was; `-` for 0, which stands for none that is known."""
    return age(time() - moment) if moment else "-"


def short_config(config: str) -> str:
    """The text form of a configuration less the fields that `KernelConfig.parse` fills in."""
    return ",".join(field for field in config.split(",") if field not in _DEFAULTS)


def _text(item: Item, field: str) -> str:
    return str(item.entry.manifest.get(field, ""))
