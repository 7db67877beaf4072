"""The operator of a remote tier is trusted neither with this process's memory nor with its time."""

from __future__ import annotations

import gzip
import http.server
import json
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import fsspec.config
import fsspec.implementations.http  # which takes longer than some of the timeouts here
import pytest
from jitnorm.cache import Cache, Store
from jitnorm.cache.artifact import encode_manifest
from jitnorm.cache.errors import CorruptEntryError, RemoteError
from jitnorm.cache.remote import RemoteTier
from jitnorm.cache.transfer import push
from remote_entries import KEYS, LIMIT, artifact_of
from tcp_server import Answer, listening

MIB = 1 << 20
# What a server sends that is not stopped: enough to be seen, and no danger to the machine that the test runs on.
ENDLESS_BYTES = 300 * MIB
# What reading 1 MiB may cost, with all that is imported for it.
ALLOWED_BYTES = 64 * MIB
MANIFEST = encode_manifest(KEYS[0], artifact_of(KEYS[0]))
BOMB = gzip.compress(bytes(ENDLESS_BYTES), 1)


def answer_with(
    *headers: str, body: bytes = b"", status: str = "200 OK", chunked: bool = False, is_payload_alone: bool = False
) -> Answer:
    """Answer every request this way, or only those for a payload; without a body, send endless zeros."""
    head = "\r\n".join([f"HTTP/1.1 {status}", *headers, "", ""]).encode()
    piece = b"10000\r\n" + bytes(65536) + b"\r\n" if chunked else bytes(65536)

    def answer(connection: socket.socket) -> None:
        request = connection.recv(65536)
        if is_payload_alone and b"payload " not in request:
            found = b"200 OK" if b"manifest.json" in request else b"404 No"
            connection.sendall(b"HTTP/1.1 " + found + b"\r\nConnection: close\r\n\r\n" + MANIFEST)
            return
        connection.sendall(head + body)
        if not body:
            for _ in range(ENDLESS_BYTES // 65536):
                connection.sendall(piece)

    return answer


ANSWERS: dict[str, tuple[Answer, str]] = {
    "no length": (answer_with(), "manifest.json has more than 1048576 bytes"),
    "a huge length": (answer_with("Content-Length: 6000000000"), "manifest.json has more than 1048576 bytes"),
    "chunks": (answer_with("Transfer-Encoding: chunked", chunked=True), "manifest.json has more than 1048576 bytes"),
    "more than the length": (answer_with("Content-Length: 5"), "Bad status line|is not a manifest"),
    "an endless error": (answer_with(status="500 No"), "failed: .*500"),
    "an endless absence": (answer_with(status="404 No"), "there is no such entry"),
    "a bomb": (answer_with("Content-Encoding: gzip", body=BOMB), "sends files encoded .'gzip'."),
    "a bomb by another name": (answer_with("Content-Encoding: x-gzip", body=BOMB), "sends files encoded"),
    "a bomb without a name": (answer_with(body=BOMB), "manifest.json has more|manifest.json is not a manifest"),
    "a long payload": (answer_with(is_payload_alone=True), "payload has more than 64000 bytes"),
}
# Reads an entry of each tier, and lists it; tells the errors, and how far memory has grown at its most.
READER = """
import json, sys
import aiobotocore.session, s3fs  # whose tables take some 100 MiB
from jitnorm.cache.errors import CacheError
from jitnorm.cache.remote import RemoteTier

def most_bytes():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM"))

before, errors = most_bytes(), {}
for name, url in json.loads(sys.argv[1]).items():
    for method, *arguments in json.loads(sys.argv[2]):
        try:
            getattr(RemoteTier(url, timeout=30), method)(*arguments)
        except CacheError as error:
            errors.setdefault(name, str(error))
print(json.dumps([errors, most_bytes() - before]))
"""


def read_all(urls: dict[str, str], *calls: tuple[str, ...]) -> tuple[dict[str, str], int]:
    """The first error of each tier, and how much the memory of the process that read them all grew."""
    done = subprocess.run(
        [sys.executable, "-c", READER, json.dumps(urls), json.dumps(calls)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    errors, grown = json.loads(done.stdout)
    return errors, grown


def test_web_servers_take_no_more_memory_than_an_entry_may() -> None:
    with ExitStack() as servers:
        urls = {
            name: f"http://127.0.0.1:{servers.enter_context(listening(answer))}"
            for name, (answer, _) in ANSWERS.items()
        }
        errors, grown = read_all(urls, ("demand", KEYS[0]), ("keys",))
    for name, (_, message) in ANSWERS.items():
        with pytest.raises(RemoteError, match=message):
            raise RemoteError(errors[name])
    assert grown < ALLOWED_BYTES


def test_object_stores_take_no_more_memory_than_an_entry_may(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening(answer_with("Content-Length: 6000000000")) as port:
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }.items():
            monkeypatch.setenv(name, value)
        errors, grown = read_all({"s3": "s3://bucket/kernels"}, ("demand", KEYS[0]))
    assert "manifest.json has more than 1048576 bytes" in errors["s3"]
    assert grown < ALLOWED_BYTES


def test_folders_take_no_more_memory_than_an_entry_may(tmp_path: Path) -> None:
    place = tmp_path / "v1" / KEYS[0][:2] / KEYS[0]
    place.mkdir(parents=True)
    with (place / "manifest.json").open("wb") as file:
        os.truncate(file.fileno(), 1 << 40)
    with pytest.raises(CorruptEntryError, match=r"manifest\.json has more than 1048576 bytes"):
        RemoteTier(tmp_path.as_uri(), timeout=LIMIT).demand(KEYS[0])


@pytest.mark.parametrize("piece", [b"x", bytes(65536)], ids=["slowly", "fast"])
def test_a_server_that_never_ends_is_hung_up_on(store: Store, piece: bytes) -> None:
    """The timeout closes the connection, and the abandoned thread stops reading."""
    ended = threading.Event()

    def send(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        end = time.monotonic() + LIMIT
        try:
            while time.monotonic() < end:
                connection.sendall(piece)
                time.sleep(0.05 if len(piece) == 1 else 0)
        except OSError:
            ended.set()

    with listening(send) as port:
        remote = RemoteTier(f"http://127.0.0.1:{port}", timeout=0.5)
        began = time.monotonic()
        assert Cache(store, remote=remote).load(KEYS[0]) is None
        assert time.monotonic() - began < 5
        assert ended.wait(5)


def test_what_is_encoded_is_not_asked_for(full: Store, folder: Path, remote: RemoteTier) -> None:
    push(full, remote, KEYS[:1])
    asked: list[str | None] = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments, directory=str(folder))  # type: ignore[arg-type]

        def do_GET(self) -> None:
            asked.append(self.headers["Accept-Encoding"])
            super().do_GET()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert RemoteTier(f"http://127.0.0.1:{server.server_address[1]}").load(KEYS[0]) == artifact_of(KEYS[0])
        server.shutdown()
    assert set(asked) == {"identity"}


def test_headers_that_the_operator_configured_are_still_sent(
    full: Store, folder: Path, remote: RemoteTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The configuration of fsspec sets them; this is how the password of a web server is given."""
    push(full, remote, KEYS[:1])
    seen: list[bytes] = []

    def answer(connection: socket.socket) -> None:
        request = connection.recv(65536)
        seen.append(request)
        data = (folder / request.split()[1].decode().lstrip("/")).read_bytes()
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(data) + data)

    own = {"client_kwargs": {"headers": {"Authorization": "Bearer 1"}}}
    monkeypatch.setitem(fsspec.config.conf, "http", own)
    with listening(answer) as port:
        assert RemoteTier(f"http://127.0.0.1:{port}").load(KEYS[0]) == artifact_of(KEYS[0])
    assert [b"Authorization: Bearer 1" in request for request in seen] == [True, True]
    assert own == {"client_kwargs": {"headers": {"Authorization": "Bearer 1"}}}
