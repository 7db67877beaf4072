"""Ed25519 signatures of entries. They sign the manifest file, which contains the payload's digest.

An entry's file ``signature`` is JSON with the id of the key, the signature in hexadecimal digits and, if it expires,
its expiry time in seconds since the epoch.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jitnorm.cache.artifact import encode_manifest
from jitnorm.cache.errors import CacheError, UntrustedEntryError
from jitnorm.cache.store import Store

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

MAX_BYTES = 4096
# Makes signatures for other purposes invalid for manifests.
_PURPOSE = b"jitnorm-cache-manifest-1\0"
_PURPOSE_UNTIL = b"jitnorm-cache-manifest-until-1\0"
_KEY_ID_DIGITS = 16
_MAX_KEY_BYTES = 65536
_DAY_SECONDS = 86400.0
_LAST_SECOND = 253402300799  # the end of the year 9999


class SigningKey:
    """A private key, which signs manifest files.

    Args:
        key: the private key.
        days: how long its signatures are valid; None: forever.

    Attributes:
        public: its public key.
        key_id: the id of the key, 16 hexadecimal digits.
    """

    def __init__(self, key: Ed25519PrivateKey, days: float | None = None) -> None:
        self._key, self.public, self._days = key, key.public_key(), days
        self.key_id = _key_id(self.public)

    @classmethod
    def load(cls, path: str | Path, days: float | None = None) -> SigningKey:
        """Read a private key, unencrypted, in PEM.

        Raises:
            CacheError: it cannot be read or is not an Ed25519 key, or cryptography is not installed.
        """
        _require_cryptography()
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        key = _read_key(Path(path), lambda raw: load_pem_private_key(raw, None), Ed25519PrivateKey, "private")
        return cls(key, days)

    def sign(self, manifest: bytes) -> bytes:
        """Sign a manifest file, and return its signature file."""
        content: dict[str, Any] = {"key": self.key_id}
        if self._days is not None:
            content["expires"] = math.ceil(time.time() + self._days * _DAY_SECONDS)
        content["signature"] = self._key.sign(_signed(manifest, content.get("expires"))).hex()
        return json.dumps(content, sort_keys=True).encode("ascii") + b"\n"


class TrustedKeys:
    """The public keys whose signatures are accepted.

    Args:
        keys: the keys, by id.
    """

    def __init__(self, keys: Mapping[str, Ed25519PublicKey]) -> None:
        self._keys = keys

    @classmethod
    def load(cls, paths: Sequence[str | Path]) -> TrustedKeys:
        """Read public keys in PEM.

        Args:
            paths: files, and folders of ``*.pem`` files.

        Raises:
            CacheError: a key cannot be read or is not an Ed25519 key, a folder has none, or cryptography is not
                installed.
        """
        _require_cryptography()
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key

        keys = {}
        for path in _key_files(paths):
            key = _read_key(path, load_pem_public_key, Ed25519PublicKey, "public")
            keys[_key_id(key)] = key
        return cls(keys)

    @property
    def key_ids(self) -> tuple[str, ...]:
        """The ids of the keys, sorted."""
        return tuple(sorted(self._keys))

    def plus(self, key: SigningKey) -> TrustedKeys:
        """Add the public key of a private key."""
        return TrustedKeys({**self._keys, key.key_id: key.public})

    def check(self, manifest: bytes, signature: bytes | None) -> None:
        """Reject a manifest file that none of the keys has signed.

        Args:
            manifest: the manifest file.
            signature: the signature file, if any.

        Raises:
            UntrustedEntryError: the signature is missing, invalid, expired, or by another key.
        """
        from cryptography.exceptions import InvalidSignature

        if signature is None:
            raise UntrustedEntryError(f"it is not signed; trusted are {', '.join(self.key_ids)}")
        try:
            content = json.loads(signature[:MAX_BYTES])
            key_id, value = content["key"], bytes.fromhex(content["signature"])
            signed, expires = _signed(manifest, content.get("expires")), content.get("expires")
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise UntrustedEntryError(f"its signature file is malformed: {error!r}") from error
        key = self._keys.get(key_id) if isinstance(key_id, str) else None
        if key is None:
            raise UntrustedEntryError(f"it is signed by the key {key_id!r}; trusted are {', '.join(self.key_ids)}")
        try:
            key.verify(value, signed)
        except InvalidSignature as error:
            raise UntrustedEntryError(f"the signature by the key {key_id} does not match this manifest") from error
        if expires is not None and expires <= time.time():
            ended = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(expires))
            raise UntrustedEntryError(f"its signature by the key {key_id} expired on {ended}; sign it again")


def generate_keys(private: Path, public: Path) -> str:
    """Create a key pair in PEM; only the owner can read the private key.

    Args:
        private: the file for the private key, which must not exist.
        public: the file for the public key, which must not exist.

    Returns:
        The id of the key.

    Raises:
        FileExistsError: one of the files exists; nothing is ever overwritten.
        OSError: one of them cannot be written.
        CacheError: cryptography is not installed.
    """
    _require_cryptography()
    from cryptography.hazmat.primitives import serialization as pem
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    secret = key.private_bytes(pem.Encoding.PEM, pem.PrivateFormat.PKCS8, pem.NoEncryption())
    shared = key.public_key().public_bytes(pem.Encoding.PEM, pem.PublicFormat.SubjectPublicKeyInfo)
    for path, content, mode in ((private, secret, 0o600), (public, shared, 0o644)):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    return _key_id(key.public_key())


def sign_entries(store: Store, key: SigningKey, keys: Iterable[str] | None = None) -> list[str]:
    """Sign entries of a store, replacing existing signatures.

    Args:
        store: a writable store.
        key: the signing key.
        keys: keys of the entries; default: all.

    Returns:
        The keys of the signed entries, without absent or damaged ones.

    Raises:
        OSError: a signature cannot be written.
    """
    signed = []
    for name in [entry.key for entry in store.entries()] if keys is None else keys:
        artifact = store.load(name)
        if artifact is not None:
            store.add_signature(name, key.sign(encode_manifest(name, artifact)))
            signed.append(name)
    return signed


def key_id_of(signature: bytes) -> str:
    """The id of the key in a signature file that was verified."""
    return str(json.loads(signature)["key"])


def is_second(value: object) -> bool:
    """Whether a value is a representable time in whole seconds since the epoch."""
    return type(value) is int and 0 <= value <= _LAST_SECOND


def _signed(manifest: bytes, expires: object) -> bytes:
    """The bytes that a signature covers; TypeError if its expiry is not a representable time."""
    if expires is None:
        return _PURPOSE + manifest
    if not is_second(expires):
        raise TypeError(
            f"expires is {expires!r}; allowed are whole seconds since the epoch, up to {_LAST_SECOND}, and None"
        )
    return _PURPOSE_UNTIL + str(expires).encode() + b"\0" + manifest


def _require_cryptography() -> None:
    from importlib.util import find_spec

    if find_spec("cryptography") is None:
        raise CacheError(
            "JITNORM_TRUSTED_KEYS and JITNORM_SIGNING_KEY need the package cryptography, which is not installed: "
            "pip install 'jitnorm[sign]'"
        )


def _key_files(paths: Iterable[str | Path]) -> list[Path]:
    files = []
    for path in map(Path, paths):
        if not path.is_dir():
            files.append(path)
            continue
        found = sorted(path.glob("*.pem"))
        if not found:
            raise CacheError(f"JITNORM_TRUSTED_KEYS names the folder {path}, which has no *.pem files")
        files += found
    return files


def _read_key(path: Path, load: Callable[[bytes], object], kind: Any, side: str) -> Any:
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        with path.open("rb") as file:
            key = load(file.read(_MAX_KEY_BYTES))
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise CacheError(f"cannot read the {side} key {path}: {error}; expected an Ed25519 key in PEM") from error
    if not isinstance(key, kind):
        raise CacheError(f"the {side} key {path} is a {type(key).__name__}; expected an Ed25519 key in PEM")
    return key


def _key_id(key: Ed25519PublicKey) -> str:
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()[:_KEY_ID_DIGITS]
