"""The state of the cache for `jitnorm doctor`: its folder, tiers, signing keys and misses."""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from jitnorm.cache import CacheError, Store, default_root
from jitnorm.cache.bounded import bounded
from jitnorm.cache.listing import count_entries
from jitnorm.cache.opening import remote_tier, signature_check, signing_key, trusted_keys
from jitnorm.cache.readonly import READONLY_VARIABLE, open_read_only, readonly_folders
from jitnorm.cache.space import usage
from jitnorm.cache.trust import TRUST_VARIABLE
from jitnorm.cache.wheels import WheelFolder, wheel_folders
from jitnorm.misses import jit_mode, record_file
from jitnorm.store import own_wheels
from jitnorm.wheel.describe import WheelDescription, describe_wheel

if TYPE_CHECKING:
    from jitnorm.cache.remote import RemoteTier

SECONDS_PER_TIER = 5.0
MEASURING_SECONDS = 0.3  # enough for some 20,000 entries; beyond that, the rest is estimated to about a percent
_NO_KEY = "0" * 64
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP}
_T = TypeVar("_T")


def attempt(ask: Callable[[], _T]) -> tuple[_T | None, str]:
    """Return the answer and no problem, or no answer and the problem."""
    try:
        return ask(), ""
    except (RuntimeError, ValueError, OSError) as error:
        return None, str(error)


@dataclass(frozen=True)
class CacheState:
    """The cache folder.

    Attributes:
        path: the path of the folder.
        is_writable: whether anything can be stored.
        trust: who may own the folder: ``owner only``, or ``any``.
        entries: number of entries.
        payload_bytes: bytes of their payloads.
        total_bytes: disk space of everything in the folder, which counts against the budget.
        budget_bytes: the budget; None for no limit.
        quarantine_bytes: disk space of the entries that failed verification.
        is_estimate: whether only a part of it was measured, so that its entries and bytes are estimates.
        has_locks: whether the file system has locks; None if the folder is not writable.
        problem: why the folder is unusable, with the remedy; empty if it is usable.
    """

    path: str
    is_writable: bool
    trust: str
    entries: int
    payload_bytes: int
    total_bytes: int
    budget_bytes: int | None
    quarantine_bytes: int
    is_estimate: bool
    has_locks: bool | None
    problem: str


@dataclass(frozen=True)
class TierState:
    """A tier of the cache.

    Attributes:
        name: its kind and place.
        is_reachable: whether it responds.
        is_writable: whether builds are stored in it.
        entries: number of entries; None if unknown.
        payload_bytes: bytes of their payloads; None if unknown.
        problem: why the tier is skipped, with the remedy; empty if it is used.
        is_estimate: whether its entries and bytes are estimates.
    """

    name: str
    is_reachable: bool
    is_writable: bool
    entries: int | None
    payload_bytes: int | None
    problem: str
    is_estimate: bool = False


@dataclass(frozen=True)
class SigningState:
    """The keys for signatures.

    Attributes:
        trusted: ids of the public keys, one of which must have signed each entry of a shared tier; none if signatures
            are not required.
        signs_with: id of the private key that signs builds; empty without one.
        problem: why a key is unusable; empty if all are usable.
    """

    trusted: tuple[str, ...]
    signs_with: str
    problem: str


@dataclass(frozen=True)
class MissState:
    """Describe the handling of misses, and their record.

    Attributes:
        mode: ``auto``, ``record`` or ``deny``; empty if JITNORM_JIT is invalid.
        record: the file that misses are recorded in; empty without one.
        record_bytes: size of that file; 0 if it does not exist.
        problem: why misses cannot be recorded; empty if they can.
    """

    mode: str
    record: str
    record_bytes: int
    problem: str


def cache_state(store: Store | None, problem: str) -> CacheState:
    """The state of the cache folder; without a store, `problem` says why there is none."""
    trust = os.environ.get(TRUST_VARIABLE) or "owner only"
    if store is None:
        return CacheState(str(default_root()), False, trust, 0, 0, 0, None, 0, False, None, problem)
    held = usage(store, MEASURING_SECONDS)
    problem = "" if store.writable else "nothing can be stored; set JITNORM_CACHE_DIR to a folder you can write to"
    return CacheState(
        path=str(store.layout.root),
        is_writable=store.writable,
        trust=trust,
        entries=held.entries,
        payload_bytes=held.payload_bytes,
        total_bytes=held.total_bytes,
        budget_bytes=store.max_bytes,
        quarantine_bytes=held.quarantine_bytes,
        is_estimate=held.is_estimate,
        has_locks=_has_locks(store) if store.writable else None,
        problem=problem,
    )


