"""`jitnorm cache keygen` and `sign`, and the effect on trust."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from cache_entries import ENTRIES, LAUNCHER, SM90, Answer, Invoke
from jitnorm.cache import Store

pytest.importorskip("cryptography", reason="signatures need jitnorm[sign]")


@pytest.fixture
def private(tmp_path: Path, invoke: Invoke) -> Path:
    assert invoke("cache", "keygen", tmp_path / "fleet.pem").exit_code == 0
    return tmp_path / "fleet.pem"


def test_a_private_key_is_for_its_owner_and_the_public_one_beside_it(private: Path) -> None:
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert "PUBLIC KEY" in private.with_name("fleet.pub.pem").read_text()


def test_keys_are_never_overwritten(private: Path, invoke: Invoke) -> None:
    before = private.read_bytes()
    result = invoke("cache", "keygen", private)
    assert result.exit_code == 1
    assert "File exists" in result.stderr
    assert private.read_bytes() == before


def test_what_is_signed_is_trusted_by_whoever_has_the_public_key(
    store: Store, private: Path, tmp_path: Path, answer: Answer, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = answer("cache", "sign", "--key", private, "--target", "sm_90a")
    assert (set(done["signed"]), done["damaged"]) == ({SM90, LAUNCHER}, [])
    monkeypatch.setenv("JITNORM_TRUSTED_KEYS", str(private.with_name("fleet.pub.pem")))
    assert answer("cache", "info", SM90)["copies"][0]["signature"] == "valid"
    archive = tmp_path / "kernels.tar"
    invoke("cache", "export", archive, SM90)
    monkeypatch.setenv("JITNORM_CACHE_DIR", str(tmp_path / "elsewhere"))
    assert answer("cache", "import", archive)["added"] == [SM90]
    monkeypatch.setenv("JITNORM_CACHE_DIR", str(store.layout.root))
    invoke("cache", "export", archive)
    monkeypatch.setenv("JITNORM_CACHE_DIR", str(tmp_path / "third"))
    refused = invoke("cache", "import", archive)
    assert refused.exit_code == 1
    assert "it is not signed" in refused.stderr


def test_the_key_may_come_from_the_environment(
    store: Store, private: Path, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JITNORM_SIGNING_KEY", str(private))
    assert set(answer("cache", "sign")["signed"]) == set(ENTRIES)


def test_a_damaged_entry_is_not_signed(store: Store, private: Path, answer: Answer) -> None:
    (store.layout.entry(SM90) / "payload").write_bytes(b"?" * 2048)
    done = answer("cache", "sign", "--key", private, exit_code=1)
    assert (done["damaged"], SM90 in done["signed"]) == ([SM90], False)


def test_without_a_key_usage_is_wrong_and_without_a_good_one_it_fails(
    store: Store, private: Path, invoke: Invoke
) -> None:
    nothing = invoke("cache", "sign")
    assert (nothing.exit_code, nothing.stderr.partition(":")[2][:25]) == (2, " no private key is named:")
    wrong = invoke("cache", "sign", "--key", private.with_name("fleet.pub.pem"))
    assert wrong.exit_code == 1
    assert wrong.stderr.startswith("error: cannot read the private key")
