"""Computes the key of an artifact, a digest over everything that shaped it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

# Raise the number whenever the bytes hashed for the same fields change.
_SCHEMA = (b"schema", b"jitnorm-cache-key-1")
_LENGTH_BYTES = 8
_KEY = re.compile(r"[0-9a-f]{64}")


def make_key(fields: Mapping[str, str | bytes]) -> str:
    """Hash labelled fields into a cache key.

    Every label and value is prefixed with its length, in the order of the labels, after a schema field, so two field
    maps give the same bytes only if they are equal. Text is hashed as UTF-8.

    Args:
        fields: everything the artifact depends on, by label. Labels must not be empty.

    Returns:
        64 lower-case hexadecimal digits.

    Raises:
        ValueError: a label is empty.
        TypeError: a value is neither ``str`` nor ``bytes``.

    Example:
        >>> make_key({"source": "int f();", "flags": "-O3"})[:16]
        'c27b507481c0e98b'
    """
    digest = hashlib.sha256()
    encoded = sorted((_encode_label(label), _encode_value(label, value)) for label, value in fields.items())
    for label, value in (_SCHEMA, *encoded):
        for part in (label, value):
            digest.update(len(part).to_bytes(_LENGTH_BYTES, "little"))
            digest.update(part)
    return digest.hexdigest()


def is_key(name: str) -> bool:
    """Whether ``name`` has the form of a key from ``make_key``."""
    return _KEY.fullmatch(name) is not None


def check_key(key: str) -> None:
    """Validate a key, so that keys are always safe to use as file names.

    Raises:
        ValueError: ``key`` is not a key.
    """
    if not is_key(key):
        raise ValueError(f"cache key is {key!r}; allowed are 64 lower-case hexadecimal digits: get one from make_key")


def _encode_label(label: str) -> bytes:
    if not label:
        raise ValueError("a field of the cache key has an empty label; name what the field holds")
    return _encode_text(label)


def _encode_value(label: str, value: str | bytes) -> bytes:
    if isinstance(value, str):
        return _encode_text(value)
    if isinstance(value, bytes):
        return value
    raise TypeError(
        f"cache key field {label!r} is a {type(value).__name__}; allowed are str and bytes: convert it first"
    )


def _encode_text(text: str) -> bytes:
    # Paths may hold lone surrogates (os.fsdecode of undecodable bytes); they must still give distinct keys.
    return text.encode("utf-8", "surrogatepass")
