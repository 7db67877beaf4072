"""`jitnorm cache info`: everything known about an entry."""

from __future__ import annotations

from pathlib import Path

import pytest
from cache_entries import ENTRIES, SM90, Answer, Invoke, fill
from jitnorm.cache import Store
from jitnorm.cache.signature import SigningKey, generate_keys, sign_entries


def test_the_beginning_of_a_key_gives_manifest_size_tier_and_that_every_byte_is_verified(
    store: Store, answer: Answer, invoke: Invoke
) -> None:
    found = answer("cache", "info", SM90[:8])
    assert (found["key"], found["manifest"], found["is_intact"]) == (SM90, ENTRIES[SM90].manifest, True)
    (copy,) = found["copies"]
    assert (copy["tier"], copy["payload_size"], copy["problem"], copy["signature"]) == (store.name, 2048, "", "")
    shown = invoke("cache", "info", SM90[:8]).stdout
    for text in (SM90, "sm_90a", "2.0 KiB", "verified", store.name):
        assert text in shown


def test_it_changes_nothing_that_is_damaged_and_says_what_is_wrong(store: Store, answer: Answer) -> None:
    payload = store.layout.entry(SM90) / "payload"
    payload.write_bytes(b"X" + payload.read_bytes()[1:])
    found = answer("cache", "info", SM90, exit_code=1)
    assert found["copies"][0]["problem"] == "payload does not match its digest"
    assert not found["is_intact"]
    assert payload.exists()
    assert list(store.layout.quarantine.iterdir()) == []


def test_an_entry_whose_manifest_is_damaged_is_found_all_the_same(store: Store, answer: Answer) -> None:
    (store.layout.entry(SM90) / "manifest.json").write_bytes(b"{}")
    found = answer("cache", "info", SM90, exit_code=1)
    assert found["manifest"] == {}
    assert "manifest" in found["copies"][0]["problem"]


def test_every_tier_that_has_it_is_named(
    store: Store, tmp_path: Path, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("shared", "bucket"):
        fill(Store(tmp_path / name))
    monkeypatch.setenv("JITNORM_READONLY_CACHE", str(tmp_path / "shared"))
    monkeypatch.setenv("JITNORM_REMOTE_CACHE", f"file://{tmp_path / 'bucket'}")
    copies = answer("cache", "info", SM90)["copies"]
    assert [copy["tier"].partition(" ")[0] for copy in copies] == ["read-only", "user", "remote"]
    assert [copy["problem"] for copy in copies] == ["", "", None], "what is remote is not read to be verified"


def test_what_is_remote_alone_is_found_by_its_whole_key(
    folder: Path, tmp_path: Path, answer: Answer, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(Store(tmp_path / "bucket"))
    monkeypatch.setenv("JITNORM_REMOTE_CACHE", f"file://{tmp_path / 'bucket'}")
    found = answer("cache", "info", SM90)
    assert (found["manifest"], len(found["copies"])) == (ENTRIES[SM90].manifest, 1)
    assert "not verified" in invoke("cache", "info", SM90).stdout
    assert invoke("cache", "info", SM90[:20]).exit_code == 1


def test_signatures_are_checked_against_the_trusted_keys(
    store: Store, tmp_path: Path, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cryptography", reason="signatures need jitnorm[sign]")
    generate_keys(tmp_path / "mine.pem", tmp_path / "mine.pub.pem")
    generate_keys(tmp_path / "other.pem", tmp_path / "other.pub.pem")
    sign_entries(store, SigningKey.load(tmp_path / "mine.pem"))

    def signature() -> str:
        return str(answer("cache", "info", SM90)["copies"][0]["signature"])

    assert signature() == "not checked: JITNORM_TRUSTED_KEYS is not set"
    monkeypatch.setenv("JITNORM_TRUSTED_KEYS", str(tmp_path / "mine.pub.pem"))
    assert signature() == "valid"
    monkeypatch.setenv("JITNORM_TRUSTED_KEYS", str(tmp_path / "other.pub.pem"))
    assert "is signed by the key" in signature()


@pytest.mark.parametrize(
    ("key", "exit_code", "message"),
    [
        ("0" * 20, 1, "error: no entry has a key that begins with '00000000000000000000'"),
        ("no-key", 2, "error: key: 'no-key' is not a prefix of a key"),
    ],
)
def test_an_unknown_key_fails_and_what_is_no_key_is_wrong_usage(
    store: Store, invoke: Invoke, key: str, exit_code: int, message: str
) -> None:
    result = invoke("cache", "info", key)
    assert (result.exit_code, result.stdout) == (exit_code, "")
    assert result.stderr.startswith(message)
    assert result.stderr.count("\n") == 1
