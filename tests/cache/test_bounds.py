"""Files of a cache are never read beyond their allowed size, however large they have become."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from jitnorm.cache import Artifact, Store, load_or_build, make_key
from jitnorm.cache.artifact import encode_manifest
from jitnorm.cache.check import verify
from jitnorm.cache.lock import key_lock
from jitnorm.cache.uses import keys_in_use

TERABYTE = 1 << 40
SOURCE = make_key({"source": "int f();"})


def swell(path: Path) -> None:
    """Grow a file to a terabyte without using disk space."""
    os.truncate(path, TERABYTE)


@pytest.mark.parametrize("file", ["payload", "manifest.json"])
def test_an_entry_that_has_grown_is_quarantined_and_built_again(
    store: Store, key: str, artifact: Artifact, file: str
) -> None:
    store.publish(key, artifact)
    swell(store.layout.entry(key) / file)
    (result,) = verify(store)
    assert f"{file} cannot be read: it has {TERABYTE} bytes" in str(result.problem)
    assert load_or_build(store, key, lambda: artifact) == artifact
    assert len(list(store.layout.quarantine.iterdir())) == 1
    assert store.load(key) == artifact


def test_a_payload_as_large_as_its_manifest_says_but_larger_than_any_is_quarantined(
    store: Store, key: str, artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return TERABYTE

    manifest = encode_manifest(key, Artifact(Huge(b""), {}))
    assert b"1099511627776" in manifest
    store.publish(key, artifact)
    (store.layout.entry(key) / "manifest.json").write_bytes(manifest)
    swell(store.layout.entry(key) / "payload")
    assert store.load(key) is None
    assert len(list(store.layout.quarantine.iterdir())) == 1


def test_a_signature_that_has_grown_is_none(store: Store, key: str, artifact: Artifact) -> None:
    store.publish(key, artifact, b"{}\n")
    swell(store.layout.entry(key) / "signature")
    shared = Store(store.layout.root, writable=False, name="shared", check=lambda manifest, signature: None)
    assert shared.load(key) is None
    assert store.signature(key) is None
    assert store.load(key) == artifact


def test_an_alias_that_has_grown_leads_nowhere(store: Store, key: str) -> None:
    store.publish(key, Artifact(b"", {"source_key": SOURCE}))
    swell(store.layout.alias(SOURCE))
    assert store.keys_of(SOURCE) == ()


def test_the_uses_of_a_process_are_read_as_far_as_any_goes(store: Store, key: str) -> None:
    store.layout.uses.mkdir(parents=True)
    path = store.layout.uses / "elsewhere.1"
    path.write_text(f"{'0' * 16} unlocked 1".ljust(63) + f"\n{'0' * 16} {key}\n")
    swell(path)
    assert keys_in_use(store.layout, dry_run=True) == {key}


@pytest.mark.parametrize("make", [lambda path: (path.touch(), swell(path)), os.mkfifo], ids=["a terabyte", "a pipe"])
def test_a_note_on_a_holder_that_is_none_is_that_of_an_unknown_process(
    store: Store, key: str, make: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with key_lock(store.layout, key, 0):
            store.layout.holder(key).unlink()
            make(store.layout.holder(key))
            held.set()
            done.wait(timeout=30)

    holder = threading.Thread(target=hold, daemon=True)
    holder.start()
    assert held.wait(timeout=10)
    waiter = threading.Thread(target=lambda: key_lock(store.layout, key, 0.01).__enter__(), daemon=True)
    waiter.start()
    waiter.join(timeout=10)
    done.set()
    assert not waiter.is_alive()
    assert "an unknown process" in caplog.text


@pytest.mark.parametrize("limited", ["payload", "manifest.json"])
def test_what_nobody_would_read_is_not_published(
    store: Store, key: str, limited: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from jitnorm.cache.layout import LIMITS

    monkeypatch.setitem(LIMITS, limited, 100)
    large = Artifact(b"x" * 200, {"text": "x" * 200})
    with pytest.raises(OSError, match=rf"{limited} of {key} has \d+ bytes; allowed are 100") as raised:
        store.publish(key, large)
    assert raised.value.errno == errno.EFBIG
    assert load_or_build(store, key, lambda: large) == large
    assert "kept in memory only" in caplog.text
    assert not store.layout.entry(key).exists()
