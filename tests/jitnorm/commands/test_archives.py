"""`jitnorm cache export` and `import`: from one machine's cache to a file, and into another's."""

from __future__ import annotations

from pathlib import Path

import pytest
from cache_entries import CPU, ENTRIES, LAUNCHER, SM90, SM100, Answer, Invoke
from jitnorm.cache import Store


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "kernels.tar"


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """A function that gives later commands another, empty cache."""

    def move() -> Store:
        monkeypatch.setenv("JITNORM_CACHE_DIR", str(tmp_path / "elsewhere"))
        return Store(tmp_path / "elsewhere")

    return move


def test_what_is_exported_is_imported_elsewhere_once(
    store: Store, archive: Path, answer: Answer, invoke: Invoke, elsewhere: object
) -> None:
    exported = answer("cache", "export", archive)
    assert set(exported["keys"]) == set(ENTRIES)
    assert exported["bytes"] == archive.stat().st_size
    other = elsewhere()  # type: ignore[operator]
    imported = answer("cache", "import", archive)
    assert (set(imported["added"]), imported["present"]) == (set(ENTRIES), [])
    assert {key: other.load(key) for key in ENTRIES} == ENTRIES
    assert "0 entries added" in invoke("cache", "import", archive).stdout


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        (["--target", "sm_90a"], {SM90, LAUNCHER}),
        (["--target", "sm_90a,sm_100a", "--kind", "kernel"], {SM90, SM100}),
        ([CPU[:10], SM90], {CPU, SM90}),
    ],
)
def test_filters_name_what_goes_along(
    store: Store, archive: Path, answer: Answer, options: list[str], keys: set[str]
) -> None:
    assert set(answer("cache", "export", archive, *options)["keys"]) == keys


def test_an_export_of_nothing_fails_and_writes_nothing(store: Store, archive: Path, invoke: Invoke) -> None:
    result = invoke("cache", "export", archive, "--target", "sm_80", "--kind", "kernel")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: no entry of user ")
    assert not archive.exists()


def test_a_damaged_archive_adds_nothing(store: Store, archive: Path, invoke: Invoke, elsewhere: object) -> None:
    invoke("cache", "export", archive)
    raw = bytearray(archive.read_bytes())
    raw[raw.index(b"zzzz")] ^= 1
    archive.write_bytes(raw)
    other = elsewhere()  # type: ignore[operator]
    result = invoke("cache", "import", archive)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: the entry ")
    assert list(other.entries()) == []


@pytest.mark.parametrize(
    ("arguments", "exit_code"),
    [(["export", "no/such/folder/x"], 1), (["import", "no-such-file"], 2), (["import", __file__], 1), (["export"], 2)],
)
def test_files_that_are_not_there_or_no_archives(
    store: Store, invoke: Invoke, arguments: list[str], exit_code: int
) -> None:
    result = invoke("cache", *arguments)
    assert (result.exit_code, result.stdout) == (exit_code, "")
    assert result.stderr
