from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jitnorm.cache import Artifact, Store, make_key
from jitnorm.cache.remote import RemoteTier
from remote_entries import KEYS, LIMIT, artifact_of

KEY = make_key({"test": "a kernel"})
WORKER = Path(__file__).with_name("worker.py")

StartWorker = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def key() -> str:
    return KEY


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a remote tier."""
    return tmp_path / "remote"


@pytest.fixture
def remote(folder: Path) -> RemoteTier:
    return RemoteTier(folder.as_uri(), timeout=LIMIT, writable=True)


@pytest.fixture
def artifact() -> Artifact:
    return Artifact(bytes(range(256)) * 16, {"target": "sm_90a", "flags": ["-O3"], "version": 3})


@pytest.fixture
def start_worker() -> Iterator[StartWorker]:
    """Start ``worker.py`` processes, none of which outlives the test."""
    started: list[subprocess.Popen[str]] = []

    def start(task: str, **arguments: Any) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, str(WORKER), task, json.dumps(arguments, default=str)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=_clean_environment(),
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=30)


@pytest.fixture
def rounds() -> Callable[[int], int]:
    """The number of attempts at something random: the test's, or that of JITNORM_TEST_ROUNDS."""
    return lambda usual: int(os.environ.get("JITNORM_TEST_ROUNDS", usual))


@pytest.fixture
def other(tmp_path: Path) -> Store:
    """The empty cache of another machine."""
    return Store(tmp_path / "other")


@pytest.fixture
def full(store: Store) -> Store:
    for key in KEYS:
        store.publish(key, artifact_of(key))
    return store


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that an unprivileged process can reach, unlike those of tmp_path."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o777)
        yield Path(name)


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _SETTINGS:
        monkeypatch.delenv(name, raising=False)


_SETTINGS = (
    "JITNORM_CACHE_DIR",
    "JITNORM_CACHE_MAX_BYTES",
    "JITNORM_CACHE_TRUST",
    "JITNORM_LOCK_TIMEOUT",
    "JITNORM_READONLY_CACHE",
    "JITNORM_REMOTE_CACHE",
    "JITNORM_REMOTE_MODE",
    "JITNORM_REMOTE_TIMEOUT",
    "JITNORM_REVOCATION_KEY",
    "JITNORM_SIGNATURE_DAYS",
    "JITNORM_SIGNING_KEY",
    "JITNORM_TRUSTED_KEYS",
    "XDG_CACHE_HOME",
)


def _clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _SETTINGS}
