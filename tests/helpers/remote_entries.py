"""Entries for tests of remote tiers."""

from __future__ import annotations

from jitnorm.cache import Artifact, make_key

SOURCE = make_key({"source": "int f();"})
KEYS = sorted(make_key({"number": str(number)}) for number in range(5))
LIMIT = 30.0


def artifact_of(key: str) -> Artifact:
    return Artifact(key.encode() * 1000, {"of": key, "source_key": SOURCE})
