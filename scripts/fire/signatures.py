"""Shared folders with signatures that are wrong in some way: only what a trusted key has signed is loaded."""

from __future__ import annotations

import json
from importlib.util import find_spec

from jitnorm.cache import Store
from jitnorm.cache.artifact import encode_manifest

from fire.corruption import damaged
from fire.trial import Trial, Unavailable, artifact_of, evil


def attack(trial: Trial) -> None:
    """Twelve entries, each with a signature of another kind."""
    if find_spec("cryptography") is None:
        raise Unavailable("the package cryptography is not installed")
    from jitnorm.cache.signature import SigningKey, TrustedKeys, generate_keys

    for name in ("ours", "theirs"):
        generate_keys(trial.folder / name, trial.folder / f"{name}.pem")
    ours, theirs = (SigningKey.load(trial.folder / name) for name in ("ours", "theirs"))
    trusted = TrustedKeys.load([trial.folder / "ours.pem"])
    writer = Store(trial.folder / "shared")
    shared = Store(trial.folder / "shared", writable=False, name="shared", check=trusted.check)
    for _ in range(12):
        key = trial.key()
        good, bad = (encode_manifest(key, each) for each in (artifact_of(key), evil(key)))
        forged = json.dumps({**json.loads(theirs.sign(bad)), "key": ours.key_id}).encode()
        signature = trial.chance.choice(
            [None, ours.sign(good), damaged(ours.sign(good), trial.chance), theirs.sign(bad), forged]
        )
        writer.publish(key, evil(key), signature)
        with trial.bounded(0):
            assert shared.load(key) is None, f"loaded by the signature {signature!r}"
        signed = trial.key()
        writer.publish(signed, artifact_of(signed), ours.sign(encode_manifest(signed, artifact_of(signed))))
        assert shared.load(signed) == artifact_of(signed), "a good signature was refused"
