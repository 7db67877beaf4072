"""The page on errors lists every class of the code, and each can be raised as it says."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import jitnorm.cache.archive
import numpy as np
import pytest
from jitnorm.cache import Artifact, Store, open_cache, open_root
from jitnorm.cache.artifact import decode_manifest
from jitnorm.cache.errors import CacheError
from jitnorm.cache.remote import RemoteTier
from jitnorm.cache.signature import TrustedKeys
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.target import Target

import jitnorm
from jitnorm import comm, manager
from jitnorm.comm.memory import Exchange
from jitnorm.comm.threads import on_threads
from jitnorm.dispatch import _captured_kernel
from jitnorm.kernel_source import recipe_text
from jitnorm.launcher import launcher
from jitnorm.toolchains import cxx, nvrtc, nvrtc_program, process
from jitnorm.toolchains.errors import ToolchainMissingError
from jitnorm.toolchains.workplace import work_in

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
BUILTIN = {"ValueError", "TypeError", "MemoryError", "RuntimeError"}
CONFIG = KernelConfig.parse("rmsnorm:hidden_size=64")
ONES = np.ones((2, 64), np.float32)

Raise = Callable[[Path, pytest.MonkeyPatch], object]


@cache
def defined() -> dict[str, str]:
    """The module of every public error class of the code, by its name."""
    return {
        node.name: ".".join(("jitnorm", *path.relative_to(ROOT).with_suffix("").parts)).replace(
            "jitnorm.jitnorm", "jitnorm"
        )
        for folder in ("jitnorm", "kernels", "cache")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and re.fullmatch(r"[A-Z]\w*Error", node.name)
    }


def test_the_page_lists_every_class_of_the_code_and_no_other() -> None:
    assert set(re.findall(r"^\| `(\w+)` \| .+ \| .+ \|$", PAGE, re.MULTILINE)) == defined().keys() | BUILTIN


def test_every_class_is_raised_here() -> None:
    assert RAISED.keys() == defined().keys() | BUILTIN


def _not_warm(folder: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setenv("JITNORM_JIT", "deny")
    monkeypatch.setenv("JITNORM_CACHE_DIR", str(folder))
    return manager.load_or_build_kernel(CONFIG, Target("cpu"), open_cache())


def _missing_compiler(folder: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setenv("CXX", str(folder / "absent"))
    return cxx.Cxx()


def _rejected_source(folder: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    return cxx.Cxx().compile("not C++", Target("cpu"))


def _rejected_program(folder: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    try:
        library = nvrtc.Nvrtc().location
    except ToolchainMissingError as error:
        pytest.skip(str(error))
    return nvrtc_program.ptx_of(library, "not CUDA", "kernel.cu")


def _invalid_setting(folder: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setenv("JITNORM_REMOTE_MODE", "sideways")
    return open_cache(Store(folder))


def _open_to_others(folder: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    folder.chmod(0o777)
    return open_root(folder, explicit=True)


def _file_in_the_way(folder: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    (folder / "file").touch()
    return open_root(folder / "file" / "cache", explicit=True)


def _unreachable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    (folder / "file").touch()
    return RemoteTier((folder / "file").as_uri(), timeout=30, writable=True).write("0" * 64, Artifact(b"", {}))


def _no_archive(folder: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    (folder / "archive").write_bytes(b"no archive")
    return jitnorm.cache.archive.import_archive(Store(folder / "cache"), folder / "archive")


def _no_workplace(folder: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    return work_in((), lambda place: place)


def _slow_program(folder: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    return process.run(["sh", "-c", "echo its output so far; sleep 60"], None, 0.5)


def _no_library(folder: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    return launcher().load_kernel(recipe_text(CONFIG, Target("cpu")), b"no library")


def _too_large(folder: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    return launcher().allocate((1 << 45,), "float32", -1)


def _rank_alone(*_: object) -> object:
    def work(rank: int, exchange: Exchange) -> None:
        sizes: dict[str, Any] = {"max_rows": 4, "hidden_size": 64, "dtype": "float32", "deadline": 0.1}
        own = comm.Workspace.from_exchange(rank, 2, exchange, **sizes)
        if rank == 0:
            comm.all_reduce_norm_quantize(ONES, ONES[0], own)

    return on_threads(2, work)


RAISED: dict[str, Raise] = {
    "ValueError": lambda *_: jitnorm.rmsnorm(ONES, np.ones(63, np.float32)),
    "TypeError": lambda *_: jitnorm.rmsnorm(3, np.ones(64, np.float32)),
    "MemoryError": _too_large,
    "RuntimeError": _no_library,
    "KernelNotReadyError": lambda *_: _captured_kernel(CONFIG, Target("sm_90a")),
    "KernelNotWarmError": _not_warm,
    "CommError": _rank_alone,
    "ToolchainMissingError": _missing_compiler,
    "CompileError": _rejected_source,
    "CacheError": _invalid_setting,
    "CacheTrustError": _open_to_others,
    "CacheUnusableError": _file_in_the_way,
    "RemoteError": _unreachable,
    "ArchiveError": _no_archive,
    "CorruptEntryError": lambda *_: decode_manifest("0" * 64, b"{}"),
    "UntrustedEntryError": lambda *_: TrustedKeys({}).check(b"manifest", None),
    "WorkplaceError": _no_workplace,
    "TimeLimitError": _slow_program,
    "NvrtcError": _rejected_program,
}


@pytest.mark.parametrize("name", RAISED)
def test_it_is_raised_with_a_message(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = defined().get(name)
    error = getattr(import_module(module) if module else sys.modules["builtins"], name)
    with pytest.raises(error) as caught:
        RAISED[name](tmp_path, monkeypatch)
    assert caught.type is error
    assert len(str(caught.value)) > 10


def test_every_error_of_the_cache_is_a_cache_error() -> None:
    errors = {name: getattr(import_module(module), name) for name, module in defined().items() if ".cache." in module}
    assert errors
    assert all(issubclass(error, CacheError) for error in errors.values())
