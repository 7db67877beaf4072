"""Nothing that others could have written is ever loaded, whatever it is and however it got there."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from jitnorm.cache import (
    Artifact,
    Cache,
    CacheTrustError,
    Store,
    failed_tiers,
    load_or_build,
    make_key,
    open_cache,
    open_store,
)
from jitnorm.cache.artifact import encode_manifest
from jitnorm.cache.check import verify
from jitnorm.cache.readonly import open_read_only

STRANGER = 65534
SOURCE = make_key({"source": "int f();"})
GOOD, EVIL = Artifact(b"good", {"source_key": SOURCE}), Artifact(b"evil", {"source_key": SOURCE})

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can play another user")


@pytest.fixture
def cache(open_folder: Path, key: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's cache folder with one entry, in a place that other users could reach."""
    monkeypatch.setenv("JITNORM_CACHE_DIR", str(open_folder / "cache"))
    open_store().publish(key, GOOD)
    return open_folder / "cache"


def places(root: Path, key: str) -> dict[str, Path]:
    entry = root / "v1" / key[:2] / key
    return {"shard": entry.parent, "entry": entry, "payload": entry / "payload", "manifest": entry / "manifest.json"}


PLACES = ["shard", "entry", "payload", "manifest"]
ALIAS_PLACES = [(), ("sources",), ("sources", SOURCE[:2]), ("sources", SOURCE[:2], SOURCE)]


# The mode and the owner of each thing on the way to the code.


@pytest.mark.parametrize("mode", [0o720, 0o702])
@pytest.mark.parametrize("place", PLACES)
def test_an_entry_that_others_can_write_to_is_refused_until_its_remedy_is_run(
    cache: Path, key: str, place: str, mode: int
) -> None:
    found = places(cache, key)
    found[place].chmod(mode)
    found["entry"].chmod(found["entry"].stat().st_mode | 0o020)
    with pytest.raises(CacheTrustError) as raised:
        load_or_build(open_store(), key, lambda: pytest.fail("built where others can write"))
    first = found["shard"] if place == "shard" else found["entry"]
    remedy = f"chmod -R go-w {cache}"
    for part in (
        f"{first} has mode",
        "others can write to it",
        f"run {remedy};",
        "delete it",
        "JITNORM_CACHE_TRUST=any",
    ):
        assert part in str(raised.value)
    subprocess.run(remedy, shell=True, check=True, timeout=30)
    assert open_store().load(key) == GOOD


@pytest.mark.parametrize("place", ["payload", "manifest"])
def test_a_file_that_others_can_write_to_is_refused_by_name(cache: Path, key: str, place: str) -> None:
    places(cache, key)[place].chmod(0o666)
    with pytest.raises(CacheTrustError, match=f"{places(cache, key)[place]} has mode 0666"):
        open_store().load(key)


@as_root
@pytest.mark.parametrize("place", PLACES)
def test_an_entry_of_another_user_is_refused_by_name(cache: Path, key: str, place: str) -> None:
    found = places(cache, key)[place]
    os.chown(found, STRANGER, -1)
    with pytest.raises(CacheTrustError, match=f"{found} belongs to user {STRANGER}.*run chown -R 0 {cache};"):
        load_or_build(open_store(), key, lambda: pytest.fail("built beside what a stranger has put there"))


