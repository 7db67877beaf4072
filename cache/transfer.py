"""Copies entries between the user's cache and a remote tier, on command."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jitnorm.cache.aliases import source_key_of
from jitnorm.cache.artifact import encode_manifest
from jitnorm.cache.errors import CacheUnusableError, CorruptEntryError, UntrustedEntryError
from jitnorm.cache.key import check_key
from jitnorm.cache.store import SignatureCheck, Store

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from jitnorm.cache.remote import RemoteTier

# Called after each entry with the number done, the total, the key, and its bytes moved.
Progress = Callable[[int, int, str, int], None]

# Requests to an object store spend most of their time waiting.
_WORKERS = 8


@dataclass(frozen=True)
class Transfer:
    """The result of a transfer.

    Attributes:
        moved: keys of the copied entries.
        present: keys of the entries that were already there.
        refused: reasons why other entries were not copied, by key.
        bytes: payload bytes copied.
    """

    moved: tuple[str, ...]
    present: tuple[str, ...]
    refused: dict[str, str]
    bytes: int


@dataclass(frozen=True)
class _Outcome:
    key: str
    bytes: int | None = None  # None: nothing was moved
    refusal: str = ""
    source_key: str | None = None


def push(
    store: Store,
    remote: RemoteTier,
    keys: Iterable[str] | None = None,
    *,
    check: SignatureCheck | None = None,
    replace: bool = False,
    progress: Progress | None = None,
) -> Transfer:
    """Copy entries to a remote tier, verified, with their signatures. Nothing is signed in transit.

    Args:
        store: the source.
        remote: the destination; its mode need not be ``readwrite``.
        keys: keys of the entries; default: all.
        check: verifies the signature of every entry; None to require none.
        replace: whether to overwrite existing entries.
        progress: called after each entry, in this thread.

    Raises:
        RemoteError: the tier does not answer or cannot be written; entries copied by then stay.
        ValueError: one of the keys is not valid.
    """

    def move(key: str) -> _Outcome:
        artifact = store.load(key)
        if artifact is None:
            return _Outcome(key, refusal=f"{store.name} has no such entry")
        signature = store.signature(key)
        try:
            if check is not None:
                check(encode_manifest(key, artifact), signature)
        except UntrustedEntryError as error:
            return _Outcome(key, refusal=f"{error}. If you know who built it, sign it with jitnorm cache sign")
        source_key = source_key_of(artifact)
        if not replace and remote.has(key):
            return _Outcome(key, source_key=source_key)
        remote.write(key, artifact, signature)
        return _Outcome(key, len(artifact.payload), source_key=source_key)

    wanted = _checked([entry.key for entry in store.entries()] if keys is None else keys)
    outcomes = list(_in_parallel(move, wanted, progress))
    by_source = defaultdict(list)
    for outcome in outcomes:
        if outcome.source_key is not None:
            by_source[outcome.source_key].append(outcome.key)
    # Last, with one writer per alias: an alias is read, changed and written, so concurrent writers would lose keys.
    with _pool() as pool:
        list(pool.map(lambda item: remote.add_aliases(*item), by_source.items()))
    return _summary(outcomes)


def pull(
    store: Store,
    remote: RemoteTier,
    keys: Iterable[str] | None = None,
    *,
    progress: Progress | None = None,
) -> Transfer:
    """Copy entries from a remote tier to the user's cache, verified, with their signatures.

    Args:
        store: the destination.
        remote: the source.
        keys: keys of the entries; default: all that the tier lists, which HTTP servers may not do.
        progress: called after each entry, in this thread.

    Raises:
        RemoteError: the tier does not answer or cannot be listed; entries copied by then stay.
        CacheUnusableError: the store cannot be written.
        ValueError: one of the keys is not valid.
        OSError: an entry cannot be written.
    """
    if not store.writable:
        raise CacheUnusableError(f"the cache {store.name} cannot be written; set JITNORM_CACHE_DIR to one that can")

    def move(key: str) -> _Outcome:
        if store.load(key) is not None:
            return _Outcome(key)
        try:
            artifact, signature = remote.demand(key)
        except CorruptEntryError as error:
            return _Outcome(key, refusal=str(error))
        store.publish(key, artifact, signature)
        return _Outcome(key, len(artifact.payload))

    return _summary(list(_in_parallel(move, _checked(remote.keys() if keys is None else keys), progress)))


def _checked(keys: Iterable[str]) -> list[str]:
    wanted = list(dict.fromkeys(keys))
    for key in wanted:
        check_key(key)
    return wanted


def _in_parallel(move: Callable[[str], _Outcome], keys: list[str], progress: Progress | None) -> Iterator[_Outcome]:
    from concurrent.futures import as_completed

    with _pool() as pool:
        pending = [pool.submit(move, key) for key in keys]
        try:
            for done, future in enumerate(as_completed(pending), start=1):
                outcome = future.result()
                if progress is not None:
                    progress(done, len(keys), outcome.key, outcome.bytes or 0)
                yield outcome
        finally:
            for future in pending:
                future.cancel()  # after an error, the rest would fail too, one by one


def _pool() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(_WORKERS, thread_name_prefix="jitnorm-transfer")


def _summary(outcomes: list[_Outcome]) -> Transfer:
    outcomes = sorted(outcomes, key=lambda outcome: outcome.key)
    return Transfer(
        moved=tuple(outcome.key for outcome in outcomes if outcome.bytes is not None),
        present=tuple(outcome.key for outcome in outcomes if outcome.bytes is None and not outcome.refusal),
        refused={outcome.key: outcome.refusal for outcome in outcomes if outcome.refusal},
        bytes=sum(outcome.bytes or 0 for outcome in outcomes),
    )
