"""Artifacts, and the manifest file that allows verifying every byte of a stored one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from jitnorm.cache.errors import CorruptEntryError

_SCHEMA = 1


@dataclass(frozen=True)
class Artifact:
    """The result of a build: the bytes to load, and their description.

    Attributes:
        payload: the built bytes, for example a shared library.
        manifest: a JSON object (string keys; lists rather than tuples; finite numbers). A copy is kept.

    Raises:
        TypeError: the payload is not ``bytes``, or the manifest is not a JSON object.

    Example:
        >>> Artifact(b"ELF...", {"target": "sm_90a"}).manifest["target"]
        'sm_90a'
    """

    payload: bytes = field(repr=False)
    manifest: Mapping[str, Any]

    def __post_init__(self) -> None:
        if not isinstance(self.payload, bytes):
            raise TypeError(f"payload is a {type(self.payload).__name__}; allowed is bytes: wrap it in bytes()")
        object.__setattr__(self, "manifest", _copy_json_object(self.manifest))


class Entry(NamedTuple):
    """One stored artifact, as shown in listings.

    Attributes:
        key: its key.
        payload_size: bytes of its payload.
        modified: when it was published, in seconds since the epoch.
        manifest: its description by its builder.
    """

    key: str
    payload_size: int
    modified: float
    manifest: Mapping[str, Any]


@dataclass(frozen=True)
class ManifestFile:
    """The content of an entry's manifest file: the caller's manifest, and the payload's size and digest."""

    manifest: dict[str, Any]
    payload_size: int
    payload_sha256: str


def encode_manifest(key: str, artifact: Artifact) -> bytes:
    """Return the manifest file of ``artifact`` stored under ``key``."""
    body = {
        "schema": _SCHEMA,
        "key": key,
        "payload": {"size": len(artifact.payload), "sha256": _sha256(artifact.payload)},
        "manifest": artifact.manifest,
    }
    return _canonical_json({**body, "digest": _sha256(_canonical_json(body))})


def decode_manifest(key: str, raw: bytes) -> ManifestFile:
    """Read and verify a manifest file.

    Raises:
        CorruptEntryError: ``raw`` is not, byte for byte, a manifest file written for ``key``.
    """
    try:
        body = json.loads(raw)
        # Only the canonical form is accepted, so no byte can change without changing the content.
        if _canonical_json(body) != raw:
            raise CorruptEntryError("manifest.json is not in canonical form")
        digest = body.pop("digest")
        if body["schema"] != _SCHEMA or body["key"] != key:
            raise CorruptEntryError("manifest.json has another schema or belongs to another key")
        if digest != _sha256(_canonical_json(body)):
            raise CorruptEntryError("manifest.json does not match its digest")
        manifest, size, sha256 = body["manifest"], body["payload"]["size"], body["payload"]["sha256"]
        if not (isinstance(manifest, dict) and isinstance(size, int) and isinstance(sha256, str)):
            raise CorruptEntryError("manifest.json has fields of the wrong type")
        return ManifestFile(manifest, size, sha256)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CorruptEntryError(f"manifest.json is not a manifest: {type(error).__name__}: {error}") from error


def decode_artifact(key: str, raw_manifest: bytes, payload: bytes) -> Artifact:
    """Verify both files of an entry and return the artifact.

    Raises:
        CorruptEntryError: a byte differs from what was published for ``key``.
    """
    return verify_payload(decode_manifest(key, raw_manifest), payload)


def verify_payload(expected: ManifestFile, payload: bytes) -> Artifact:
    """Compare a payload with its manifest file and return the artifact.

    Raises:
        CorruptEntryError: the payload does not match, or the manifest is invalid.
    """
    if len(payload) != expected.payload_size:
        raise CorruptEntryError(f"payload has {len(payload)} bytes instead of {expected.payload_size}")
    if _sha256(payload) != expected.payload_sha256:
        raise CorruptEntryError("payload does not match its digest")
    try:
        return Artifact(payload, expected.manifest)
    except TypeError as error:
        raise CorruptEntryError(f"manifest.json holds no manifest: {error}") from error


def _copy_json_object(manifest: object) -> dict[str, Any]:
    """Return a deep copy of a JSON object, rejecting values that would not read back equal from a file."""
    remedy = "use an object of string keys, strings, finite numbers, booleans, None, lists and objects"
    if not isinstance(manifest, Mapping):
        raise TypeError(f"manifest is a {type(manifest).__name__}, not a JSON object; {remedy}")
    try:
        copy: dict[str, Any] = json.loads(_canonical_json(dict(manifest)))
        is_equal = copy == dict(manifest)
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"manifest is not a JSON object ({error}); {remedy}") from error
    if not is_equal:
        raise TypeError(f"manifest would come back from JSON as {copy!r}; {remedy}")
    return copy


def _canonical_json(value: object) -> bytes:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii")


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
