"""The revocation list: signing keys and entries of shared tiers that must not be loaded any more.

It is stored in a remote tier as ``v1/revocations``: JSON, signed by a key that signs nothing else. Its number only
increases and it expires, so whoever can write to the tier can neither restore an older list nor withhold a newer one
for long. The newest list ever seen stays in force, in the user's cache.
"""

from __future__ import annotations

import contextlib
import json
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jitnorm.cache.errors import CacheError, RemoteError, UntrustedEntryError
from jitnorm.cache.files import make_folder
from jitnorm.cache.flock import locked_alone
from jitnorm.cache.key import is_key
from jitnorm.cache.layout import REVOCATIONS
from jitnorm.cache.signature import SigningKey, TrustedKeys, is_second, key_id_of

if TYPE_CHECKING:
    from jitnorm.cache.remote import RemoteTier
    from jitnorm.cache.store import Store

MAX_BYTES = 1 << 20
DAY_SECONDS = 86400.0
# Makes signatures for other purposes invalid for lists.
_PURPOSE = b"jitnorm-cache-revocations-1\0"
# How long a process uses a list before it requests a newer one.
_FRESH_SECONDS = 3600.0
# How long to wait while another process adopts a list, which takes it milliseconds.
_LOCK_SECONDS = 2.0


@dataclass(frozen=True)
class Revocations:
    """The content of a list.

    Attributes:
        number: greater than that of every earlier list.
        expires: when a newer list must have replaced it, in seconds since the epoch.
        signers: ids of the signing keys that are revoked.
        entries: keys of the entries that are revoked.
    """

    number: int
    expires: int
    signers: tuple[str, ...] = ()
    entries: tuple[str, ...] = ()


def encode_revocations(revocations: Revocations, key: SigningKey) -> bytes:
    """Sign a list and return its file."""
    content = _canonical(vars(revocations))
    return _canonical({"list": vars(revocations), "signature": json.loads(key.sign(_PURPOSE + content))}) + b"\n"


def decode_revocations(raw: bytes, key: TrustedKeys) -> Revocations:
    """Read and verify the file of a list, but not whether it has expired.

    Raises:
        UntrustedEntryError: it is malformed, or not signed by the key.
    """
    try:
        content = json.loads(raw[:MAX_BYTES])
        found = content["list"]
        signature = json.dumps(content["signature"]).encode()
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise UntrustedEntryError(f"the revocation list is malformed: {error!r}") from error
    key.check(_PURPOSE + _canonical(found), signature)
    # Its author is trusted from here on, but may have made mistakes.
    try:
        number, expires, signers, entries = (found[name] for name in ("number", "expires", "signers", "entries"))
    except (TypeError, KeyError) as error:
        raise UntrustedEntryError(f"the revocation list is malformed: {error!r}") from error
    if not (type(number) is int and is_second(expires) and _are_texts(signers) and _are_texts(entries)):
        raise UntrustedEntryError(
            "the revocation list has fields of the wrong type, or an expiry that no clock can show"
        )
    return Revocations(number, expires, tuple(signers), tuple(entries))


