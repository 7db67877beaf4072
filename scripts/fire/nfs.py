"""A file system that a preloaded library makes behave like NFS: lost answers, stale and renamed files."""

from __future__ import annotations

import ctypes
import json
import random
import sys
from pathlib import Path

from jitnorm.cache import Cache, CacheError, Store
from jitnorm.cache.check import verify
from jitnorm.cache.space import prune

from fire.trial import Trial, artifact_of

_ROUNDS = 60
_ONE_IN = 5  # answers that are lost


def attack(trial: Trial) -> None:
    """Sixty lookups and builds between prunings and verifications, while another process clears the cache."""
    keys, seed = [trial.key() for _ in range(6)], trial.chance.getrandbits(31)
    with trial.worker("prune_again_and_again", root=trial.root):
        happened = trial.output_with("nfs.c", "fire.nfs", keys=keys, seed=seed)
    assert int(happened), "nothing has happened: the library is not in place"


def _use(root: str, keys: list[str], seed: int) -> None:
    """Use a cache at random; return how many events occurred that local disks do not have."""
    nfs = ctypes.CDLL(None).fire_nfs
    nfs.restype, nfs.argtypes = ctypes.c_long, (ctypes.c_uint, ctypes.c_uint)
    chance, store = random.Random(seed), Store(Path(root))
    nfs(seed, _ONE_IN)
    for _ in range(_ROUNDS):
        key, what = chance.choice(keys), chance.random()
        if what < 0.8:
            try:
                found = Cache(store).load_or_build(key, lambda key=key: artifact_of(key), timeout=0.2)  # type: ignore[misc]
            except CacheError as error:
                raise AssertionError("an error instead of the artifact") from error
            assert found == artifact_of(key), "wrong bytes"
        elif what < 0.9:
            prune(store, chance.choice([0, 1 << 14]))
        else:
            list(verify(store, repair=True))
    print(nfs(0, 0))


if __name__ == "__main__":
    _use(**json.loads(sys.argv[1]))
