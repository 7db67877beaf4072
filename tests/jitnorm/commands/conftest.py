"""Caches for commands to work on, and a way to run the commands."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cache_entries import Answer, Invoke, fill
from jitnorm.cache import Store, failures
from typer.testing import CliRunner, Result
from wheel_fixtures import site

from jitnorm.cli import app
from jitnorm.store import user_cache, user_store

__all__ = ["site"]


def _forget() -> None:
    for opened in (user_store, user_cache):
        opened.cache_clear()
    failures._reasons.clear()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of an empty cache, with no variable set except the one that names it."""
    for name in [name for name in os.environ if name.startswith("JITNORM_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("JITNORM_CACHE_DIR", str(tmp_path / "cache"))
    _forget()
    yield tmp_path / "cache"
    _forget()


@pytest.fixture
def store(folder: Path) -> Store:
    """A cache of three kernels and a launcher, used by no process."""
    store = user_store()
    fill(store)
    return store


@pytest.fixture
def invoke(folder: Path) -> Invoke:
    """Run a command as in a new process, with nothing opened yet."""

    def run(*arguments: object, **options: Any) -> Result:
        _forget()
        result = CliRunner().invoke(app, [str(argument) for argument in arguments], **options)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


@pytest.fixture
def answer(invoke: Invoke) -> Answer:
    """A command's output with --json; its exit code must be the expected one."""

    def run(*arguments: object, exit_code: int = 0) -> Any:
        result = invoke(*arguments, "--json")
        assert result.exit_code == exit_code, result.output
        return json.loads(result.stdout)

    return run
