"""Signatures: with trusted keys, entries of shared tiers count only if signed by one of them."""

from __future__ import annotations

import gc
import json
import stat
from pathlib import Path

import pytest
from jitnorm.cache import Artifact, Cache, CacheError, Store, open_cache
from jitnorm.cache.artifact import encode_manifest
from jitnorm.cache.errors import UntrustedEntryError
from jitnorm.cache.signature import SigningKey, TrustedKeys, generate_keys, sign_entries

GOOD = Artifact(b"good", {"target": "sm_90a"})


@pytest.fixture
def signing(tmp_path: Path) -> SigningKey:
    generate_keys(tmp_path / "ours", tmp_path / "ours.pem")
    return SigningKey.load(tmp_path / "ours")


@pytest.fixture
def trusted(tmp_path: Path, signing: SigningKey) -> TrustedKeys:
    return TrustedKeys.load([tmp_path / "ours.pem"])


@pytest.fixture
def stranger(tmp_path: Path) -> SigningKey:
    generate_keys(tmp_path / "theirs", tmp_path / "theirs.pem")
    return SigningKey.load(tmp_path / "theirs")


def test_what_a_trusted_key_signed_is_accepted(signing: SigningKey, trusted: TrustedKeys) -> None:
    trusted.check(b"manifest", signing.sign(b"manifest"))
    assert signing.sign(b"manifest") == signing.sign(b"manifest")


def test_each_bit_of_the_manifest_is_signed(key: str, signing: SigningKey, trusted: TrustedKeys) -> None:
    manifest = encode_manifest(key, GOOD)
    signature = signing.sign(manifest)
    for position in range(len(manifest)):
        changed = bytearray(manifest)
        changed[position] ^= 1
        with pytest.raises(UntrustedEntryError, match="does not match this manifest"):
            trusted.check(bytes(changed), signature)


def test_each_digit_of_the_signature_matters(signing: SigningKey, trusted: TrustedKeys) -> None:
    signature = signing.sign(b"manifest")
    content = json.loads(signature)
    for name in ("key", "signature"):
        for position in range(len(content[name])):
            digits = list(content[name])
            digits[position] = "0" if digits[position] != "0" else "1"
            changed = json.dumps({**content, name: "".join(digits)}).encode()
            with pytest.raises(UntrustedEntryError):
                trusted.check(b"manifest", changed)


@pytest.mark.parametrize(
    "signature",
    [
        b"",
        b"{}",
        b"[]",
        b"\xff",
        b'{"key": [], "signature": ""}',
        b'{"key": 1, "signature": 2}',
        b"[" * 4000,
        b'{"key": "0", "signature": "zz"}',
    ],
    ids=lambda value: value[:20],
)
def test_garbage_is_no_signature(trusted: TrustedKeys, signature: bytes) -> None:
    if len(signature) > 1000:
        gc.collect()  # what other tests left would else be finalized at the deepest bracket, and fail there
    with pytest.raises(UntrustedEntryError):
        trusted.check(b"manifest", signature)


def test_what_the_key_signed_for_another_purpose_is_no_signature_of_a_manifest(
    signing: SigningKey, trusted: TrustedKeys
) -> None:
    content = {"key": signing.key_id, "signature": signing._key.sign(b"manifest").hex()}
    with pytest.raises(UntrustedEntryError, match="does not match this manifest"):
        trusted.check(b"manifest", json.dumps(content).encode())


def test_another_key_is_refused_by_name(trusted: TrustedKeys, stranger: SigningKey) -> None:
    with pytest.raises(UntrustedEntryError, match=f"signed by the key '{stranger.key_id}'"):
        trusted.check(b"manifest", stranger.sign(b"manifest"))


def test_a_stranger_who_uses_our_key_id_is_refused(
    signing: SigningKey, trusted: TrustedKeys, stranger: SigningKey
) -> None:
    forged = {**json.loads(stranger.sign(b"manifest")), "key": signing.key_id}
    with pytest.raises(UntrustedEntryError, match="does not match this manifest"):
        trusted.check(b"manifest", json.dumps(forged).encode())


# Keys.


