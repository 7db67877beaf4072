"""The doctor on environment variables: it knows every one that jitnorm reads, and finds bad values."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jitnorm.commands.doctor import CHECKS, Variable, variables

PAGE = (Path(__file__).parents[3] / "docs" / "cache.md").read_text(encoding="utf-8")

BAD = {
    "JITNORM_BACKEND": "gcc",
    "JITNORM_CACHE_MAX_BYTES": "lots",
    "JITNORM_CACHE_TRUST": "all",
    "JITNORM_COMPILE_TIMEOUT": "-1",
    "JITNORM_CPU_THREADS": "0",
    "JITNORM_JIT": "never",
    "JITNORM_LOCK_TIMEOUT": "long",
    "JITNORM_MISS_RECORD": "/no/such/folder/misses",
    "JITNORM_OTEL": "yes",
    "JITNORM_REMOTE_CACHE": "no-url",
    "JITNORM_REMOTE_MODE": "write",
    "JITNORM_REMOTE_TIMEOUT": "0",
    "JITNORM_SIGNING_KEY": "/no/such/key",
    "JITNORM_TRUSTED_KEYS": "/no/such/key",
    "JITNORM_TUNING": "maybe",
}
GOOD = {
    "JITNORM_BACKEND": "nvrtc",
    "JITNORM_CACHE_DIR": "/somewhere",
    "JITNORM_CACHE_MAX_BYTES": "2G",
    "JITNORM_CACHE_TRUST": "any",
    "JITNORM_COMPILE_TIMEOUT": "10",
    "JITNORM_CPU_THREADS": "4",
    "JITNORM_JIT": "record",
    "JITNORM_LOCK_TIMEOUT": "5",
    "JITNORM_MISS_RECORD": "/dev/null",
    "JITNORM_OTEL": "0",
    "JITNORM_READONLY_CACHE": "/opt/kernels",
    "JITNORM_REMOTE_MODE": "readwrite",
    "JITNORM_REMOTE_TIMEOUT": "2.5",
    "JITNORM_TUNING": "off",
}


@pytest.fixture(autouse=True)
def _none_set(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JITNORM_CACHE_DIR")


def test_every_variable_of_the_page_on_the_cache_is_known_and_no_other() -> None:
    assert set(CHECKS) == set(re.findall(r"\| `(JITNORM_[A-Z_]+)` \|", PAGE))


def test_what_is_not_set_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert variables() == ()
    monkeypatch.setenv("JITNORM_JIT", "")
    assert variables() == ()


@pytest.mark.parametrize(("name", "value"), BAD.items())
def test_a_bad_value_is_found_and_named(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    (found,) = variables()
    assert (found.name, found.value) == (name, value)
    assert value in found.problem


def test_a_url_that_is_none_is_found_and_its_secrets_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JITNORM_REMOTE_CACHE", "https://me:secret@[::1/kernels")
    (found,) = variables()
    assert "not a URL" in found.problem
    assert "secret" not in f"{found.value} {found.problem}"


@pytest.mark.parametrize(("name", "value"), GOOD.items())
def test_a_good_value_is_no_problem(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    assert variables() == (Variable(name, value, ""),)


def test_a_misspelled_name_is_a_problem_with_the_right_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JITNORM_CACHE_DIRR", "/somewhere")
    (found,) = variables()
    assert found.problem.startswith("jitnorm does not read this variable; unset it, or set JITNORM_CACHE_DIR")


def test_credentials_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fsspec", reason="remote caches need jitnorm[remote]")
    monkeypatch.setenv("JITNORM_REMOTE_CACHE", "https://me:secret@example.com/kernels?token=secret")
    (found,) = variables()
    assert (found.value, found.problem) == ("https://example.com/kernels", "")
