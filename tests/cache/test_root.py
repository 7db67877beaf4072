from __future__ import annotations

import errno
import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from jitnorm.cache import (
    CacheError,
    CacheTrustError,
    CacheUnusableError,
    default_root,
    load_or_build,
    open_root,
    open_store,
)
from jitnorm.cache.artifact import Artifact

StartWorker = Callable[..., "subprocess.Popen[str]"]


# Where the root lies.


def test_the_root_named_by_the_user_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JITNORM_CACHE_DIR", "/some/where")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert default_root() == Path("/some/where")


def test_a_tilde_in_the_users_root_is_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JITNORM_CACHE_DIR", "~/kernels")
    monkeypatch.setenv("HOME", "/home/me")
    assert default_root() == Path("/home/me/kernels")


def test_the_xdg_cache_folder_comes_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JITNORM_CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert default_root() == Path("/xdg/jitnorm")


@pytest.mark.parametrize("xdg", ["", "relative/folder"])
def test_the_cache_folder_of_the_home_comes_last(xdg: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", xdg)
    monkeypatch.setenv("HOME", "/home/me")
    assert default_root() == Path("/home/me/.cache/jitnorm")


def test_without_a_home_the_artifact_is_built_all_the_same(
    key: str, artifact: Artifact, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert load_or_build(open_store(), key, lambda: artifact) == artifact
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_without_a_home_nothing_is_made_anywhere_also_where_proc_is_not_mounted(
    key: str, artifact: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    monkeypatch.setattr("jitnorm.cache.root._NOWHERE", tmp_path / "proc/no-cache")
    store = open_store()
    assert load_or_build(store, key, lambda: artifact) == artifact
    assert not store.writable
    assert not list(tmp_path.iterdir())


def test_a_home_that_cannot_be_entered_is_like_none(
    key: str, artifact: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    def refuse(path: object, *_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", refuse)
        patched.setattr(os, "mkdir", refuse)
        store = open_store()
    assert load_or_build(store, key, lambda: artifact) == artifact
    assert [record.levelname for record in caplog.records] == ["WARNING"]


# What it must be like.


def test_a_missing_root_is_made_with_its_parents_for_the_owner_alone(tmp_path: Path) -> None:
    former = os.umask(0)
    try:
        root = open_root(tmp_path / "a" / "b", explicit=True)
    finally:
        os.umask(former)
    assert root == (tmp_path / "a" / "b", True)
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")} == {0o700}


def test_a_root_that_others_can_read_is_accepted(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    assert open_root(tmp_path, explicit=True).writable


@pytest.mark.parametrize("explicit", [True, False])
@pytest.mark.parametrize("mode", [0o770, 0o702, 0o1777])
def test_a_root_that_others_can_write_is_refused(tmp_path: Path, mode: int, explicit: bool) -> None:
    tmp_path.chmod(mode)
    with pytest.raises(CacheTrustError) as caught:
        open_root(tmp_path, explicit=explicit)
    message = str(caught.value)
    for part in (
        str(tmp_path),
        f"{mode:04o}",
        f"chmod -R go-w {tmp_path}",
        "JITNORM_CACHE_DIR",
        "JITNORM_CACHE_TRUST=any",
    ):
        assert part in message
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_others_could_write_within_the_root_is_refused(tmp_path: Path) -> None:
    (tmp_path / "v1").mkdir()
    (tmp_path / "v1").chmod(0o777)
    with pytest.raises(CacheTrustError, match="v1 has mode 0777"):
        open_root(tmp_path, explicit=True)


def test_a_root_that_others_can_write_is_accepted_if_the_user_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JITNORM_CACHE_TRUST", "any")
    tmp_path.chmod(0o777)
    assert open_root(tmp_path, explicit=True).writable


def test_an_unknown_trust_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JITNORM_CACHE_TRUST", "all")
    with pytest.raises(CacheError, match=r"JITNORM_CACHE_TRUST is 'all'; allowed is 'any'"):
        open_root(tmp_path, explicit=True)


def test_a_root_of_another_user_is_refused(start_worker: StartWorker) -> None:
    output, _ = start_worker("open_foreign", folder="/usr").communicate(timeout=30)
    assert output.startswith("CacheTrustError: the cache folder /usr belongs to user 0")
    assert "JITNORM_CACHE_TRUST=any" in output


@pytest.mark.parametrize("trust", ["", "any"])
@pytest.mark.parametrize("explicit", [True, False])
def test_a_root_that_is_not_a_folder_is_refused(
    tmp_path: Path, trust: str, explicit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JITNORM_CACHE_TRUST", trust)
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(CacheTrustError, match=f"{file} is not a folder"):
        open_root(file, explicit=explicit)


def test_a_link_stands_for_its_target(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir(mode=0o700)
    link = tmp_path / "link"
    link.symlink_to(target)
    assert open_root(link, explicit=True).path == target
    target.chmod(0o777)
    with pytest.raises(CacheTrustError, match=f"{target} has mode 0777"):
        open_root(link, explicit=True)


# What if it cannot be used.


def test_an_unwritable_root_that_the_user_named_is_an_error(start_worker: StartWorker, open_folder: Path) -> None:
    open_folder.chmod(0o555)
    output, _ = start_worker("use_unwritable_explicit", folder=open_folder).communicate(timeout=30)
    assert output.startswith("CacheUnusableError: ")
    for part in (f"{open_folder}/mine", "JITNORM_CACHE_DIR", "Permission denied", "writable"):
        assert part in output


def test_an_unwritable_default_gives_one_warning_and_the_artifact(
    start_worker: StartWorker, open_folder: Path, key: str
) -> None:
    open_folder.chmod(0o555)
    worker = start_worker("use_unwritable_default", folder=open_folder, key=key)
    output, errors = worker.communicate(timeout=30)
    assert output.splitlines() == ["kept in memory"] * 2
    (warning,) = errors.splitlines()
    assert warning.startswith(f"WARNING the cache folder {open_folder}/jitnorm cannot be used: ")
    assert list(open_folder.iterdir()) == []


def test_an_unwritable_default_is_still_read(start_worker: StartWorker, open_folder: Path, key: str) -> None:
    worker = start_worker("read_from_read_only_default", folder=open_folder, key=key)
    output, errors = worker.communicate(timeout=30)
    assert output.splitlines() == ["from before"]
    assert "is not writable" in errors


def test_a_default_that_cannot_exist_is_never_read_later(tmp_path: Path) -> None:
    """If somebody could create it later, they would not have been checked."""
    (tmp_path / "file").touch()
    root = open_root(tmp_path / "file" / "jitnorm", explicit=False)
    assert not root.writable
    assert not root.path.is_relative_to(tmp_path)


def test_a_root_below_a_file_that_the_user_named_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("JITNORM_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.raises(CacheUnusableError, match="Not a directory"):
        open_store()
