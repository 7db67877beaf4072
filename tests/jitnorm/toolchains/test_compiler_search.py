from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from jitnorm.toolchains.search import is_elf, on_path, on_sys_path, toolkit_roots


def make_file(path: Path, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


def test_the_first_executable_file_on_path_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a/tool").mkdir(parents=True)  # a folder is no program
    make_file(tmp_path / "b/tool", mode=0o644)  # nor is a file without the permission
    wanted = make_file(tmp_path / "c/tool")
    make_file(tmp_path / "d/tool")
    monkeypatch.setenv("PATH", ":".join(str(tmp_path / name) for name in ("none", "a", "b", "c", "d")))
    assert on_path("tool") == wanted
    assert on_path("other") is None


def test_a_program_given_as_a_path_is_not_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = make_file(tmp_path / "tool")
    monkeypatch.chdir(tmp_path)
    assert on_path("./tool") == tool
    assert on_path(str(tmp_path / "other")) is None


def test_a_folder_that_cannot_be_entered_is_passed_over(
    tmp_path: Path, locked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = make_file(tmp_path / "open/tool")
    monkeypatch.setenv("PATH", f"{locked}:{tmp_path / 'open'}")
    assert on_path("tool") == wanted
    assert on_path("other") is None
    assert on_path(str(locked / "tool")) is None


def test_packages_are_searched_in_the_order_of_sys_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = make_file(tmp_path / "a/x/lib"), make_file(tmp_path / "b/x/lib")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "none"), str(tmp_path / "a"), str(tmp_path / "b")])
    assert on_sys_path("x/lib") == first
    first.unlink()
    assert on_sys_path("x/lib") == second
    assert on_sys_path("x/other") is None


def test_cuda_path_comes_before_cuda_home(monkeypatch: pytest.MonkeyPatch) -> None:
    assert toolkit_roots() == []
    monkeypatch.setenv("CUDA_HOME", "/home")
    monkeypatch.setenv("CUDA_PATH", "/path")
    assert toolkit_roots() == [Path("/path"), Path("/home")]


def test_a_script_is_no_program_of_its_own(tmp_path: Path) -> None:
    assert is_elf(Path(sys.executable).resolve())
    assert not is_elf(make_file(tmp_path / "script"))


def test_nor_is_for_all_that_is_known_a_program_that_may_only_be_executed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(path: object, *_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr("builtins.open", refuse)
    assert not is_elf(Path(sys.executable))