def test_owners_are_compared_with_the_user_of_the_moment(
    cache: Path, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    with pytest.raises(CacheTrustError, match="allowed is user 4711"):
        store.load(key)


@pytest.mark.parametrize("at", ["", "v1"])
def test_a_cache_that_is_opened_to_others_under_a_running_process_is_refused(cache: Path, key: str, at: str) -> None:
    store = open_store()
    (cache / at).chmod(0o777)
    with pytest.raises(CacheTrustError, match=f"{cache / at} has mode 0777"):
        store.load(key)


@pytest.mark.parametrize("place", ALIAS_PLACES, ids=len)
def test_an_alias_that_others_can_write_is_refused(cache: Path, place: tuple[str, ...]) -> None:
    store = open_store()
    Path(cache, "v1", *place).chmod(0o777)
    with pytest.raises(CacheTrustError, match="others can write"):
        Cache(store).load_source(SOURCE)


@pytest.mark.parametrize("place", ["v1", "shard"])
def test_a_link_on_the_way_to_an_entry_is_refused_and_what_it_leads_to_left_alone(
    cache: Path, key: str, open_folder: Path, place: str
) -> None:
    store, found = open_store(), {"v1": cache / "v1", **places(cache, key)}[place]
    elsewhere = open_folder / "elsewhere"
    found.rename(elsewhere)
    found.symlink_to(elsewhere)
    before = sorted(elsewhere.rglob("*"))
    with pytest.raises(CacheTrustError, match=f"{found} is not a folder. Remove it"):
        store.load(key)
    assert sorted(elsewhere.rglob("*")) == before


def test_everything_is_accepted_if_the_user_says_so(cache: Path, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run(["chmod", "-R", "777", str(cache)], check=True, timeout=30)
    monkeypatch.setenv("JITNORM_CACHE_TRUST", "any")
    assert open_store().load(key) == GOOD
    assert open_store().keys_of(SOURCE) == (key,)


# No path is resolved twice.


@pytest.mark.parametrize("place", ["v1", "shard", "entry"])
def test_a_folder_exchanged_after_its_check_is_not_read(
    cache: Path, key: str, open_folder: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check uses the descriptor that is then read from."""
    store = open_store()
    found = {"v1": cache / "v1", **places(cache, key)}[place]
    shutil.copytree(found, open_folder / "evil")
    for file in (open_folder / "evil").rglob("payload") if place != "entry" else [open_folder / "evil" / "payload"]:
        file.write_bytes(EVIL.payload)
        (file.parent / "manifest.json").write_bytes(encode_manifest(key, EVIL))
    fstat, checked = os.fstat, found.stat()

    def exchange_after(descriptor: int) -> os.stat_result:
        seen = fstat(descriptor)
        if os.path.samestat(seen, checked) and found.exists() and not (open_folder / "good").exists():
            found.rename(open_folder / "good")
            (open_folder / "evil").rename(found)
        return seen

    monkeypatch.setattr(os, "fstat", exchange_after)
    assert store.load(key) == GOOD
    assert (open_folder / "good").exists()


# Folders that are only read.


@pytest.mark.parametrize("place", PLACES)
def test_in_a_folder_that_is_only_read_it_counts_as_absent_with_a_warning(
    tmp_path: Path, key: str, place: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Store(tmp_path / "shared").publish(key, EVIL)
    places(tmp_path / "shared", key)[place].chmod(0o777)
    monkeypatch.setenv("JITNORM_CACHE_DIR", str(tmp_path / "user"))
    monkeypatch.setenv("JITNORM_READONLY_CACHE", str(tmp_path / "shared"))
    assert open_cache().load_or_build(key, lambda: GOOD) == GOOD
    assert "others can write to it" in failed_tiers()[f"read-only {tmp_path / 'shared'}"]
    assert "others can write to it" in caplog.text
    monkeypatch.setenv("JITNORM_CACHE_TRUST", "any")
    assert open_cache().load(key) == EVIL


@pytest.mark.parametrize("place", ALIAS_PLACES, ids=len)
def test_in_a_folder_that_is_only_read_an_alias_of_others_leads_nowhere(
    tmp_path: Path, key: str, place: tuple[str, ...]
) -> None:
    Store(tmp_path / "shared").publish(key, EVIL)
    shared = open_read_only(tmp_path / "shared", "shared")
    assert shared.keys_of(SOURCE) == (key,)
    Path(tmp_path, "shared", "v1", *place).chmod(0o777)
    assert shared.keys_of(SOURCE) == ()


@as_root
@pytest.mark.parametrize("place", PLACES)
def test_a_folder_that_is_only_read_may_be_roots_but_no_strangers(tmp_path: Path, key: str, place: str) -> None:
    Store(tmp_path / "shared").publish(key, GOOD)
    shared = open_read_only(tmp_path / "shared", "shared")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "geteuid", lambda: 4711)
        assert shared.load(key) == GOOD
    os.chown(places(tmp_path / "shared", key)[place], STRANGER, -1)
    assert shared.load(key) is None


def test_verify_names_what_others_can_write_and_leaves_it(cache: Path, key: str) -> None:
    places(cache, key)["payload"].chmod(0o666)
    (result,) = verify(open_store(), repair=True)
    assert "others can write to it" in str(result.problem)
    assert not result.quarantined


# The whole story.


def _overwrite(root: Path, key: str) -> list[str]:
    entry = places(root, key)["entry"]
    return [f"cat payload > {entry}/payload", f"cat manifest.json > {entry}/manifest.json"]


def _replace_files(root: Path, key: str) -> list[str]:
    entry = places(root, key)["entry"]
    return [f"rm {entry}/*", f"cp payload manifest.json {entry}"]


def _replace_entry(root: Path, key: str) -> list[str]:
    entry = places(root, key)["entry"]
    return [f"mv {entry} {root}/v1/tmp/old", f"mkdir -m 700 {entry}", f"cp payload manifest.json {entry}"]


def _replace_shard(root: Path, key: str) -> list[str]:
    found = places(root, key)
    return [
        f"mv {found['shard']} {root}/v1/tmp/old",
        f"mkdir -m 700 -p {found['entry']}",
        f"cp payload manifest.json {found['entry']}",
    ]


@as_root
@pytest.mark.parametrize("attack", [_overwrite, _replace_files, _replace_entry, _replace_shard])
def test_code_that_another_user_put_into_an_open_cache_is_never_loaded(
    cache: Path, key: str, open_folder: Path, attack: Callable[[Path, str], list[str]]
) -> None:
    """The folder was open to all, another user exploited it, and its owner then ran the commands in the errors."""
    (open_folder / "payload").write_bytes(EVIL.payload)
    (open_folder / "manifest.json").write_bytes(encode_manifest(key, EVIL))
    subprocess.run(["chmod", "-R", "777", str(cache)], check=True, timeout=30)
    command = " && ".join(["umask 077", *attack(cache, key)])
    subprocess.run(command, shell=True, cwd=open_folder, user=STRANGER, group=STRANGER, check=True, timeout=30)
    for folder in ("", "v1", "v1/tmp", "v1/locks", "v1/uses", "v1/quarantine"):
        (cache / folder).chmod(0o700)
    for _ in range(2):
        with pytest.raises(CacheTrustError, match="delete it: everything in it can be rebuilt"):
            load_or_build(open_store(), key, lambda: pytest.fail("built where others can write"))
    shutil.rmtree(cache)
    assert load_or_build(open_store(), key, lambda: GOOD) == GOOD
