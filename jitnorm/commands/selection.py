"""The entries that a command works on: which are selected, where they are, whether they are usable."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from jitnorm.cache import Cache, CacheError, Entry, Store, Tier
from jitnorm.cache.artifact import decode_manifest
from jitnorm.cache.entry import read_entry
from jitnorm.cache.errors import CacheTrustError, CorruptEntryError
from jitnorm.cache.files import open_folder, read_file
from jitnorm.cache.layout import MANIFEST
from jitnorm.cache.listing import list_entries
from jitnorm.cache.store import SignatureCheck
from jitnorm.kernels.spelling import did_you_mean
from jitnorm.kernels.target import Target

if TYPE_CHECKING:
    from jitnorm.cache.remote import RemoteTier


KINDS = ("kernel", "launcher")
TIER_KINDS = ("wheel", "read-only", "user", "remote")
SHORT_KEY = 12  # characters of a cache key that suffice to tell entries apart
_SHOWN = 4  # keys in a message
_HEXADECIMAL = set("0123456789abcdef")


class Item(NamedTuple):
    """An entry of a tier.

    Attributes:
        tier: the name of the tier.
        entry: the entry.
        used: time of the last load in seconds since the epoch, to the hour; 0 if the tier does not record it.
    """

    tier: str
    entry: Entry
    used: float


@dataclass(frozen=True)
class Filter:
    """The entries that a user selects.

    Args:
        kind: one of `KINDS`; None for all.
        targets: comma-separated names of targets; none for all.
        keys: keys or unique prefixes; none for all.
        launchers_stay: whether launchers, which serve every target, are selected regardless of `targets`.

    Raises:
        ValueError: a kind or target is unknown.
    """

    kind: str | None = None
    targets: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    launchers_stay: bool = False

    def __post_init__(self) -> None:
        if self.kind is not None and self.kind not in KINDS:
            meant = did_you_mean(self.kind, KINDS)
            raise ValueError(f"kind: {self.kind!r} is not known; use one of {', '.join(KINDS)}{meant}")
        names = (name for text in self.targets for name in text.split(",") if name)
        object.__setattr__(self, "targets", tuple(str(Target(name)) for name in names))

    @property
    def is_everything(self) -> bool:
        """Whether every entry is selected."""
        return not (self.kind or self.targets or self.keys)

    def accepts(self, manifest: Mapping[str, Any]) -> bool:
        """Whether an entry with this manifest is selected, apart from its key."""
        kind = manifest.get("kind")
        if self.kind is not None and kind != self.kind:
            return False
        if not self.targets or (self.launchers_stay and kind == "launcher"):
            return True
        return manifest.get("target") in self.targets


def select(entries: Iterable[Entry], wanted: Filter) -> list[Entry]:
    """The selected entries.

    Raises:
        ValueError: a key is malformed or ambiguous.
        CacheError: no key begins with the given prefix.
    """
    known = {entry.key: entry for entry in entries}
    keys = [find_key(known, text) for text in wanted.keys] or known
    return [known[key] for key in dict.fromkeys(keys) if wanted.accepts(known[key].manifest)]


def select_some(store: Store, wanted: Filter) -> list[str]:
    """The keys of the selected entries of a store, at least one; for errors see `select`."""
    found = [entry.key for entry in select(store.entries(), wanted)]
    if not found:
        raise CacheError(f"no entry of {store.name} is selected; jitnorm cache ls lists them")
    return found


def find_key(known: Iterable[str], text: str) -> str:
    """The key that begins with a text.

    Raises:
        ValueError: the text is malformed or ambiguous.
        CacheError: no key begins with it.
    """
    if not text or not set(text) <= _HEXADECIMAL:
        raise ValueError(f"key: {text!r} is not a prefix of a key; use lower-case hexadecimal digits")
    found = sorted({key for key in known if key.startswith(text)})
    if not found:
        raise CacheError(f"no entry has a key that begins with {text!r}; jitnorm cache ls lists them")
    if len(found) > 1:
        shown = ", ".join(key[: max(SHORT_KEY, len(text) + 4)] for key in found[:_SHOWN])
        more = ", ..." if len(found) > _SHOWN else ""
        raise ValueError(f"key: {text!r} begins {len(found)} keys ({shown}{more}); give more digits")
    return found[0]


def folder_tiers(cache: Cache) -> list[Store]:
    """The tiers that are folders, in lookup order."""
    return [tier for tier in cache.tiers if isinstance(tier, Store)]


def items(cache: Cache, wanted: Filter, tier: str | None = None, *, is_quick: bool = False) -> Iterable[Item]:
    """The selected entries of all folders, or of one tier.

    Args:
        cache: all tiers.
        wanted: selects entries.
        tier: one of `TIER_KINDS`, or the full name of a tier; None for all folders.
        is_quick: whether the parts of manifests in the folders' indexes suffice; otherwise each manifest is read and
            verified.

    Raises:
        ValueError: the tier is unknown, or as `select`.
        CacheError: a remote tier does not respond, or as `select`.
    """
    found = chain.from_iterable(_items_in(each, is_quick=is_quick) for each in _tiers(cache, tier))
    if wanted.is_everything:
        return found
    listed = list(found)
    kept = {entry.key for entry in select((item.entry for item in listed), wanted)}
    return [item for item in listed if item.entry.key in kept]


def last_use(store: Store, key: str) -> float:
    """The time of an entry's last load; 0 if the store does not record it.

    Writable stores keep it as the modification time of the entry's folder.
    """
    if not store.writable:
        return 0.0
    try:
        return store.layout.entry(key).stat().st_mtime
    except OSError:
        return 0.0


def _tiers(cache: Cache, tier: str | None) -> Sequence[Tier]:
    if tier is None:
        return folder_tiers(cache)
    named = [each for each in cache.tiers if tier in (each.name, each.name.partition(" ")[0])]
    if not named and tier not in TIER_KINDS:
        raise ValueError(
            f"tier: {tier!r} is not known; use one of {', '.join(TIER_KINDS)}, or a name: "
            f"{', '.join(each.name for each in cache.tiers)}{did_you_mean(tier, TIER_KINDS)}"
        )
    return named


def _items_in(tier: Tier, *, is_quick: bool) -> Iterator[Item]:
    if isinstance(tier, Store) and is_quick:
        yield from (Item(tier.name, entry, used if tier.writable else 0.0) for entry, used in list_entries(tier))
        return
    if isinstance(tier, Store):
        yield from (Item(tier.name, entry, last_use(tier, entry.key)) for entry in tier.entries())
        return
    from jitnorm.cache.remote import RemoteTier

    if isinstance(tier, RemoteTier):
        yield from (Item(tier.name, entry, 0.0) for entry in remote_entries(tier))


def remote_entries(remote: RemoteTier) -> list[Entry]:
    """The entries that a remote tier lists; only their manifests are verified.

    Raises:
        RemoteError: the tier does not respond.
    """
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(8) as pool:  # requests mostly wait
        return [entry for entry in pool.map(remote.describe, remote.keys()) if entry is not None]


def describe(store: Store, key: str) -> Entry | None:
    """An entry with its manifest; None if there is none or its manifest cannot be read."""
    try:
        with open_folder(store.layout.entry(key)) as folder:
            stored = decode_manifest(key, read_file(MANIFEST, folder))
            published = os.stat(MANIFEST, dir_fd=folder, follow_symlinks=False).st_mtime
    except (CorruptEntryError, OSError):
        return None
    return Entry(key, stored.payload_size, published, stored.manifest)


def problem_of(store: Store, key: str) -> str | None:
    """Why an entry is unusable; empty if it is usable, None if there is none."""
    try:
        with store.open_entry(key) as folder:
            read_entry(key, folder, store.check)
    except FileNotFoundError:
        return None
    except (CorruptEntryError, CacheTrustError, OSError) as error:
        return str(error)
    return ""


def distrust_of(store: Store, key: str, check: SignatureCheck) -> str:
    """Why an entry's signature is rejected; empty if it is accepted, or there is no such entry."""
    try:
        with open_folder(store.layout.entry(key)) as folder:
            check(read_file(MANIFEST, folder), store.signature(key))
    except FileNotFoundError:
        return ""
    except (CorruptEntryError, OSError) as error:
        return str(error)
    return ""


def signature_of(store: Store, key: str, check: SignatureCheck | None) -> str:
    """The verdict on an entry's signature, in words; empty if it has none.

    Args:
        store: the entry's store.
        key: the entry's key.
        check: checks signatures against the trusted keys; None without any.
    """
    if store.signature(key) is None:
        return ""
    if check is None:
        return "not checked: JITNORM_TRUSTED_KEYS is not set"
    return distrust_of(store, key, check) or "valid"


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Disable garbage collection: among many entries it finds nothing, and takes a fifth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
