"""Shared folders with wrong signatures of several kinds: only entries signed by a trusted key are loaded."""

from __future__ import annotations

import json
from importlib.util import find_spec
from typing import TYPE_CHECKING

from jitnorm.cache import RemoteError, Store
from jitnorm.cache.artifact import encode_manifest
from jitnorm.cache.remote import RemoteTier

from fire.corruption import damaged
from fire.trial import Trial, Unavailable, artifact_of, evil

if TYPE_CHECKING:
    from jitnorm.cache.signature import SigningKey


def attack(trial: Trial) -> None:
    """Twelve entries, each with a signature of another kind, and a revocation list that is put back."""
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
    _put_an_old_list_back(trial, theirs)


def _put_an_old_list_back(trial: Trial, lists: SigningKey) -> None:
    """Processes that ask a tier whose revocation list is replaced at random by an earlier or a damaged one."""
    from jitnorm.cache.revocation import RevocationList, revoke
    from jitnorm.cache.signature import TrustedKeys

    folder, public = trial.folder / "tier", TrustedKeys({}).plus(lists)
    tier, place = RemoteTier(folder.as_uri(), timeout=20), folder / "v1" / "revocations"
    files, seen = [], 0
    for _ in range(4):
        files.append((revoke(tier, lists, entries=[trial.key()]).number, place.read_bytes()))
    for _ in range(12):
        number, raw = trial.chance.choice(files)
        is_whole = trial.chance.random() < 0.7
        raw = raw if is_whole else damaged(raw, trial.chance)
        try:
            RevocationList(Store(trial.root), public).refresh(lambda raw=raw: raw, "tier")  # type: ignore[misc]
        except RemoteError:
            assert number < seen or not is_whole, f"the list {number} was refused, though only {seen} was seen before"
        else:
            assert number >= seen, f"the list {number} was accepted after {seen}"
            seen = number
