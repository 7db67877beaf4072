"""A remote tier that cannot be opened costs a bounded time and one warning, and never raises in a lookup."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import fsspec
import pytest
from fsspec.registry import known_implementations
from fsspec.spec import AbstractFileSystem
from jitnorm.cache import Artifact, Cache, CacheError, RemoteError, Store, failed_tiers
from jitnorm.cache.remote import RemoteTier
from jitnorm.cache.transfer import pull, push
from remote_entries import KEYS, LIMIT
from tcp_server import listening, say_nothing, unused_port

BUILT = Artifact(b"built", {})
# Far more than the timeouts below, far less than those that file systems have of their own.
SOON = 5.0


class WordlessError(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


class Opened(AbstractFileSystem):
    """A stand-in that calls a function when it is created."""

    protocol = "opened"
    begin: Callable[[], object] = staticmethod(lambda: None)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        type(self).begin()


fsspec.register_implementation("opened", Opened, clobber=True)

OpenWith = Callable[[Callable[[], object]], str]


def unused_folder() -> str:
    """A name of which no URL has been warned about, as one with a port may have been that another test had."""
    return os.urandom(6).hex()


@pytest.fixture
def open_with(monkeypatch: pytest.MonkeyPatch) -> OpenWith:
    """Make a file system call a function when it is created; return its URL."""

    def use(begin: Callable[[], object]) -> str:
        monkeypatch.setattr(Opened, "begin", staticmethod(begin))
        return f"opened://{unused_folder()}/kernels"

    return use


def check_is_done_without(url: str, store: Store, full: Store, caplog: pytest.LogCaptureFixture) -> None:
    """Check that lookups continue without the tier after one warning, and that commands fail and say why."""
    remote = RemoteTier(url, timeout=0.5, writable=not url.startswith("http"))
    cache = Cache(store, remote=remote)
    began = time.monotonic()
    assert [cache.load_or_build(key, lambda: BUILT) for key in KEYS] == [BUILT] * len(KEYS)
    assert cache.load_source(KEYS[0]) is None
    assert time.monotonic() - began < SOON
    assert remote.name in failed_tiers()
    assert [remote.name in record.getMessage() for record in caplog.records] == [True]
    for command in (remote.keys, lambda: pull(store, remote), lambda: push(full, remote, KEYS[:1])):
        began = time.monotonic()
        with pytest.raises(RemoteError, match=f"^{remote.name} failed: "):
            command()
        assert time.monotonic() - began < SOON


@pytest.mark.parametrize("protocol", ["ftp", "http"])
def test_a_server_that_accepts_and_never_answers(
    protocol: str, other: Store, full: Store, caplog: pytest.LogCaptureFixture
) -> None:
    with listening(say_nothing) as port:
        check_is_done_without(f"{protocol}://127.0.0.1:{port}/{unused_folder()}", other, full, caplog)


@pytest.mark.parametrize("protocol", ["ftp", "http"])
def test_a_port_that_nobody_listens_on(
    protocol: str, other: Store, full: Store, caplog: pytest.LogCaptureFixture
) -> None:
    check_is_done_without(f"{protocol}://127.0.0.1:{unused_port()}/{unused_folder()}", other, full, caplog)


def test_a_url_that_its_file_system_rejects(other: Store, full: Store, caplog: pytest.LogCaptureFixture) -> None:
    check_is_done_without("ftp://127.0.0.1:nowhere/kernels", other, full, caplog)


@pytest.mark.parametrize(
    "error",
    [ValueError("x"), KeyError(1), OSError(5, "x"), TimeoutError(), MemoryError(), WordlessError(), SystemExit(3)],
)
def test_a_file_system_that_raises_when_it_is_made(
    error: BaseException,
    open_with: OpenWith,
    other: Store,
    full: Store,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail() -> None:
        raise error

    check_is_done_without(open_with(fail), other, full, caplog)


def test_a_file_system_that_blocks_when_it_is_made(
    open_with: OpenWith, other: Store, full: Store, caplog: pytest.LogCaptureFixture
) -> None:
    proceed = threading.Event()
    check_is_done_without(open_with(lambda: proceed.wait(LIMIT)), other, full, caplog)
    proceed.set()


def test_threads_that_ask_at_once_wait_at_once(
    open_with: OpenWith, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    proceed, start = threading.Event(), threading.Barrier(len(KEYS))
    cache = Cache(store, remote=RemoteTier(open_with(lambda: proceed.wait(LIMIT)), timeout=1.0))

    def ask(key: str) -> Artifact:
        start.wait(LIMIT)
        return cache.load_or_build(key, lambda: BUILT)

    began = time.monotonic()
    with ThreadPoolExecutor(len(KEYS)) as pool:
        assert list(pool.map(ask, KEYS)) == [BUILT] * len(KEYS)
    assert time.monotonic() - began < 2.5
    assert len(caplog.records) == 1
    proceed.set()


def test_it_is_opened_again_after_a_while(open_with: OpenWith, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []

    def fail_once() -> None:
        opened.append(1)
        if len(opened) == 1:
            raise ConnectionRefusedError

    remote = RemoteTier(open_with(fail_once), timeout=LIMIT)
    assert remote.load(KEYS[0]) is None
    assert remote.load(KEYS[0]) is None
    assert len(opened) == 1
    later = time.monotonic() + 61
    monkeypatch.setattr("jitnorm.cache.remote.time.monotonic", lambda: later)
    remote.load(KEYS[0])
    assert len(opened) == 2


def test_nothing_waits_on_after_the_timeout() -> None:
    """The abandoned thread and the connection both end."""
    ended = threading.Event()

    def listen(connection: Any) -> None:
        try:
            say_nothing(connection)
        finally:
            ended.set()

    with listening(listen) as port:
        for protocol in ("ftp", "http"):
            ended.clear()
            assert RemoteTier(f"{protocol}://127.0.0.1:{port}/kernels", timeout=0.5).load(KEYS[0]) is None
            assert ended.wait(SOON)
    end = time.monotonic() + SOON
    while any(thread.name == "jitnorm-remote" for thread in threading.enumerate()):
        assert time.monotonic() < end
        time.sleep(0.05)


# What is plainly wrong is an error, not a tier that is done without.


def test_a_package_that_is_missing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = {"class": "no_such_package.Files", "err": "install no_such_package"}
    monkeypatch.setitem(known_implementations, "lacking", lacking)
    with pytest.raises(CacheError, match=r"remote lacking://place cannot be opened: install no_such_package"):
        RemoteTier("lacking://place").load(KEYS[0])


def test_a_malformed_url_is_an_error_without_the_secrets_of_the_url() -> None:
    with pytest.raises(CacheError, match="which is not a URL; expected one such as") as caught:
        RemoteTier("https://me:secret@[::1/kernels")
    assert "secret" not in str(caught.value)
