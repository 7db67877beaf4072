"""Which entries of the cache a command is about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jitnorm.cache import Cache, CacheError, Entry, Store, Tier
from jitnorm.cache.listing import list_entries
from jitnorm.commands.units import SHORT_KEY
from jitnorm.kernels.target import Target

if TYPE_CHECKING:
    from jitnorm.cache.remote import RemoteTier

KINDS = ("kernel", "launcher")
TIER_KINDS = ("wheel", "read-only", "user", "remote")
_SELECTED_BY = ("kind", "target")  # fields of manifests that a filter asks for
_SHOWN = 4  # keys in a message
_HEXADECIMAL = set("0123456789abcdef")


@dataclass(frozen=True)
class Item:
    """An entry, and where it lies.

    Attributes:
        tier: the name of the tier.
        entry: the entry.
        used: when it was last loaded, in seconds since the epoch, to the hour; 0 where nobody notes that.
    """

    tier: str
    entry: Entry
    used: float


@dataclass(frozen=True)
class Filter:
    """What entries must be.

    Args:
        kind: one of `KINDS`; None for all.
        targets: names, of which one text may hold several joined by commas; none for all.
        keys: keys, or beginnings of keys that no other key shares; none for all.
        launchers_stay: whether `targets` is about kernels alone: launchers serve every target.

    Raises:
        ValueError: a kind or target is not known.
    """

    kind: str | None = None
    targets: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    launchers_stay: bool = False

    def __post_init__(self) -> None:
        if self.kind is not None and self.kind not in KINDS:
            raise ValueError(f"kind: {self.kind!r} is not known; use one of {', '.join(KINDS)}")
        names = (name for text in self.targets for name in text.split(",") if name)
        object.__setattr__(self, "targets", tuple(str(Target(name)) for name in names))

    @property
    def is_everything(self) -> bool:
        """Whether it leaves nothing out."""
        return not (self.kind or self.targets or self.keys)

    def accepts(self, manifest: Mapping[str, Any]) -> bool:
        """Whether an entry with this manifest is meant, whatever its key."""
        kind = manifest.get("kind")
        if self.kind is not None and kind != self.kind:
            return False
        if not self.targets or (self.launchers_stay and kind == "launcher"):
            return True
        return manifest.get("target") in self.targets


def select(entries: Iterable[Entry], wanted: Filter) -> list[Entry]:
    """The entries that are meant.

    Raises:
        ValueError: a key is not one, or the beginning of several.
        CacheError: no entry has a key that begins so.
    """
    known = {entry.key: entry for entry in entries}
    keys = [find_key(known, text) for text in wanted.keys] or known
    return [known[key] for key in dict.fromkeys(keys) if wanted.accepts(known[key].manifest)]


def select_some(store: Store, wanted: Filter) -> list[str]:
    """The keys of the entries of a store that are meant, at least one; else as `select`."""
    found = [entry.key for entry in select(store.entries(), wanted)]
    if not found:
        raise CacheError(f"no entry of {store.name} is meant; jitnorm cache ls shows what there is")
    return found


def find_key(known: Iterable[str], text: str) -> str:
    """The key that begins so.

    Raises:
        ValueError: it is no beginning of a key, or one of several.
        CacheError: no key begins so.
    """
    if not text or not set(text) <= _HEXADECIMAL:
        raise ValueError(f"key: {text!r} is no beginning of a key, which is made of hexadecimal digits in lower case")
    found = sorted({key for key in known if key.startswith(text)})
    if not found:
        raise CacheError(f"no entry has a key that begins with {text!r}; jitnorm cache ls shows what there is")
    if len(found) > 1:
        shown = ", ".join(key[: max(SHORT_KEY, len(text) + 4)] for key in found[:_SHOWN])
        more = ", ..." if len(found) > _SHOWN else ""
        raise ValueError(f"key: {text!r} is the beginning of {len(found)} keys ({shown}{more}); give more of it")
    return found[0]


def folder_tiers(cache: Cache) -> list[Store]:
    """The tiers that are folders, in the order in which they are asked."""
    return [tier for tier in cache.tiers if isinstance(tier, Store)]


def items(cache: Cache, wanted: Filter, tier: str | None = None, *, fields: Sequence[str] | None = None) -> list[Item]:
    """The entries that are meant, of all folders; of a remote tier only if it is asked for.

    Args:
        cache: all tiers.
        wanted: what is meant.
        tier: one of `TIER_KINDS`, or the whole name of a tier.
        fields: what to read of the manifests in folders, which are not verified then; None for all, verified.

    Raises:
        ValueError: there is no such tier, or as `select`.
        CacheError: as `select`; a remote tier does not answer.
    """
    found = [item for each in _tiers(cache, tier) for item in _items_in(each, fields)]
    kept = {entry.key for entry in select((item.entry for item in found), wanted)}
    return [item for item in found if item.entry.key in kept]


def last_use(store: Store, key: str) -> float:
    """When an entry was last loaded; 0 where nobody notes that.

    The store keeps it as the modification time of the entry's folder.
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
            f"{', '.join(each.name for each in cache.tiers)}"
        )
    return named


def _items_in(tier: Tier, fields: Sequence[str] | None) -> Iterator[Item]:
    if isinstance(tier, Store) and fields is not None:
        for entry, used in list_entries(tier, {*fields, *_SELECTED_BY}):
            yield Item(tier.name, entry, used if tier.writable else 0.0)
        return
    if isinstance(tier, Store):
        yield from (Item(tier.name, entry, last_use(tier, entry.key)) for entry in tier.entries())
        return
    from jitnorm.cache.remote import RemoteTier

    if isinstance(tier, RemoteTier):
        yield from (Item(tier.name, entry, 0.0) for entry in remote_entries(tier))


def remote_entries(remote: RemoteTier) -> list[Entry]:
    """What a remote tier lists; none of it is verified but for the manifests.

    Raises:
        RemoteError: it does not answer.
    """
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(8) as pool:  # requests mostly wait
        return [entry for entry in pool.map(remote.describe, remote.keys()) if entry is not None]