def tier_states(store: Store | None, held: CacheState | None = None) -> tuple[TierState, ...]:
    """The state of every tier; no tier can fail or stall the others.

    Args:
        store: the user's cache, if it is usable.
        held: its state, if known.
    """
    return tuple(_bounded_state(name, examine) for name, examine in _examinations(store, held))


def wheel_states() -> tuple[WheelDescription, ...]:
    """Describe what each installed wheel serves; no wheel can fail or stall the others."""
    return tuple(map(_bounded_description, (*own_wheels(), *wheel_folders())))


def _bounded_description(wheel: WheelFolder) -> WheelDescription:
    found, problem = attempt(lambda: bounded(partial(describe_wheel, wheel), SECONDS_PER_TIER))
    return found or WheelDescription(wheel.name, wheel.version, str(wheel.path), problem=problem)


def signing_state() -> SigningState:
    """Describe the keys that the environment names."""
    trusted, trusted_problem = attempt(trusted_keys)
    mine, signing_problem = attempt(signing_key)
    return SigningState(
        trusted=trusted.key_ids if trusted else (),
        signs_with=mine.key_id if mine else "",
        problem="; ".join(filter(None, (trusted_problem, signing_problem))),
    )


def miss_state(store: Store | None) -> MissState:
    """Describe the mode of JITNORM_JIT, and the record of misses."""
    mode, mode_problem = attempt(jit_mode)
    path = None if store is None else record_file(store)
    if path is None:
        needs_record = mode in ("deny", "record")
        return MissState(mode or "", "", 0, mode_problem or ("no folder is writable" if needs_record else ""))
    try:
        count = path.stat().st_size
    except OSError:
        count = 0
    return MissState(mode or "", str(path), count, mode_problem)


def _examinations(store: Store | None, held: CacheState | None) -> Iterator[tuple[str, Callable[[], TierState]]]:
    """The name of each tier, and a function that finds its state."""
    for wheel in (*own_wheels(), *wheel_folders()):
        name = f"wheel {wheel.name}"
        yield name, partial(_readonly_state, wheel.path, name, is_signed=False)
    for path in readonly_folders():
        name = f"read-only {path}"
        yield name, partial(_readonly_state, path, name, is_signed=True)
    if store is not None and held is not None:
        known = TierState(store.name, True, store.writable, held.entries, held.payload_bytes, "", held.is_estimate)
        yield store.name, lambda: known
    elif store is not None:
        yield store.name, partial(_folder_state, store)
    remote, problem = attempt(remote_tier)
    if remote is not None:
        yield remote.name, partial(_remote_state, remote)
    elif problem:
        yield "remote", partial(_failed, "remote", problem)


def _bounded_state(name: str, examine: Callable[[], TierState]) -> TierState:
    state, problem = attempt(lambda: bounded(examine, SECONDS_PER_TIER))
    return state or _failed(name, problem)


def _failed(name: str, problem: str) -> TierState:
    return TierState(name, False, False, None, None, problem)


def _readonly_state(path: Path, name: str, *, is_signed: bool) -> TierState:
    try:
        return _folder_state(open_read_only(path, name, signature_check() if is_signed else None))
    except OSError as error:
        remedy = f"make it readable, or remove it from {READONLY_VARIABLE}" if is_signed else "install the wheel again"
        raise CacheError(f"{error}; {remedy}") from error


def _folder_state(store: Store) -> TierState:
    entries, payload_bytes = count_entries(store)
    return TierState(store.name, True, store.writable, entries, payload_bytes, "")


def _remote_state(remote: RemoteTier) -> TierState:
    remote.describe(_NO_KEY)  # raises if it does not respond
    try:
        count: int | None = len(remote.keys())
    except CacheError:  # plain web servers list nothing
        count = None
    return TierState(remote.name, True, remote.writable, count, None, "")


def _has_locks(store: Store) -> bool:
    """Whether files in a store's folder can be locked, tried with a temporary file."""
    try:
        with tempfile.TemporaryFile(dir=store.layout.private) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in _NO_LOCKS
    return True
