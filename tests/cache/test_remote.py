"""Remote tiers: a bucket, a web server, a folder. Whatever they do, lookups are bounded and load no forgery."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from jitnorm.cache import Artifact, Cache, CacheError, RemoteError, Store, failed_tiers, make_key, open_cache
from jitnorm.cache.artifact import encode_manifest
from jitnorm.cache.errors import CorruptEntryError
from jitnorm.cache.events import subscribe
from jitnorm.cache.publisher import flush
from jitnorm.cache.remote import RemoteTier
from jitnorm.cache.signature import SigningKey, TrustedKeys, generate_keys, sign_entries
from jitnorm.cache.transfer import pull, push
from remote_entries import KEYS, LIMIT, SOURCE, artifact_of

StartWorker = Callable[..., "subprocess.Popen[str]"]


def entry_file(folder: Path, key: str, name: str) -> Path:
    return folder / "v1" / key[:2] / key / name


# A folder.


def test_what_one_machine_pushes_another_pulls(full: Store, other: Store, remote: RemoteTier) -> None:
    seen: list[tuple[int, int]] = []
    pushed = push(full, remote, progress=lambda done, total, key, size: seen.append((done, total)))
    assert pushed.moved == tuple(KEYS)
    assert pushed.bytes == sum(len(artifact_of(key).payload) for key in KEYS)
    assert seen == [(done, 5) for done in range(1, 6)]
    assert remote.keys() == KEYS
    assert sorted(remote.keys_of(SOURCE)) == KEYS
    assert pull(other, remote).moved == tuple(KEYS)
    assert [other.load(key) for key in KEYS] == [artifact_of(key) for key in KEYS]
    assert sorted(other.keys_of(SOURCE)) == KEYS


def test_file_systems_that_are_not_asynchronous_serve_too(full: Store, other: Store, tmp_path: Path) -> None:
    memory = RemoteTier(f"memory://{tmp_path}", timeout=LIMIT, writable=True)
    assert memory.load(KEYS[0]) is None
    assert push(full, memory).moved == tuple(KEYS)
    assert memory.keys() == KEYS
    assert pull(other, memory).moved == tuple(KEYS)
    assert [other.load(key) for key in KEYS] == [artifact_of(key) for key in KEYS]
    assert memory.describe(KEYS[0]) is not None


def test_what_a_killed_upload_leaves_is_removed_by_the_next(
    remote: RemoteTier, folder: Path, start_worker: StartWorker
) -> None:
    remote.write(KEYS[0], artifact_of(KEYS[0]))
    whole = sorted(folder.rglob("*"))
    worker = start_worker("hang_in_upload", root=folder, key=KEYS[0])
    assert worker.stdout is not None
    assert worker.stdout.readline() == "uploading\n"
    assert len(sorted(folder.rglob("*"))) == len(whole) + 1
    assert remote.keys() == KEYS[:1]
    worker.kill()
    worker.wait(timeout=10)
    remote.write(KEYS[0], artifact_of(KEYS[0]))
    assert sorted(folder.rglob("*")) == whole


def test_signatures_travel_even_where_nobody_asks_for_them(full: Store, other: Store, remote: RemoteTier) -> None:
    full.add_signature(KEYS[0], b"by somebody\n")
    push(full, remote)
    pull(other, remote)
    assert other.signature(KEYS[0]) == b"by somebody\n"
    assert other.signature(KEYS[1]) is None


def test_what_is_there_is_skipped(full: Store, other: Store, remote: RemoteTier) -> None:
    push(full, remote, KEYS[:2])
    again = push(full, remote)
    assert (again.present, again.moved) == (tuple(KEYS[:2]), tuple(KEYS[2:]))
    pull(other, remote, KEYS[:1])
    assert pull(other, remote).present == tuple(KEYS[:1])


def test_what_is_missing_or_refused_is_named_and_the_rest_is_moved(
    full: Store, other: Store, remote: RemoteTier, folder: Path
) -> None:
    missing = make_key({})
    assert push(full, remote, [*KEYS, missing]).refused == {missing: f"{full.name} has no such entry"}
    entry_file(folder, KEYS[0], "payload").write_bytes(artifact_of(KEYS[1]).payload)
    pulled = pull(other, remote)
    assert pulled.refused == {KEYS[0]: "payload does not match its digest"}
    assert pulled.moved == tuple(KEYS[1:])


def test_a_hit_is_copied_up_with_its_alias(full: Store, other: Store, remote: RemoteTier) -> None:
    push(full, remote)
    seen: list[tuple[str, str]] = []
    unsubscribe = subscribe(lambda kind, fields: seen.append((kind, fields.get("tier", ""))))
    assert Cache(other, remote=remote).load_or_build(KEYS[0], lambda: pytest.fail("built")) == artifact_of(KEYS[0])
    unsubscribe()
    assert [event for event in seen if event[0] in ("hit", "copy_up", "build")] == [
        ("hit", remote.name),
        ("copy_up", remote.name),
    ]
    assert other.load(KEYS[0]) == artifact_of(KEYS[0])
    assert other.keys_of(SOURCE) == (KEYS[0],)


def test_a_source_is_found_in_a_remote_tier(full: Store, other: Store, remote: RemoteTier) -> None:
    push(full, remote, KEYS[:1])
    assert Cache(other, remote=remote).load_source(SOURCE) == artifact_of(KEYS[0])
    assert other.load(KEYS[0]) == artifact_of(KEYS[0])


def test_what_is_built_is_published_in_the_background(other: Store, store: Store, remote: RemoteTier) -> None:
    Cache(store, remote=remote).load_or_build(KEYS[0], lambda: artifact_of(KEYS[0]))
    assert flush(LIMIT)
    assert Cache(other, remote=remote).load(KEYS[0]) == artifact_of(KEYS[0])
    assert remote.keys_of(SOURCE) == (KEYS[0],)


def test_nothing_is_published_to_a_tier_that_is_read(store: Store, folder: Path) -> None:
    remote = RemoteTier(folder.as_uri())
    Cache(store, remote=remote).load_or_build(KEYS[0], lambda: artifact_of(KEYS[0]))
    assert flush(LIMIT)
    assert not folder.exists()


def test_no_temporary_file_stays_in_a_folder(full: Store, remote: RemoteTier, folder: Path) -> None:
    push(full, remote)
    push(full, remote, replace=True)
    files = {path.name for path in folder.rglob("*") if path.is_file()}
    assert files == {"payload", "manifest.json", SOURCE}


def test_an_entry_is_absent_until_its_manifest_is_there(full: Store, remote: RemoteTier, folder: Path) -> None:
    push(full, remote)
    entry_file(folder, KEYS[0], "manifest.json").unlink()
    assert remote.load(KEYS[0]) is None
    assert remote.keys() == KEYS[1:]
    assert push(full, remote).moved == (KEYS[0],)


# Tampering.


TAMPERED: dict[str, Callable[[Path], object]] = {
    "payload changed": lambda path: (path / "payload").write_bytes(b"evil"),
    "payload of the same size": lambda path: (path / "payload").write_bytes(bytes((path / "payload").stat().st_size)),
    "payload with more behind it": lambda path: (path / "payload").open("ab").write(b"evil"),
    "payload removed": lambda path: (path / "payload").unlink(),
    "manifest emptied": lambda path: (path / "manifest.json").write_bytes(b""),
    "manifest of garbage": lambda path: (path / "manifest.json").write_bytes(b"\xff" * 100),
    "manifest of another entry": lambda path: (path / "manifest.json").write_bytes(
        encode_manifest(KEYS[1], artifact_of(KEYS[1]))
    ),
    "manifest of a huge size": lambda path: (path / "manifest.json").write_bytes(b" " * (2 << 20)),
}


@pytest.mark.parametrize("tamper", TAMPERED.values(), ids=TAMPERED.keys())
def test_a_tampered_object_is_refused_by_name_and_counts_as_absent(
    full: Store,
    other: Store,
    remote: RemoteTier,
    folder: Path,
    tamper: Callable[[Path], object],
    caplog: pytest.LogCaptureFixture,
) -> None:
    push(full, remote)
    tamper(entry_file(folder, KEYS[0], ""))
    with pytest.raises(CorruptEntryError):
        remote.demand(KEYS[0])
    cache = Cache(other, remote=remote)
    assert cache.load(KEYS[0]) is None
    assert f"ignoring the cache entry {KEYS[0]} of {remote.name}" in caplog.text
    assert cache.load_or_build(KEYS[0], lambda: Artifact(b"built", {})).payload == b"built"
    assert cache.load(KEYS[1]) == artifact_of(KEYS[1])  # it is the object that is bad, not the tier
    assert flush(LIMIT)
    assert remote.load(KEYS[0]) == Artifact(b"built", {})  # what is built anew replaces it


def test_a_remote_tier_serves_only_what_is_signed_where_keys_are_trusted(
    full: Store, other: Store, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    generate_keys(tmp_path / "key", tmp_path / "key.pem")
    generate_keys(tmp_path / "stranger", tmp_path / "stranger.pem")
    remote = RemoteTier(folder.as_uri(), check=TrustedKeys.load([tmp_path / "key.pem"]).check)
    sign_entries(full, SigningKey.load(tmp_path / "stranger"), KEYS[1:2])
    sign_entries(full, SigningKey.load(tmp_path / "key"), KEYS[2:])
    push(full, remote)
    cache = Cache(other, remote=remote)
    assert [cache.load(key) is not None for key in KEYS] == [False, False, True, True, True]
    assert "it is not signed" in caplog.text
    assert "it is signed by the key" in caplog.text
    # The signature comes along, so that this cache can be another one's shared folder.
    shared = Store(other.layout.root, writable=False, check=TrustedKeys.load([tmp_path / "key.pem"]).check)
    assert shared.load(KEYS[2]) == artifact_of(KEYS[2])
    # With the payload's digest in the signed manifest, neither file can be changed alone.
    for name in ("payload", "manifest.json", "signature"):
        path = entry_file(folder, KEYS[3], name)
        good = path.read_bytes()
        path.write_bytes(good[:-9] + bytes([good[-9] ^ 1]) + good[-8:])
        assert remote.load(KEYS[3]) is None
        path.write_bytes(good)
    assert remote.load(KEYS[3]) == artifact_of(KEYS[3])


def test_what_no_trusted_key_has_signed_is_not_pushed(full: Store, remote: RemoteTier, tmp_path: Path) -> None:
    generate_keys(tmp_path / "key", tmp_path / "key.pem")
    generate_keys(tmp_path / "stranger", tmp_path / "stranger.pem")
    sign_entries(full, SigningKey.load(tmp_path / "key"), KEYS[:1])
    sign_entries(full, SigningKey.load(tmp_path / "stranger"), KEYS[1:2])
    remote.write(KEYS[2], artifact_of(KEYS[2]))
    done = push(full, remote, check=TrustedKeys.load([tmp_path / "key.pem"]).check)
    assert (done.moved, done.present, sorted(done.refused)) == (tuple(KEYS[:1]), (), KEYS[1:])
    assert "it is signed by the key" in done.refused[KEYS[1]]
    assert "it is not signed" in done.refused[KEYS[3]]
    assert "sign it with jitnorm cache sign" in done.refused[KEYS[3]]
    assert remote.keys_of(SOURCE) == (KEYS[0],)
    assert remote.keys() == sorted([KEYS[0], KEYS[2]])


# Failure.


def test_a_tier_that_cannot_be_written_fails_in_the_background_alone(
    store: Store, folder: Path, remote: RemoteTier
) -> None:
    folder.write_text("not a folder")
    cache = Cache(store, remote=remote)
    assert cache.load_or_build(KEYS[0], lambda: artifact_of(KEYS[0])) == artifact_of(KEYS[0])
    assert flush(LIMIT)
    assert remote.name in failed_tiers()
    with pytest.raises(RemoteError, match="failed"):
        push(store, remote)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("/folder", "not a URL; expected one such as"),
        ("bucket", "not a URL"),
        ("nonsense://bucket", "cannot be opened.*nonsense"),
    ],
)
def test_what_is_no_url_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, message: str) -> None:
    monkeypatch.setenv("JITNORM_CACHE_DIR", str(tmp_path / "user"))
    monkeypatch.setenv("JITNORM_REMOTE_CACHE", url)
    with pytest.raises(CacheError, match=message):
        open_cache().load(KEYS[0])


def test_no_credentials_are_in_names() -> None:
    name = RemoteTier("https://user:secret@host:8080/kernels?token=secret#secret").name
    assert name == "remote https://host:8080/kernels"
