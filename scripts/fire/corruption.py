"""Files of the cache that are damaged at random: entries are detected and rebuilt, all other files are hints."""

from __future__ import annotations

import random
from pathlib import Path

from jitnorm.cache import Cache, Store

from fire.trial import Trial, artifact_of, source_of


def attack(trial: Trial) -> None:
    """Eight rounds, in each of which up to three files are damaged."""
    store = Store(trial.root)
    keys = [trial.key() for _ in range(4)]
    for _ in range(8):
        for key in keys:
            trial.ask(store, key)
        files = sorted(path for path in trial.root.rglob("*") if path.is_file() and path.stat().st_size)
        for path in trial.chance.sample(files, min(len(files), trial.chance.randint(1, 3))):
            damage(path, trial.chance)
        for key in keys:
            found = Cache(store).load_source(source_of(key))
            assert found in (None, artifact_of(key)), "wrong bytes"
            trial.ask(store, key)
        if trial.chance.random() < 0.3:
            list(store.entries())


def damage(path: Path, chance: random.Random) -> None:
    """Change a file: bits, its end, its whole content."""
    path.write_bytes(damaged(path.read_bytes(), chance))


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Bytes as damage may leave them."""
    at = chance.randrange(len(data) + 1)
    kind = chance.randrange(6)
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data + chance.randbytes(chance.randint(1, 4096))
    if kind == 2:
        return bytes(len(data))
    if kind == 3:
        return chance.randbytes(len(data))
    if kind == 4:
        return data[:at] + chance.randbytes(8) + data[at:]
    changed = bytearray(data)
    for _ in range(chance.randint(1, 8)):
        if changed:
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)
