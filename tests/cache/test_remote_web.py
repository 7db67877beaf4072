"""Remote tiers on web servers, which may be slow, refuse, break off or be gone: lookups are bounded."""

from __future__ import annotations

import contextlib
import http.server
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from jitnorm.cache import Artifact, Cache, CacheError, RemoteError, Store, failed_tiers, make_key
from jitnorm.cache.remote import RemoteTier
from jitnorm.cache.transfer import pull, push
from remote_entries import KEYS, LIMIT, SOURCE, artifact_of


class Answers(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def serve(folder: Path) -> Iterator[Callable[..., str]]:
    """Serve the folder over HTTP, or answer otherwise; give the URL."""
    servers: list[http.server.ThreadingHTTPServer] = []

    def serve(answer: Callable[[http.server.BaseHTTPRequestHandler], None] | None = None) -> str:
        class Handler(Answers):
            def __init__(self, *arguments: Any) -> None:
                super().__init__(*arguments, directory=str(folder))

            def do_GET(self) -> None:
                if answer is None:
                    super().do_GET()
                else:
                    with contextlib.suppress(OSError):
                        answer(self)

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_web_server_serves_a_cache_folder(
    full: Store, other: Store, remote: RemoteTier, serve: Callable[..., str]
) -> None:
    push(full, remote)
    web = RemoteTier(serve(), timeout=LIMIT)
    cache = Cache(other, remote=web)
    assert cache.load(KEYS[0]) == artifact_of(KEYS[0])
    assert cache.load(make_key({})) is None
    assert sorted(web.keys_of(SOURCE)) == KEYS
    assert pull(other, web, KEYS).moved == tuple(KEYS[1:])
    assert web.name not in failed_tiers()


def test_a_web_server_that_lists_folders_can_be_listed(
    full: Store, other: Store, remote: RemoteTier, serve: Callable[..., str]
) -> None:
    push(full, remote)
    web = RemoteTier(serve(), timeout=LIMIT)
    listed = web.keys()
    assert listed == KEYS
    found = [web.describe(key) for key in listed]
    assert [entry and entry.manifest["of"] for entry in found] == KEYS
    assert pull(other, web).moved == tuple(KEYS)


@pytest.mark.parametrize("link", ["{name}", "{name}/", "./{name}/", "/kernels/{name}/", "http://other/{name}/"])
def test_links_of_all_kinds_are_followed(serve: Callable[..., str], link: str) -> None:
    """Links lead nowhere except below the folder."""
    asked: list[str] = []

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        asked.append(handler.path)
        names = ["sources", KEYS[0][:2], "..", "evil"] if handler.path == "/v1/" else [KEYS[0], "tmp", f"{KEYS[0]}.exe"]
        page = "".join(f'<a class=x HREF="{link.format(name=name)}">{name}</a>' for name in names).encode()
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(page)))
        handler.end_headers()
        handler.wfile.write(page)

    keys = RemoteTier(serve(answer), timeout=LIMIT).keys()
    assert asked == ["/v1/", f"/v1/{KEYS[0][:2]}/"]
    assert keys == [KEYS[0]]


def test_threads_that_miss_together_ask_once(
    full: Store, other: Store, remote: RemoteTier, folder: Path, serve: Callable[..., str]
) -> None:
    push(full, remote)
    asked: list[str] = []

    def count(handler: http.server.BaseHTTPRequestHandler) -> None:
        asked.append(handler.path.rpartition("/")[2])
        data = (folder / handler.path.lstrip("/")).read_bytes()
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    cache = Cache(other, remote=RemoteTier(serve(count), timeout=LIMIT))
    start = threading.Barrier(8)

    def ask(_: int) -> Artifact:
        start.wait(LIMIT)
        return cache.load_or_build(KEYS[0], lambda: pytest.fail("built"))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(8))) == [artifact_of(KEYS[0])] * 8
    assert asked == ["manifest.json", "payload"]


def test_the_web_is_only_read() -> None:
    with pytest.raises(CacheError, match="can only be read; set JITNORM_REMOTE_MODE"):
        RemoteTier("https://example.org/kernels", writable=True)


def test_a_slow_server_is_waited_for_once_and_not_longer_than_the_timeout(
    store: Store, serve: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    proceed = threading.Event()

    def stall(handler: http.server.BaseHTTPRequestHandler) -> None:
        proceed.wait(LIMIT)

    remote = RemoteTier(serve(stall), timeout=0.5)
    cache = Cache(store, remote=remote)
    began = time.monotonic()
    for key in KEYS:
        assert cache.load_or_build(key, lambda: Artifact(b"built", {})).payload == b"built"
    assert time.monotonic() - began < 5
    assert "no answer within 0.5 s" in failed_tiers()[remote.name]
    assert [remote.name in record.getMessage() for record in caplog.records] == [True]
    proceed.set()


def test_a_server_that_sends_slowly_is_bounded_as_a_whole(store: Store, serve: Callable[..., str]) -> None:
    """An occasional byte keeps any socket timeout from expiring."""

    def drip(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "100000")
        handler.end_headers()
        for _ in range(600):
            handler.wfile.write(b"x")
            time.sleep(0.05)

    remote = RemoteTier(serve(drip), timeout=0.5)
    began = time.monotonic()
    assert Cache(store, remote=remote).load(KEYS[0]) is None
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("status", [403, 500, 503])
def test_a_server_that_refuses_is_left_alone_for_a_while(
    store: Store, serve: Callable[..., str], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def refuse(handler: http.server.BaseHTTPRequestHandler) -> None:
        asked.append(handler.path)
        handler.send_error(status)

    remote = RemoteTier(serve(refuse), timeout=LIMIT)
    for key in KEYS:
        assert remote.load(key) is None
    assert len(asked) == 1
    later = time.monotonic() + 61
    monkeypatch.setattr("jitnorm.cache.remote.time.monotonic", lambda: later)
    assert remote.load(KEYS[0]) is None
    assert len(asked) == 2
    with pytest.raises(RemoteError, match=str(status)):
        remote.demand(KEYS[0])


def test_a_server_that_breaks_off_within_a_payload_gives_no_artifact(
    full: Store, other: Store, folder: Path, remote: RemoteTier, serve: Callable[..., str]
) -> None:
    push(full, remote)
    stop: list[Callable[[], None]] = []

    def die(handler: http.server.BaseHTTPRequestHandler) -> None:
        data = (folder / handler.path.lstrip("/")).read_bytes()
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        if handler.path.endswith("payload"):
            handler.wfile.write(data[: len(data) // 2])
            handler.wfile.flush()
            handler.connection.shutdown(socket.SHUT_RDWR)
            stop.append(handler.server.server_close)
        else:
            handler.wfile.write(data)

    web = RemoteTier(serve(die), timeout=LIMIT)
    assert Cache(other, remote=web).load_or_build(KEYS[0], lambda: Artifact(b"built", {})).payload == b"built"
    assert stop
    assert web.name in failed_tiers()
    assert other.load(KEYS[0]) == Artifact(b"built", {})


def test_nobody_listening_is_one_warning_and_the_kernel_is_built(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    cache = Cache(store, remote=RemoteTier(f"http://127.0.0.1:{port}", timeout=LIMIT))
    for key in KEYS:
        assert cache.load_or_build(key, lambda: Artifact(b"built", {})).payload == b"built"
    assert len(caplog.records) == 1
