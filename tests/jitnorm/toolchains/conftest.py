from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from compile_once import path_of_the_machine

from jitnorm.toolchains import identity
from jitnorm.toolchains.workplace import Workplace, temporary_folder

MakeProgram = Callable[[str, str], Path]


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the identities or the settings of another, nor those of the machine."""
    monkeypatch.setattr(identity, "_seen", {})
    monkeypatch.setenv("PATH", path_of_the_machine())
    for name in (
        "CXX",
        "CUDA_HOME",
        "CUDA_PATH",
        "CONDA_PREFIX",
        "JITNORM_BACKEND",
        "JITNORM_COMPILE_TIMEOUT",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def make_program(tmp_path: Path) -> MakeProgram:
    """Writes an executable shell script; its folder is ``tmp_path / "bin"``."""

    def make(name: str, script: str) -> Path:
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    return make


@pytest.fixture
def only_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """PATH is one empty folder, ``tmp_path / "bin"``."""
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.fixture
def no_wheels(monkeypatch: pytest.MonkeyPatch) -> None:
    """No installed package brings a compiler."""
    for module in ("nvrtc_library", "nvcc", "zig"):
        monkeypatch.setattr(f"jitnorm.toolchains.{module}.on_sys_path", lambda relative: None)
    monkeypatch.setattr("jitnorm.toolchains.cute._metadata_in", lambda folder: ())


@pytest.fixture
def cubin_architecture() -> Callable[[bytes], int]:
    """Reads the SM version out of a cubin's ELF header, which is independent of how it was compiled."""

    def read(cubin: bytes) -> int:
        assert cubin[:4] == b"\x7fELF"
        assert struct.unpack_from("<H", cubin, 18) == (190,)  # EM_CUDA
        abi_version, flags = cubin[8], int.from_bytes(cubin[48:52], "little")
        return (flags >> 8 if abi_version >= 8 else flags) & 0xFF

    return read


@pytest.fixture
def work_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def workplaces(work_dir: Path) -> list[Workplace]:
    """Compilers work in ``work_dir`` alone."""
    return [partial(temporary_folder, work_dir)]


@pytest.fixture
def locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that cannot be entered: not by its mode, which says nothing to root."""
    folder, stat = tmp_path / "locked", os.stat
    folder.mkdir()

    def refuse(path: Any, *rest: Any, **named: Any) -> os.stat_result:
        if str(path).startswith(f"{folder}/"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return stat(path, *rest, **named)

    monkeypatch.setattr(os, "stat", refuse)
    with pytest.raises(PermissionError):
        os.stat(folder / "anything")  # not by pathlib, whose own stat Python 3.10 keeps
    return folder
