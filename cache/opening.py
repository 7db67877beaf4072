"""Opens and checks all tiers of the cache that the environment describes."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jitnorm.cache.errors import CacheError, CacheTrustError
from jitnorm.cache.failures import tier_failed
from jitnorm.cache.readonly import open_read_only, readonly_folders
from jitnorm.cache.root import default_root, open_root, root_is_explicit
from jitnorm.cache.store import SignatureCheck, Store
from jitnorm.cache.tiers import Cache
from jitnorm.cache.wheels import WheelFolder, wheel_folders

if TYPE_CHECKING:
    from jitnorm.cache.build import Sign
    from jitnorm.cache.remote import RemoteTier
    from jitnorm.cache.revocation import RevocationList
    from jitnorm.cache.signature import SigningKey, TrustedKeys

REMOTE_VARIABLE = "JITNORM_REMOTE_CACHE"
MODE_VARIABLE = "JITNORM_REMOTE_MODE"
TIMEOUT_VARIABLE = "JITNORM_REMOTE_TIMEOUT"
KEYS_VARIABLE = "JITNORM_TRUSTED_KEYS"
SIGNING_VARIABLE = "JITNORM_SIGNING_KEY"
DAYS_VARIABLE = "JITNORM_SIGNATURE_DAYS"
REVOCATION_VARIABLE = "JITNORM_REVOCATION_KEY"

_MODES = ("read", "readwrite")
_DEFAULT_TIMEOUT_SECONDS = 10.0
_MAX_TIMEOUT_SECONDS = 3600.0
_MAX_DAYS = 36500.0


def open_store() -> Store:
    """Open the user's cache; see ``default_root`` for its location.

    Raises:
        CacheTrustError: others could have written to it.
        CacheUnusableError: ``JITNORM_CACHE_DIR`` names a folder that cannot be created or written.
        CacheError: ``JITNORM_CACHE_TRUST`` or ``JITNORM_CACHE_MAX_BYTES`` has a value that is not allowed.

    Example:
        >>> open_store().layout.root == default_root().resolve()
        True
    """
    root = open_root(default_root(), explicit=root_is_explicit())
    return Store(root.path, writable=root.writable)


def open_cache(store: Store | None = None, wheels: Sequence[WheelFolder] = ()) -> Cache:
    """Open all tiers that the environment describes.

    Untrusted wheel folders and missing read-only folders are skipped with a warning, and listed by ``failed_tiers``.

    Args:
        store: the user's cache; default: from ``open_store``.
        wheels: folders to search before those of other wheels.

    Raises:
        CacheTrustError: others could have written to the user's cache or a folder of ``JITNORM_READONLY_CACHE``.
        CacheUnusableError: ``JITNORM_CACHE_DIR`` names a folder that cannot be created or written.
        CacheError: a variable has an invalid value, or needs a package that is not installed.

    Example:
        >>> cache = open_cache()
        >>> cache.store in cache.tiers
        True
    """
    store = open_store() if store is None else store
    check = signature_check(store)
    above = [*_wheel_tiers(wheels), *_readonly_tiers(check)]
    return Cache(store, above=above, remote=remote_tier(check, store=store), sign=signer())


def remote_tier(
    check: SignatureCheck | None = None, url: str | None = None, *, store: Store | None = None
) -> RemoteTier | None:
    """The remote tier that the environment describes, if any; it is not contacted yet.

    Args:
        check: verifies the signature of every entry; None to require none.
        url: the URL of its folder; default: ``JITNORM_REMOTE_CACHE``.
        store: the user's cache, which keeps the revocation list; None to require none.

    Raises:
        CacheError: one of its variables has an invalid value, or fsspec is not installed.
    """
    timeout, mode, url = remote_timeout(), remote_mode(), url or os.environ.get(REMOTE_VARIABLE)
    if not url:
        return None
    from jitnorm.cache.remote import RemoteTier

    revocations = None if store is None else revocation_list(store)
    return RemoteTier(url, timeout=timeout, writable=mode == "readwrite", check=check, revocations=revocations)


def signature_check(store: Store | None = None) -> SignatureCheck | None:
    """The check for signatures of shared tiers; None if ``JITNORM_TRUSTED_KEYS`` is not set.

    Args:
        store: the user's cache, which keeps the revocation list; None to ignore revocations.

    Raises:
        CacheError: the variable names no key, a key cannot be read, or cryptography is not installed.
    """
    keys = trusted_keys()
    revocations = None if store is None else revocation_list(store)
    if keys is None or revocations is None:
        return None if keys is None else keys.check

    def check(manifest: bytes, signature: bytes | None) -> None:
        keys.check(manifest, signature)
        revocations.check(manifest, signature)

    return check


def revocation_list(store: Store) -> RevocationList | None:
    """The list that ``JITNORM_REVOCATION_KEY`` signs; None if the variable is not set.

    Args:
        store: the user's cache, which keeps it.

    Raises:
        CacheError: the key cannot be read, no keys are trusted, or cryptography is not installed.
    """
    named = os.environ.get(REVOCATION_VARIABLE)
    if not named:
        return None
    from jitnorm.cache.revocation import RevocationList, require_trusted_keys
    from jitnorm.cache.signature import TrustedKeys

    require_trusted_keys(trusted_keys())
    return RevocationList(store, TrustedKeys.load([os.path.expanduser(named)]))


def publishing_check() -> SignatureCheck | None:
    """The check for signatures of entries that a command publishes; None if no variable names a key.

    Trusts the keys of ``JITNORM_TRUSTED_KEYS``, and ``JITNORM_SIGNING_KEY``, with which this machine signs new builds.
    For errors see `signature_check`.
    """
    trusted, own = trusted_keys(), signing_key()
    if own is None:
        return None if trusted is None else trusted.check
    from jitnorm.cache.signature import TrustedKeys

    return (trusted or TrustedKeys({})).plus(own).check


def trusted_keys() -> TrustedKeys | None:
    """The keys that ``JITNORM_TRUSTED_KEYS`` names, or None; for errors see `signature_check`."""
    text = os.environ.get(KEYS_VARIABLE)
    if text is None:
        return None
    named = [os.path.expanduser(name) for name in text.split(os.pathsep) if name.strip()]
    if not named:  # setting it asks for signatures: an empty value must not disable them
        raise CacheError(
            f"{KEYS_VARIABLE} is {text!r}, which names no key: name files of public keys, or folders of them; or unset "
            "it to require no signatures"
        )
    from jitnorm.cache.signature import TrustedKeys

    return TrustedKeys.load(named)


def signer() -> Sign | None:
    """The function that signs new builds; None if ``JITNORM_SIGNING_KEY`` is not set.

    Raises:
        CacheError: the key cannot be read, or cryptography is not installed.
    """
    key = signing_key()
    return None if key is None else key.sign


def signing_key() -> SigningKey | None:
    """The key that ``JITNORM_SIGNING_KEY`` names, or None; for errors see `signer`."""
    named = os.environ.get(SIGNING_VARIABLE)
    if not named:
        return None
    from jitnorm.cache.signature import SigningKey

    return SigningKey.load(os.path.expanduser(named), signature_days())


def signature_days() -> float | None:
    """``JITNORM_SIGNATURE_DAYS``, how long new signatures are valid; None, forever, by default.

    Raises:
        CacheError: the value is not a number in the allowed range.
    """
    text = os.environ.get(DAYS_VARIABLE)
    if not text:
        return None
    try:
        days = float(text)
    except ValueError:
        days = math.nan
    if not 0 < days <= _MAX_DAYS:
        raise CacheError(f"{DAYS_VARIABLE} is {text!r}; allowed are more than 0 and up to {_MAX_DAYS:g} days")
    return days


def _wheel_tiers(first: Sequence[WheelFolder]) -> list[Store]:
    tiers = []
    for wheel in (*first, *wheel_folders()):
        name = f"wheel {wheel.name}"
        try:
            tiers.append(open_read_only(wheel.path, name))
        except (OSError, CacheTrustError) as error:
            tier_failed(name, str(error))
    return tiers


def _readonly_tiers(check: SignatureCheck | None) -> list[Store]:
    tiers = []
    for path in readonly_folders():
        name = f"read-only {path}"
        try:
            tiers.append(open_read_only(path, name, check))
        except OSError as error:
            tier_failed(name, str(error))
    return tiers


def remote_mode() -> str:
    """``JITNORM_REMOTE_MODE``, ``read`` by default.

    Raises:
        CacheError: the value is not one of the allowed ones.
    """
    mode = os.environ.get(MODE_VARIABLE) or _MODES[0]
    if mode not in _MODES:
        raise CacheError(f"{MODE_VARIABLE} is {mode!r}; allowed are {' and '.join(_MODES)}: unset it for {_MODES[0]}")
    return mode


def remote_timeout() -> float:
    """``JITNORM_REMOTE_TIMEOUT`` in seconds, 10 by default.

    Raises:
        CacheError: the value is not a number in the allowed range.
    """
    text = os.environ.get(TIMEOUT_VARIABLE) or str(_DEFAULT_TIMEOUT_SECONDS)
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= _MAX_TIMEOUT_SECONDS:
        raise CacheError(
            f"{TIMEOUT_VARIABLE} is {text!r}; allowed are more than 0 and up to {_MAX_TIMEOUT_SECONDS:g} seconds: "
            f"unset it for {_DEFAULT_TIMEOUT_SECONDS:g}"
        )
    return seconds