def test_the_private_key_is_for_its_owner_alone_and_nothing_is_overwritten(tmp_path: Path) -> None:
    generate_keys(tmp_path / "private", tmp_path / "public")
    assert stat.S_IMODE((tmp_path / "private").stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        generate_keys(tmp_path / "private", tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_folder_stands_for_the_keys_in_it(tmp_path: Path) -> None:
    keys = []
    for name in ("a", "b"):
        generate_keys(tmp_path / name, tmp_path / f"{name}.pem")
        keys.append(SigningKey.load(tmp_path / name))
    trusted = TrustedKeys.load([tmp_path])
    for key in keys:
        trusted.check(b"manifest", key.sign(b"manifest"))


def test_what_is_no_key_is_an_error_that_names_it(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization as pem
    from cryptography.hazmat.primitives.asymmetric import ec

    generate_keys(tmp_path / "private", tmp_path / "public")
    (tmp_path / "garbage").write_text("not a key")
    (tmp_path / "empty-folder").mkdir()
    other_kind = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        pem.Encoding.PEM, pem.PrivateFormat.PKCS8, pem.NoEncryption()
    )
    (tmp_path / "ec").write_bytes(other_kind)
    for name in ("garbage", "missing", "public", "ec"):
        with pytest.raises(CacheError, match=f"private key {tmp_path / name}.*Ed25519"):
            SigningKey.load(tmp_path / name)
    for name in ("garbage", "missing", "private"):
        with pytest.raises(CacheError, match=f"public key {tmp_path / name}.*Ed25519"):
            TrustedKeys.load([tmp_path / name])
    with pytest.raises(CacheError, match=r"empty-folder, which has no [*][.]pem files"):
        TrustedKeys.load([tmp_path / "empty-folder"])


# Entries.


def read_only(folder: Path, trusted: TrustedKeys) -> Store:
    return Store(folder, writable=False, name="read-only", check=trusted.check)


def test_a_shared_folder_serves_only_what_is_signed(
    store: Store,
    key: str,
    signing: SigningKey,
    trusted: TrustedKeys,
    stranger: SigningKey,
    caplog: pytest.LogCaptureFixture,
) -> None:
    shared = read_only(store.layout.root, trusted)
    store.publish(key, GOOD)
    assert shared.load(key) is None
    assert "it is not signed" in caplog.text
    assert sign_entries(store, stranger) == [key]
    assert shared.load(key) is None
    assert f"signed by the key '{stranger.key_id}'" in caplog.text
    assert sign_entries(store, signing, [key]) == [key]
    assert shared.load(key) == GOOD
    assert store.load(key) == GOOD


def test_a_payload_under_a_good_signature_must_still_be_its_own(
    store: Store, key: str, signing: SigningKey, trusted: TrustedKeys
) -> None:
    store.publish(key, GOOD, signing.sign(encode_manifest(key, GOOD)))
    (store.layout.entry(key) / "payload").write_bytes(b"evil")
    assert read_only(store.layout.root, trusted).load(key) is None


def test_a_signed_entry_is_none_under_another_key(
    store: Store, key: str, signing: SigningKey, trusted: TrustedKeys
) -> None:
    store.publish(key, GOOD, signing.sign(encode_manifest(key, GOOD)))
    other = store.layout.entry("ab" + key[2:])
    other.parent.mkdir()
    store.layout.entry(key).rename(other)
    assert read_only(store.layout.root, trusted).load(other.name) is None


def test_what_is_built_is_signed(store: Store, key: str, signing: SigningKey, trusted: TrustedKeys) -> None:
    Cache(store, sign=signing.sign).load_or_build(key, lambda: GOOD)
    assert read_only(store.layout.root, trusted).load(key) == GOOD


def test_the_variables_name_the_keys(
    tmp_path: Path, key: str, signing: SigningKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, sign in (("signed", True), ("unsigned", False)):
        signature = signing.sign(encode_manifest(key, GOOD)) if sign else None
        Store(tmp_path / folder).publish(key, GOOD, signature)
    monkeypatch.setenv("JITNORM_CACHE_DIR", str(tmp_path / "user"))
    monkeypatch.setenv("JITNORM_TRUSTED_KEYS", str(tmp_path / "ours.pem"))
    monkeypatch.setenv("JITNORM_SIGNING_KEY", str(tmp_path / "ours"))
    monkeypatch.setenv("JITNORM_READONLY_CACHE", str(tmp_path / "unsigned"))
    cache = open_cache()
    assert cache.load(key) is None
    cache.load_or_build(key, lambda: GOOD)
    assert open_cache().store.signature(key) == signing.sign(encode_manifest(key, GOOD))
    monkeypatch.setenv("JITNORM_READONLY_CACHE", str(tmp_path / "signed"))
    monkeypatch.setenv("JITNORM_CACHE_DIR", str(tmp_path / "other"))
    assert open_cache().load(key) == GOOD


@pytest.mark.parametrize("value", ["", ":", " ", ": :", "\t"])
def test_keys_that_are_none_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """Setting the variable asks for signatures, which must not be skipped silently."""
    monkeypatch.setenv("JITNORM_CACHE_DIR", str(tmp_path / "user"))
    monkeypatch.setenv("JITNORM_TRUSTED_KEYS", value)
    with pytest.raises(CacheError, match=r"^JITNORM_TRUSTED_KEYS is .*, which names no key: name files.*; or unset it"):
        open_cache()


@pytest.mark.parametrize("variable", ["JITNORM_TRUSTED_KEYS", "JITNORM_SIGNING_KEY"])
def test_a_key_that_is_missing_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv("JITNORM_CACHE_DIR", str(tmp_path / "user"))
    monkeypatch.setenv(variable, str(tmp_path / "missing"))
    with pytest.raises(CacheError, match=f"cannot read the .* key {tmp_path / 'missing'}"):
        open_cache()
