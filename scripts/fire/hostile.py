"""Other users, open modes, links and pipes in the cache: no foreign code is loaded, and an error names the remedy."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from jitnorm.cache import Cache, CacheTrustError, Store

from fire.trial import Trial, artifact_of, evil, source_of

_STRANGER = 65534


def attack(trial: Trial) -> None:
    """One change on the path to an entry, which then leads to a stranger's code."""
    store, key = Store(trial.root), trial.key()
    store.publish(key, artifact_of(key))
    entry = store.layout.entry(key)
    places = [trial.root, store.layout.version, entry.parent, entry, entry / "payload", entry / "manifest.json"]
    place = trial.chance.choice(places)
    strange = _stranger_s_copy(trial, key, place)
    change = trial.chance.choice(_CHANGES)
    change(trial, place, strange)
    trial.excused = True
    for _ in range(3):
        trial.ask(Store(trial.root), key)
        try:
            found = Cache(Store(trial.root)).load_source(source_of(key))
        except CacheTrustError:
            found = None
        assert found in (None, artifact_of(key)), f"a stranger's code was loaded: {change.__name__} of {place}"
    if trial.root.is_symlink():
        trial.root.unlink()
    shutil.rmtree(trial.root, ignore_errors=True)  # the remedy of every message


def _stranger_s_copy(trial: Trial, key: str, place: Path) -> Path:
    """Like a place of the cache, with other code, which belongs to somebody else if this user can give it away."""
    folder = trial.folder / "strange"
    theirs = Store(folder)
    theirs.publish(key, evil(key))
    for path in [folder, *folder.rglob("*")]:
        if os.geteuid() == 0:
            os.chown(path, _STRANGER, -1)
        else:
            path.chmod(0o777)
    return folder / place.relative_to(trial.root)


def _open(trial: Trial, place: Path, strange: Path) -> None:
    """Others can write to the place, and have."""
    if place.is_file():
        place.write_bytes(strange.read_bytes())
    else:
        shutil.rmtree(place)
        shutil.copytree(strange, place)
    place.chmod(trial.chance.choice([0o777, 0o770, 0o707, 0o722]))


def _link(trial: Trial, place: Path, strange: Path) -> None:
    _remove(place)
    place.symlink_to(strange)


def _put(trial: Trial, place: Path, strange: Path) -> None:
    """The stranger's own copy, moved there."""
    _remove(place)
    strange.rename(place)


def _pipe(trial: Trial, place: Path, strange: Path) -> None:
    """A pipe, which nobody ever writes to."""
    if place == trial.root:
        return
    _remove(place)
    os.mkfifo(place)


def _hard_link(trial: Trial, place: Path, strange: Path) -> None:
    if place.is_file():
        place.unlink()
        os.link(strange, place)


def _remove(place: Path) -> None:
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink()


_CHANGES: list[Callable[[Trial, Path, Path], None]] = [_open, _link, _put, _pipe, _hard_link]
