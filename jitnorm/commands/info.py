"""All that is known of one entry."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from jitnorm.cache import Cache, Entry
from jitnorm.cache.key import is_key
from jitnorm.cache.opening import signature_check
from jitnorm.commands.condition import describe, problem_of, signature_of
from jitnorm.commands.console import print_facts, print_json
from jitnorm.commands.listing import since
from jitnorm.commands.selection import find_key, folder_tiers, last_use
from jitnorm.commands.units import size
from jitnorm.store import user_cache


@dataclass(frozen=True)
class Copy:
    """An entry in one tier.

    Attributes:
        tier: the name of the tier.
        payload_size: bytes.
        modified: when it was published, in seconds since the epoch; 0 if that is not known.
        used: when it was last loaded, likewise.
        signature: what its signature is worth, in words; empty if it has none or that is not known.
        problem: why it cannot be used; empty if every byte is verified; None if it was not verified.
    """

    tier: str
    payload_size: int
    modified: float
    used: float
    signature: str
    problem: str | None


@dataclass(frozen=True)
class Details:
    """An entry, wherever it lies.

    Attributes:
        key: its key.
        manifest: what its builder said of it.
        copies: one for each tier that has it, in the order in which they are asked.
    """

    key: str
    manifest: Mapping[str, Any]
    copies: tuple[Copy, ...]

    @property
    def is_intact(self) -> bool:
        """Whether it can be used wherever it lies."""
        return not any(copy.problem for copy in self.copies)


def show_info(text: str, *, as_json: bool) -> bool:
    """Print what is known of an entry; return whether it is intact wherever it lies.

    Args:
        text: its key, or the beginning of it.
        as_json: for programs.

    Raises:
        ValueError: the text is no beginning of a key, or of several.
        CacheError: there is no such entry, or the cache cannot be used.
    """
    found = look_up(text, user_cache())
    if as_json:
        print_json({**asdict(found), "is_intact": found.is_intact})
        return found.is_intact
    print_facts(_lines(found))
    return found.is_intact


def look_up(text: str, cache: Cache) -> Details:
    """What is known of an entry; for the errors see `show_info`."""
    stores = folder_tiers(cache)
    remote = cache.remote.describe(text) if cache.remote is not None and is_key(text) else None
    known = [key for store in stores for key, _ in store.layout.entries()]
    key = find_key([*known, text] if remote else known, text)  # what is remote is not listed to complete a key
    check = signature_check()
    manifest: Mapping[str, Any] = {}
    copies = []
    for store in stores:
        problem = problem_of(store, key)
        if problem is None:
            continue
        entry = describe(store, key)
        manifest = manifest or (entry.manifest if entry else {})
        copies.append(_copy(store.name, entry, last_use(store, key), signature_of(store, key, check), problem))
    if cache.remote is not None and (remote := remote or cache.remote.describe(key)):
        manifest = manifest or remote.manifest
        copies.append(_copy(cache.remote.name, remote, 0.0, "", None))
    return Details(key, manifest, tuple(copies))


def _copy(tier: str, entry: Entry | None, used: float, signature: str, problem: str | None) -> Copy:
    """A copy; without an entry one whose manifest cannot be read."""
    return Copy(tier, entry.payload_size if entry else 0, entry.modified if entry else 0.0, used, signature, problem)


def _lines(found: Details) -> Iterator[tuple[str, str]]:
    yield "key", found.key
    for name, value in found.manifest.items():
        yield name, f"{len(str(value))} characters of JSON, see --json" if name == "recipe" else _text(value)
    for copy in found.copies:
        times = f"stored {since(copy.modified)} ago, last used {since(copy.used)} ago"
        yield "in", f"{copy.tier}: {size(copy.payload_size)}, {times.replace('- ago', 'at an unknown time')}"
        yield "  bytes", "not verified" if copy.problem is None else copy.problem or "verified"
        yield "  signed", copy.signature or ("not asked" if copy.problem is None else "no")


def _text(value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value))
    return value if isinstance(value, str) else json.dumps(value)
