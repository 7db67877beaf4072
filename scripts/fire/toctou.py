"""Folders and files that are exchanged while they are read: only checked bytes are loaded."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from pathlib import Path

from jitnorm.cache import CacheError, Store

from fire.trial import Trial, artifact_of, evil

_LOADS = 60


def attack(trial: Trial) -> None:
    """A thread exchanges a component of the path to an entry for a stranger's, back and forth, during sixty loads."""
    store, key = Store(trial.root), trial.key()
    store.publish(key, artifact_of(key))
    entry = store.layout.entry(key)
    place = trial.chance.choice([store.layout.version, entry.parent, entry, entry / "payload", entry / "manifest.json"])
    theirs = trial.folder / "theirs"
    Store(theirs).publish(key, evil(key))
    strange = theirs / place.relative_to(trial.root)
    for path in [theirs, *theirs.rglob("*")]:
        path.chmod(0o777)
    done, reads = threading.Event(), 0
    as_link = trial.chance.random() < 0.5
    exchanging = threading.Thread(target=_exchange, args=(place, strange, as_link, done))
    exchanging.start()
    try:
        for _ in range(_LOADS):
            with trial.bounded(0), contextlib.suppress(CacheError):
                found = store.load(key)
                assert found in (None, artifact_of(key)), f"a stranger's code was loaded in place of {place}"
                reads += found is not None
    finally:
        done.set()
        exchanging.join()
    shutil.rmtree(trial.root)


def _exchange(place: Path, strange: Path, as_link: bool, done: threading.Event) -> None:
    aside = place.with_name(f"{place.name}.aside")
    while not done.is_set():
        with contextlib.suppress(OSError):  # the place may be moved to the quarantine meanwhile
            place.rename(aside)
            if as_link:
                place.symlink_to(strange)
                place.unlink()
            else:
                strange.rename(place)
                place.rename(strange)
            os.rename(aside, place)
