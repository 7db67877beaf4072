"""Expiring signatures and revocation: nobody who can write to a remote tier can bring revoked entries back."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from jitnorm.cache import Cache, CacheError, RemoteError, Store, failed_tiers, open_cache
from jitnorm.cache.artifact import encode_manifest
from jitnorm.cache.errors import UntrustedEntryError
from jitnorm.cache.remote import RemoteTier
from jitnorm.cache.revocation import RevocationList, Revocations, decode_revocations, encode_revocations, revoke
from jitnorm.cache.signature import SigningKey, TrustedKeys, generate_keys
from jitnorm.cache.transfer import pull
from remote_entries import KEYS, LIMIT, artifact_of

DAY = 86400


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, SigningKey]:
    for name in ("signer", "lists", "stranger"):
        generate_keys(tmp_path / name, tmp_path / f"{name}.pem")
    return {name: SigningKey.load(tmp_path / name) for name in ("signer", "lists", "stranger")}


@pytest.fixture
def reader(folder: Path, other: Store, keys: dict[str, SigningKey]) -> Callable[[], RemoteTier]:
    """The remote tier as seen by a new process on one machine."""

    def open_tier() -> RemoteTier:
        trusted = TrustedKeys({}).plus(keys["signer"])
        known = RevocationList(other, TrustedKeys({}).plus(keys["lists"]))

        def check(manifest: bytes, signature: bytes | None) -> None:
            trusted.check(manifest, signature)
            known.check(manifest, signature)

        return RemoteTier(folder.as_uri(), timeout=LIMIT, check=check, revocations=known)

    return open_tier


@pytest.fixture
def signed(remote: RemoteTier, keys: dict[str, SigningKey]) -> RemoteTier:
    for key in KEYS[:3]:
        remote.write(key, artifact_of(key), keys["signer"].sign(encode_manifest(key, artifact_of(key))))
    return remote


# Signatures that end.


def test_a_signature_ends_when_it_says(
    tmp_path: Path, keys: dict[str, SigningKey], monkeypatch: pytest.MonkeyPatch
) -> None:
    signature = SigningKey.load(tmp_path / "signer", days=2).sign(b"manifest")
    trusted = TrustedKeys({}).plus(keys["signer"])
    trusted.check(b"manifest", signature)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 2 * DAY + 2)
    with pytest.raises(UntrustedEntryError, match=r"expired on \d{4}-\d\d-\d\d \d\d:\d\d UTC; sign it again"):
        trusted.check(b"manifest", signature)
    trusted.check(b"manifest", keys["signer"].sign(b"manifest"))


@pytest.mark.parametrize("expires", [None, "later", 1e300, 2**70, True, -1, [], 253402300799])
def test_the_end_of_a_signature_is_signed(tmp_path: Path, keys: dict[str, SigningKey], expires: object) -> None:
    content = json.loads(SigningKey.load(tmp_path / "signer", days=2).sign(b"manifest"))
    content["expires"] = expires
    with pytest.raises(UntrustedEntryError, match=r"does not match|malformed"):
        TrustedKeys({}).plus(keys["signer"]).check(b"manifest", json.dumps(content).encode())
    endless = {**json.loads(keys["signer"].sign(b"manifest")), "expires": 253402300799}
    with pytest.raises(UntrustedEntryError, match="does not match"):
        TrustedKeys({}).plus(keys["signer"]).check(b"manifest", json.dumps(endless).encode())


# Lists.


def test_what_is_revoked_is_not_loaded_and_the_rest_is(
    signed: RemoteTier, reader: Callable[[], RemoteTier], keys: dict[str, SigningKey], other: Store
) -> None:
    assert revoke(signed, keys["lists"], entries=[KEYS[0]]).number == 1
    assert [reader().load(key) is not None for key in KEYS[:3]] == [False, True, True]
    assert list(pull(other, reader(), KEYS[:3]).refused) == [KEYS[0]]
    listed = revoke(signed, keys["lists"], signers=[keys["signer"].key_id])
    assert (listed.number, listed.entries, listed.signers) == (2, (KEYS[0],), (keys["signer"].key_id,))
    assert [reader().load(key) for key in KEYS[:3]] == [None] * 3


def test_an_older_list_is_refused_also_by_the_next_process(
    signed: RemoteTier, reader: Callable[[], RemoteTier], keys: dict[str, SigningKey], other: Store, folder: Path
) -> None:
    revoke(signed, keys["lists"])
    old = (folder / "v1" / "revocations").read_bytes()
    revoke(signed, keys["lists"], entries=[KEYS[0]])
    assert reader().load(KEYS[1]) is not None
    (folder / "v1" / "revocations").write_bytes(old)
    tier = reader()
    assert Cache(other, remote=tier).load(KEYS[1]) is None
    assert "has number 1, but 2 was seen before" in failed_tiers()[tier.name]
    with pytest.raises(RemoteError, match="an older list was put back"):
        reader().demand(KEYS[0])


def test_an_older_list_read_before_another_process_adopted_a_newer_one_does_not_replace_it(
    other: Store, keys: dict[str, SigningKey]
) -> None:
    older, newer = (encode_revocations(Revocations(number, 2**33), keys["lists"]) for number in (1, 2))
    first, second = (RevocationList(other, TrustedKeys({}).plus(keys["lists"])) for _ in range(2))
    kept = first._kept

    def adopt_newer_meanwhile() -> Revocations | None:
        found = kept()
        with pytest.raises(RemoteError, match=r"another process has held .*revocations\.lock"):
            second.refresh(lambda: newer, "remote")
        return found

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("jitnorm.cache.revocation._LOCK_SECONDS", 0.01)
        patched.setattr(first, "_kept", adopt_newer_meanwhile)
        first.refresh(lambda: older, "remote")
    second.refresh(lambda: newer, "remote")
    assert second.current is not None
    assert second.current.number == 2
    with pytest.raises(RemoteError, match="has number 1, but 2 was seen before"):
        RevocationList(other, TrustedKeys({}).plus(keys["lists"])).refresh(lambda: older, "remote")


def test_a_list_that_is_missing_expired_or_a_stranger_s_closes_the_tier(
    signed: RemoteTier, reader: Callable[[], RemoteTier], keys: dict[str, SigningKey], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RemoteError, match="has no revocation list"):
        reader().demand(KEYS[0])
    for key in ("stranger", "signer"):
        signed.write_revocations(encode_revocations(Revocations(9, 2**33), keys[key]))
        with pytest.raises(RemoteError, match="is refused: it is signed by the key"):
            reader().demand(KEYS[0])
    signed.write_revocations(encode_revocations(Revocations(9, int(time.time()) - DAY), keys["lists"]))
    with pytest.raises(RemoteError, match=r"expired 1\.0 days ago; renew it"):
        reader().demand(KEYS[0])
    with pytest.raises(UntrustedEntryError):
        revoke(signed, keys["stranger"])
    assert revoke(signed, keys["lists"], days=2).number == 10
    tier = reader()
    assert tier.demand(KEYS[0])[0] == artifact_of(KEYS[0])
    later = time.monotonic() + 3 * DAY, time.time() + 3 * DAY
    monkeypatch.setattr(time, "monotonic", lambda: later[0])
    monkeypatch.setattr(time, "time", lambda: later[1])
    with pytest.raises(RemoteError, match="expired"):
        tier.demand(KEYS[1])


def test_two_lists_of_one_number_are_told_apart(
    signed: RemoteTier, reader: Callable[[], RemoteTier], keys: dict[str, SigningKey]
) -> None:
    for entries in ((), (KEYS[0],)):
        signed.write_revocations(encode_revocations(Revocations(1, 2**33, (), entries), keys["lists"]))
        if entries:
            with pytest.raises(RemoteError, match="two were published with one number"):
                reader().demand(KEYS[1])
        else:
            reader().demand(KEYS[1])


def test_each_byte_of_a_list_is_signed(keys: dict[str, SigningKey]) -> None:
    raw = encode_revocations(Revocations(7, 2**33, ("0" * 16,), (KEYS[0],)), keys["lists"])
    trusted = TrustedKeys({}).plus(keys["lists"])
    assert decode_revocations(raw, trusted) == Revocations(7, 2**33, ("0" * 16,), (KEYS[0],))
    for position in range(len(raw) - 1):
        changed = bytearray(raw)
        changed[position] ^= 1
        with pytest.raises(UntrustedEntryError):
            decode_revocations(bytes(changed), trusted)


def test_a_signature_of_a_manifest_is_none_of_a_list(keys: dict[str, SigningKey]) -> None:
    listed = vars(Revocations(1, 2**33))
    signature = json.loads(keys["lists"].sign(json.dumps(listed, sort_keys=True, separators=(",", ":")).encode()))
    with pytest.raises(UntrustedEntryError, match="does not match"):
        decode_revocations(
            json.dumps({"list": listed, "signature": signature}).encode(), TrustedKeys({}).plus(keys["lists"])
        )


def test_the_list_counts_where_the_tier_is_not_asked(
    signed: RemoteTier, reader: Callable[[], RemoteTier], keys: dict[str, SigningKey], other: Store, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """This is a read-only folder, configured by the variables."""
    revoke(signed, keys["lists"], entries=[KEYS[0]])
    for name, value in {
        "JITNORM_CACHE_DIR": other.layout.root,
        "JITNORM_TRUSTED_KEYS": tmp_path / "signer.pem",
        "JITNORM_REVOCATION_KEY": tmp_path / "lists.pem",
        "JITNORM_REMOTE_CACHE": (tmp_path / "remote").as_uri(),
    }.items():
        monkeypatch.setenv(name, str(value))
    assert open_cache().load(KEYS[1]) == artifact_of(KEYS[1])
    shared = Store(tmp_path / "shared")
    for key in KEYS[:3]:
        shared.publish(key, artifact_of(key), keys["signer"].sign(encode_manifest(key, artifact_of(key))))
    monkeypatch.delenv("JITNORM_REMOTE_CACHE")
    monkeypatch.setenv("JITNORM_READONLY_CACHE", str(tmp_path / "shared"))
    assert [open_cache().load(key) is not None for key in KEYS[:3]] == [False, True, True]
    monkeypatch.delenv("JITNORM_TRUSTED_KEYS")
    with pytest.raises(CacheError, match="JITNORM_REVOCATION_KEY is set, but JITNORM_TRUSTED_KEYS is not"):
        open_cache()


@pytest.mark.parametrize("days", ["0", "-1", "soon", "nan", "1e9"])
def test_a_term_that_is_none_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: str) -> None:
    generate_keys(tmp_path / "signer", tmp_path / "signer.pem")
    monkeypatch.setenv("JITNORM_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("JITNORM_SIGNING_KEY", str(tmp_path / "signer"))
    monkeypatch.setenv("JITNORM_SIGNATURE_DAYS", days)
    with pytest.raises(CacheError, match="JITNORM_SIGNATURE_DAYS is"):
        open_cache()


def test_what_is_neither_a_key_nor_an_id_is_not_revoked(remote: RemoteTier, keys: dict[str, SigningKey]) -> None:
    with pytest.raises(ValueError, match="'me' is neither the key of an entry"):
        revoke(remote, keys["lists"], signers=["me"])
    with pytest.raises(ValueError, match="days is 0"):
        revoke(remote, keys["lists"], days=0)


MISTAKES: tuple[dict[str, Any], ...] = (
    {"expires": 10**400},
    {"expires": -1},
    {"expires": True},
    {"number": 1.0},
    {"entries": "ab"},
    {"signers": [["ab"]]},
)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: "-".join(mistake))
def test_a_signed_list_with_a_mistake_is_refused(keys: dict[str, SigningKey], mistake: dict[str, Any]) -> None:
    fields = {**vars(Revocations(1, 1 << 40)), **mistake}
    raw = encode_revocations(cast(Revocations, SimpleNamespace(**fields)), keys["lists"])
    with pytest.raises(UntrustedEntryError, match="fields of the wrong type"):
        decode_revocations(raw, TrustedKeys({}).plus(keys["lists"]))
