from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from jitnorm.cache import CacheTrustError, Store

from jitnorm.store import MemoFolder
from jitnorm.toolchains import identity
from jitnorm.toolchains.identity import memoised


class Probe:
    """Counts how often it is asked."""

    def __init__(self, answer: str = "compiler 1.0") -> None:
        self.answer, self.count = answer, 0

    def __call__(self) -> str:
        self.count += 1
        return self.answer


@pytest.fixture
def compiler(tmp_path: Path) -> Path:
    path = tmp_path / "compiler"
    path.write_text("v1")
    return path


@pytest.fixture
def forget(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Forgets what a new process would not know."""
    return lambda: monkeypatch.setattr(identity, "_seen", {})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache")


@pytest.fixture
def memo_dir(store: Store) -> MemoFolder:
    return MemoFolder(store)


def only_memo(store: Store) -> Path:
    (memo,) = store.layout.toolchains.iterdir()
    return memo


def test_a_process_asks_once(compiler: Path) -> None:
    probe = Probe()
    assert [memoised([compiler], probe) for _ in range(3)] == ["compiler 1.0"] * 3
    assert probe.count == 1


def test_the_next_process_reads_the_memo(
    compiler: Path, store: Store, memo_dir: MemoFolder, forget: Callable[[], None]
) -> None:
    memoised([compiler], Probe(), memo_dir)
    forget()
    probe = Probe("never asked")
    assert memoised([compiler], probe, memo_dir) == "compiler 1.0"
    assert probe.count == 0
    assert only_memo(store).suffix == ".txt"
    assert len(only_memo(store).stem) == 64


def _rewrite(file: Path) -> None:
    file.write_text("another version")


def _touch(file: Path) -> None:
    os.utime(file, ns=(0, os.stat(file).st_mtime_ns + 1))


def _replace(file: Path) -> None:
    status = os.stat(file)
    new = file.with_name("new")
    new.write_bytes(file.read_bytes())
    os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))
    os.replace(new, file)


@pytest.mark.parametrize("change", [_rewrite, _touch, _replace])
def test_a_changed_file_is_asked_again(compiler: Path, memo_dir: MemoFolder, change: Callable[[Path], None]) -> None:
    memoised([compiler], Probe(), memo_dir)
    change(compiler)
    assert memoised([compiler], Probe("compiler 2.0"), memo_dir) == "compiler 2.0"


def test_a_change_of_any_of_several_files_counts(compiler: Path, tmp_path: Path) -> None:
    part = tmp_path / "part"
    part.write_text("1")
    memoised([compiler, part], Probe())
    part.write_text("20")
    assert memoised([compiler, part], Probe("compiler 2.0")) == "compiler 2.0"


def test_a_link_that_turns_to_another_file_is_asked_again(compiler: Path, tmp_path: Path) -> None:
    other, link = tmp_path / "other", tmp_path / "link"
    other.write_text("v2")
    link.symlink_to(compiler)
    memoised([link], Probe())
    link.unlink()
    link.symlink_to(other)
    assert memoised([link], Probe("compiler 2.0")) == "compiler 2.0"


@pytest.mark.parametrize("content", [b"", b"two\nlines", b"x" * 501, b"\xff\xfe", b"tab\there", b"nul\0"])
def test_a_damaged_memo_is_replaced(
    compiler: Path, store: Store, memo_dir: MemoFolder, forget: Callable[[], None], content: bytes
) -> None:
    memoised([compiler], Probe(), memo_dir)
    only_memo(store).write_bytes(content)
    forget()
    assert memoised([compiler], Probe(), memo_dir) == "compiler 1.0"
    assert only_memo(store).read_text() == "compiler 1.0"


def test_an_unusable_folder_only_costs_the_memory(compiler: Path) -> None:
    probe = Probe()
    below_a_file = MemoFolder(Store(compiler))
    assert memoised([compiler], probe, below_a_file) == "compiler 1.0"
    assert memoised([compiler], probe, below_a_file) == "compiler 1.0"
    assert probe.count == 1


def test_a_memo_that_has_grown_is_replaced_unread(
    compiler: Path, store: Store, memo_dir: MemoFolder, forget: Callable[[], None]
) -> None:
    memoised([compiler], Probe(), memo_dir)
    os.truncate(only_memo(store), 1 << 40)
    forget()
    assert memoised([compiler], Probe(), memo_dir) == "compiler 1.0"
    assert only_memo(store).read_text() == "compiler 1.0"


@pytest.mark.parametrize("place", ["", "v1", "v1/toolchains", "memo"])
def test_a_memo_that_others_can_write_is_refused(
    compiler: Path, store: Store, memo_dir: MemoFolder, forget: Callable[[], None], place: str
) -> None:
    memoised([compiler], Probe(), memo_dir)
    forget()
    (only_memo(store) if place == "memo" else store.layout.root / place).chmod(0o777)
    with pytest.raises(CacheTrustError, match=f"others can write to it.*chmod -R go-w {store.layout.root};"):
        memoised([compiler], Probe(), memo_dir)


def test_memos_are_for_the_owner_alone_whatever_the_umask(compiler: Path, store: Store, memo_dir: MemoFolder) -> None:
    former = os.umask(0)
    try:
        memoised([compiler], Probe(), memo_dir)
    finally:
        os.umask(former)
    assert stat.S_IMODE(store.layout.toolchains.stat().st_mode) == 0o700
    assert stat.S_IMODE(only_memo(store).stat().st_mode) == 0o600


def test_a_failed_replacement_leaves_no_private_file(
    compiler: Path, store: Store, memo_dir: MemoFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", fail)
    assert memoised([compiler], Probe(), memo_dir) == "compiler 1.0"
    assert list(store.layout.toolchains.iterdir()) == []
    assert list(store.layout.private.iterdir()) == []


@pytest.mark.parametrize("answer", ["", "two\nlines", "x" * 501, "µ"])
def test_an_answer_of_another_form_is_an_error(compiler: Path, store: Store, memo_dir: MemoFolder, answer: str) -> None:
    with pytest.raises(ValueError, match="is not one line"):
        memoised([compiler], Probe(answer), memo_dir)
    assert not store.layout.toolchains.exists()
