"""Archives that are damaged at random: an import adds all entries whole, or nothing."""

from __future__ import annotations

from jitnorm.cache import ArchiveError, Store
from jitnorm.cache.archive import export_archive, import_archive

from fire.corruption import damaged
from fire.trial import Trial, artifact_of


def attack(trial: Trial) -> None:
    """Twenty damaged copies of an archive of up to four entries."""
    store = Store(trial.root)
    keys = [trial.key() for _ in range(trial.chance.randint(1, 4))]
    for key in keys:
        store.publish(key, artifact_of(key))
    export_archive(store, trial.folder / "good.tar")
    good = (trial.folder / "good.tar").read_bytes()
    for number in range(20):
        (trial.folder / "bad.tar").write_bytes(damaged(good, trial.chance))
        target = Store(trial.folder / f"imported{number}")
        with trial.bounded(0):
            try:
                added = import_archive(target, trial.folder / "bad.tar").added
            except ArchiveError:
                assert not list(target.layout.entries()), "a part of a refused archive was added"
                continue
        assert set(added) <= set(keys), "an entry that was never made"
        assert all(target.load(key) == artifact_of(key) for key in added), "wrong bytes"
