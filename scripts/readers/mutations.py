"""Changes of inputs: of bytes, and of the structure of JSON."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

from fire.corruption import damaged
from recipe_fuzzer import change

_TEXTS = (
    b'"', b"{}", b"[]", b"null", b"true", b"-1", b"0", b"1e999", b"NaN", b"\\ud800", b"\xff", b"\0", b"[" * 3000,
    b"9" * 5000, b"1" + b"0" * 400, b"9223372036854775808", b"../", b"v1/",
)  # fmt: skip


def mutated(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """An input like another, with up to four changes."""
    for _ in range(chance.choice((1, 1, 2, 4))):
        data = chance.choice((_structure, _structure, _text, _splice, _repeat, _bytes))(data, others, chance)
    return data


def _structure(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """JSON with another element somewhere; bytes if it is none."""
    try:
        value = json.loads(data)
        change(value, chance)
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii")
    except (ValueError, TypeError, IndexError, RecursionError):
        return _bytes(data, others, chance)


def _text(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + chance.choice(_TEXTS) + data[at + chance.choice((0, 1, 8)) :]


def _splice(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    other = chance.choice(others)
    return data[: chance.randrange(len(data) + 1)] + other[chance.randrange(len(other) + 1) :]


def _repeat(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    first, last = sorted(chance.randrange(len(data) + 1) for _ in range(2))
    return data[:last] + data[first:]


def _bytes(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    return damaged(data, chance)
