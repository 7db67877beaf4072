"""System calls that a preloaded library makes fail, one at a time: the artifact is right nevertheless."""

from __future__ import annotations

import ctypes
import errno
import json
import random
import sys
from pathlib import Path

from jitnorm.cache import Cache, CacheError, Store

from fire.trial import Trial, artifact_of

NUMBERS = ("EIO", "ENOSPC", "EDQUOT", "EACCES", "EMFILE", "ENOMEM", "EROFS", "ESTALE", "EBUSY")
_ROUNDS = 40
# More than the calls of a lookup or of a build.
_CALLS = 120


def attack(trial: Trial) -> None:
    """Forty lookups and builds in a process, in each of which one call fails."""
    happened = trial.output_with("faults.c", "fire.io_errors", seed=trial.chance.getrandbits(32))
    assert int(happened), "no call has failed: the library is not in place"


def _provoke(root: str, seed: int) -> None:
    """Ask repeatedly, with a fault each time; return how many occurred."""
    arm = ctypes.CDLL(None).fire_arm
    arm.restype, arm.argtypes = ctypes.c_long, (ctypes.c_long, ctypes.c_int)
    chance, happened = random.Random(seed), 0
    store = Store(Path(root))
    keys = [f"{chance.getrandbits(256):064x}" for _ in range(_ROUNDS)]
    for key in keys[:2]:  # imports what would otherwise be imported late
        store.publish(key, artifact_of(key))
        assert store.load(key) == artifact_of(key)
    for _ in range(_ROUNDS):
        key, number = chance.choice(keys), chance.choice(NUMBERS)
        at = chance.randint(1, _CALLS)
        arm(at, getattr(errno, number))
        try:
            found = Cache(store).load_or_build(key, lambda key=key: artifact_of(key), timeout=0.2)  # type: ignore[misc]
            left = arm(0, 0)
        except CacheError as error:
            arm(0, 0)
            raise AssertionError(f"{number} at call {at}: {error}") from error
        except BaseException:
            arm(0, 0)
            print(f"{number} at call {at}", file=sys.stderr)
            raise
        happened += left <= 0
        assert found == artifact_of(key), f"wrong bytes after {number} at call {at}"
    print(happened)


if __name__ == "__main__":
    _provoke(**json.loads(sys.argv[1]))