class RevocationList:
    """The list that is in force on this machine.

    Args:
        store: the user's cache, which keeps it.
        key: the public key that signs it.
    """

    def __init__(self, store: Store, key: TrustedKeys) -> None:
        self._store, self._key = store, key
        self._place = store.layout.version / REVOCATIONS
        self._lock = threading.Lock()
        self._fresh_until = -math.inf
        self._current: Revocations | None = None

    @property
    def current(self) -> Revocations | None:
        """The newest list ever seen; None if there was none.

        Raises:
            CacheTrustError: others could have written to the user's cache.
        """
        if self._current is None:
            self._current = self._kept()
        return self._current

    def check(self, manifest: bytes, signature: bytes | None) -> None:
        """Reject an entry that is revoked, or signed by a revoked key. Its signature must have been verified.

        Raises:
            UntrustedEntryError: it is revoked.
        """
        current = self.current
        if current is None or signature is None:
            return
        key, signer = json.loads(manifest)["key"], key_id_of(signature)
        if key in current.entries:
            raise UntrustedEntryError(f"it is revoked by the list number {current.number}")
        if signer in current.signers:
            raise UntrustedEntryError(f"its signing key {signer} is revoked by the list number {current.number}")

    def refresh(self, read: Callable[[], bytes | None], tier: str) -> None:
        """Adopt the list of a tier, unless that was done within the last hour.

        Args:
            read: returns the file of the list; None if there is none.
            tier: the name of the tier, for errors.

        Raises:
            RemoteError: there is no list, or it is not signed, has expired, or is older than one seen before.
        """
        with self._lock:
            if time.monotonic() < self._fresh_until:
                return
            raw = read()
            if raw is None:
                raise RemoteError(f"{tier} has no revocation list; publish one with jitnorm cache revoke")
            try:
                found = decode_revocations(raw, self._key)
            except UntrustedEntryError as error:
                raise RemoteError(f"the revocation list of {tier} is refused: {error}") from error
            with self._locked():
                kept = self._kept()  # again, because other processes adopt lists, too
                known = max(filter(None, (kept, self._current)), key=lambda each: each.number, default=None)
                if known is not None and found != known and found.number <= known.number:
                    raise RemoteError(
                        f"the revocation list of {tier} has number {found.number}, but {known.number} was seen before: "
                        "an older list was put back, or two were published with one number"
                    )
                left = found.expires - time.time()
                if left <= 0:
                    raise RemoteError(
                        f"the revocation list of {tier} expired {_days(-left)} ago; renew it with jitnorm cache revoke"
                    )
                if found != kept:
                    self._keep(raw)
            self._current = found
            self._fresh_until = time.monotonic() + min(_FRESH_SECONDS, left)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other processes from adopting a list meanwhile, which this one would replace with an older one."""
        if not self._store.writable:
            yield
            return
        path = self._store.layout.revocations_lock
        with contextlib.suppress(OSError):
            make_folder(path.parent)
        with locked_alone(path, _LOCK_SECONDS) as alone:
            if not alone:
                raise RemoteError(f"another process has held {path} for {_LOCK_SECONDS:g} s")
            yield

    def _kept(self) -> Revocations | None:
        try:
            return decode_revocations(self._store.read(self._place, MAX_BYTES), self._key)
        except (OSError, UntrustedEntryError):  # no list, a damaged one, or one signed by another key
            return None

    def _keep(self, raw: bytes) -> None:
        if self._store.writable:
            try:
                self._store.replace(self._place, raw)
            except OSError as error:
                raise RemoteError(f"the revocation list cannot be kept in {self._place}: {error}") from error


def revoke(
    remote: RemoteTier, key: SigningKey, *, signers: Iterable[str] = (), entries: Iterable[str] = (), days: float = 30.0
) -> Revocations:
    """Publish the next list of a remote tier, which revokes everything revoked before and more, with a new term.

    Args:
        remote: the tier; its mode need not be ``readwrite``.
        key: the private key of lists.
        signers: ids of signing keys.
        entries: keys of entries.
        days: how long the list is valid.

    Returns:
        The list.

    Raises:
        ValueError: an id or a key is malformed, or the term is not above 0.
        RemoteError: the tier does not answer or cannot be written.
        UntrustedEntryError: the present list is not signed by this key.
    """
    signers, entries = set(signers), set(entries)
    malformed = [each for each in entries if not is_key(each)] + [each for each in signers if len(each) != 16]
    if malformed:
        raise ValueError(f"{malformed[0]!r} is neither the key of an entry, 64 digits, nor the id of a signing key, 16")
    if not 0 < days < math.inf:
        raise ValueError(f"days is {days}; allowed are numbers above 0")
    raw = remote.revocations()
    known = Revocations(0, 0) if raw is None else decode_revocations(raw, TrustedKeys({}).plus(key))
    following = Revocations(
        known.number + 1,
        math.ceil(time.time() + days * DAY_SECONDS),
        tuple(sorted(signers | set(known.signers))),
        tuple(sorted(entries | set(known.entries))),
    )
    remote.write_revocations(encode_revocations(following, key))
    return following


def require_trusted_keys(keys: TrustedKeys | None) -> TrustedKeys:
    """Return the trusted keys, which a revocation list needs.

    Raises:
        CacheError: there are none.
    """
    if keys is None:
        raise CacheError(
            "JITNORM_REVOCATION_KEY is set, but JITNORM_TRUSTED_KEYS is not: without it no entry is checked"
        )
    return keys


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii")


def _days(seconds: float) -> str:
    return f"{seconds / DAY_SECONDS:.1f} days"
