"""What the doctor finds of the cache: its folder, its tiers, keys of signatures, misses."""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from jitnorm.cache import CacheError, Store, default_root
from jitnorm.cache.bounded import bounded
from jitnorm.cache.listing import count_entries
from jitnorm.cache.opening import remote_tier, signature_check, signing_key, trusted_keys
from jitnorm.cache.readonly import READONLY_VARIABLE, open_read_only, readonly_folders
from jitnorm.cache.space import usage
from jitnorm.cache.trust import TRUST_VARIABLE
from jitnorm.cache.wheels import WheelFolder, wheel_folders
from jitnorm.commands.attempt import attempt
from jitnorm.misses import jit_mode, record_file
from jitnorm.store import own_wheels
from jitnorm.wheel.describe import WheelDescription, describe_wheel

if TYPE_CHECKING:
    from jitnorm.cache.remote import RemoteTier

SECONDS_PER_TIER = 5.0
_NO_KEY = "0" * 64
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP}


@dataclass(frozen=True)
class CacheState:
    """The cache folder.

    Attributes:
        path: where it lies.
        is_writable: whether anything can be stored.
        trust: who may own it: ``owner only``, or ``any``.
        entries: how many there are.
        payload_bytes: bytes of their payloads.
        total_bytes: the disk space of all that lies in it, which counts against the budget.
        budget_bytes: what it is kept within; None for no limit.
        quarantine_bytes: the disk space of the entries that failed verification.
        has_locks: whether its file system has locks; None if nothing can be written.
        problem: why it cannot be used, with the remedy; empty if it can.
    """

    path: str
    is_writable: bool
    trust: str
    entries: int
    payload_bytes: int
    total_bytes: int
    budget_bytes: int | None
    quarantine_bytes: int
    has_locks: bool | None
    problem: str


@dataclass(frozen=True)
class TierState:
    """A place where kernels are looked up.

    Attributes:
        name: its kind and its place.
        is_reachable: whether it answers.
        is_writable: whether what is built is stored there.
        entries: how many there are; None if it does not say.
        payload_bytes: bytes of their payloads; None if it does not say.
        problem: why it is not used, with the remedy; empty if it is.
    """

    name: str
    is_reachable: bool
    is_writable: bool
    entries: int | None
    payload_bytes: int | None
    problem: str


@dataclass(frozen=True)
class SigningState:
    """The keys of signatures.

    Attributes:
        trusted: ids of the public keys of which shared tiers need a signature; none: they need none.
        signs_with: id of the private key that signs what is built; empty if there is none.
        problem: why a key cannot be used; empty if all can.
    """

    trusted: tuple[str, ...]
    signs_with: str
    problem: str


@dataclass(frozen=True)
class MissState:
    """What a miss means, and the record of misses.

    Attributes:
        mode: ``auto``, ``record`` or ``deny``; empty if JITNORM_JIT is not valid.
        record: the file that misses are noted in; empty if there is none.
        record_bytes: its size; 0 if it does not exist.
        problem: why nothing can be noted; empty if it can.
    """

    mode: str
    record: str
    record_bytes: int
    problem: str


def cache_state(store: Store | None, problem: str) -> CacheState:
    """The state of the cache folder; without a store `problem` says why."""
    trust = os.environ.get(TRUST_VARIABLE) or "owner only"
    if store is None:
        return CacheState(str(default_root()), False, trust, 0, 0, 0, None, 0, None, problem)
    held = usage(store)
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
        has_locks=_has_locks(store) if store.writable else None,
        problem=problem,
    )


def tier_states(store: Store | None, held: CacheState | None = None) -> tuple[TierState, ...]:
    """The state of every tier; none of them can fail or stall the others.

    Args:
        store: the user's cache, if it can be used.
        held: its state, if that is known.
    """
    return tuple(_bounded_state(name, examine) for name, examine in _examinations(store, held))


def wheel_states() -> tuple[WheelDescription, ...]:
    """What each installed wheel serves; none of them can fail or stall the others."""
    return tuple(map(_bounded_description, (*own_wheels(), *wheel_folders())))


def _bounded_description(wheel: WheelFolder) -> WheelDescription:
    found, problem = attempt(lambda: bounded(partial(describe_wheel, wheel), SECONDS_PER_TIER))
    return found or WheelDescription(wheel.name, wheel.version, str(wheel.path), problem=problem)


def signing_state() -> SigningState:
    """The keys that the environment names."""
    trusted, trusted_problem = attempt(trusted_keys)
    mine, signing_problem = attempt(signing_key)
    return SigningState(
        trusted=trusted.key_ids if trusted else (),
        signs_with=mine.key_id if mine else "",
        problem="; ".join(filter(None, (trusted_problem, signing_problem))),
    )


def miss_state(store: Store | None) -> MissState:
    """The mode, and the record of misses."""
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
    """The name of each tier, and what finds its state."""
    for wheel in (*own_wheels(), *wheel_folders()):
        name = f"wheel {wheel.name}"
        yield name, partial(_readonly_state, wheel.path, name, is_signed=False)
    for path in readonly_folders():
        name = f"read-only {path}"
        yield name, partial(_readonly_state, path, name, is_signed=True)
    if store is not None and held is not None:
        known = TierState(store.name, True, store.writable, held.entries, held.payload_bytes, "")
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
        remedy = f"make it readable, or take it out of {READONLY_VARIABLE}" if is_signed else "install the wheel again"
        raise CacheError(f"{error}; {remedy}") from error


def _folder_state(store: Store) -> TierState:
    entries, payload_bytes = count_entries(store)
    return TierState(store.name, True, store.writable, entries, payload_bytes, "")


def _remote_state(remote: RemoteTier) -> TierState:
    remote.describe(_NO_KEY)  # whether it answers at all
    try:
        count: int | None = len(remote.keys())
    except CacheError:  # as web servers do, which list nothing
        count = None
    return TierState(remote.name, True, remote.writable, count, None, "")


def _has_locks(store: Store) -> bool:
    """Whether files in a folder can be locked; with a file that is gone at once."""
    try:
        with tempfile.TemporaryFile(dir=store.layout.private) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in _NO_LOCKS
    return True
