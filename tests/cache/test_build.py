from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from jitnorm.cache import Artifact, Store, load_or_build

StartWorker = Callable[..., "subprocess.Popen[str]"]


def test_a_present_artifact_is_not_built(store: Store, key: str, artifact: Artifact) -> None:
    store.publish(key, artifact)
    assert load_or_build(store, key, lambda: pytest.fail("built")) == artifact


def test_a_missing_artifact_is_built_and_stored(store: Store, key: str, artifact: Artifact) -> None:
    assert load_or_build(store, key, lambda: artifact) is artifact
    assert store.load(key) == artifact


def test_a_build_must_give_an_artifact(store: Store, key: str) -> None:
    with pytest.raises(TypeError, match="build returned a bytes"):
        load_or_build(store, key, lambda: b"code")  # type: ignore[arg-type, return-value]
    assert store.load(key) is None


def test_a_wrong_timeout_is_refused_even_if_nobody_has_to_wait(store: Store, key: str, artifact: Artifact) -> None:
    store.publish(key, artifact)
    with pytest.raises(ValueError, match="timeout is -1"):
        load_or_build(store, key, lambda: artifact, timeout=-1)


@pytest.mark.parametrize("timeout", [60, 0])
def test_32_processes_at_once_on_an_empty_cache_get_equal_artifacts_and_leave_nothing_behind(
    store: Store, key: str, tmp_path: Path, start_worker: StartWorker, timeout: float
) -> None:
    log = tmp_path / "builds"
    arguments = {"root": store.layout.root, "key": key, "log": log, "timeout": timeout, "build_seconds": 0.3}
    answers, errors = start_worker("build_at_once", processes=32, **arguments).communicate(timeout=90)
    assert answers.split() == [hashlib.sha256(b"x" * 100_000).hexdigest()] * 32, errors
    builds = len(log.read_text().splitlines())
    # Without patience they build privately, and publish in a race that all but one lose.
    assert builds == 1 if timeout else builds > 1
    assert list(store.layout.private.iterdir()) == []
    assert [path.name for path in store.layout.locks.iterdir()] == [f"{key}.lock"]
    assert [entry.key for entry in store.entries()] == [key]


def test_threads_build_once(store: Store, key: str, artifact: Artifact) -> None:
    threads = 16
    start = threading.Barrier(threads)
    builds: list[int] = []

    def build() -> Artifact:
        builds.append(threading.get_ident())
        return artifact

    def ask(_: int) -> Artifact:
        start.wait(timeout=10)
        return load_or_build(store, key, build, timeout=60)

    with ThreadPoolExecutor(threads) as pool:
        results = list(pool.map(ask, range(threads), timeout=60))
    assert results == [artifact] * threads
    assert len(builds) == 1


def test_a_failing_build_raises_for_its_caller_and_lets_the_next_one_build(
    store: Store, key: str, artifact: Artifact
) -> None:
    building, proceed = threading.Event(), threading.Event()

    class CompilerError(Exception):
        pass

    def fail() -> Artifact:
        building.set()
        proceed.wait(timeout=10)
        raise CompilerError("syntax error")

    with ThreadPoolExecutor(2) as pool:
        failing = pool.submit(load_or_build, store, key, fail)
        assert building.wait(timeout=10)
        waiting = pool.submit(load_or_build, store, key, lambda: artifact, timeout=30)
        assert store.load(key) is None
        proceed.set()
        with pytest.raises(CompilerError, match="syntax error"):
            failing.result(timeout=10)
        assert waiting.result(timeout=30) == artifact
    assert store.load(key) == artifact
    assert list(store.layout.private.iterdir()) == []


@pytest.mark.parametrize(("module", "call"), [(os, "write"), (os, "fsync"), (Path, "mkdir")])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO], ids=errno.errorcode.get)
def test_a_full_or_broken_disk_gives_one_warning_and_the_artifact(
    store: Store,
    key: str,
    artifact: Artifact,
    module: object,
    call: str,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patched:
        patched.setattr(module, call, fail)
        for _ in range(2):
            assert load_or_build(store, key, lambda: artifact) == artifact
    (warning,) = caplog.records
    for part in (str(store.layout.root), os.strerror(code), "JITNORM_CACHE_DIR"):
        assert part in warning.getMessage()
    assert store.load(key) is None
    assert not store.layout.private.exists() or list(store.layout.private.iterdir()) == []
