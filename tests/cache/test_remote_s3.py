"""Remote tiers in S3, served on this machine: push, pull, tampering, and a server that dies."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from jitnorm.cache import Artifact, Cache, RemoteError, Store, failed_tiers
from jitnorm.cache.remote import RemoteTier
from jitnorm.cache.transfer import pull, push
from remote_entries import KEYS, LIMIT, SOURCE, artifact_of
from tcp_server import listening


@pytest.fixture(scope="module")
def s3_server() -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    end = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            break
        except OSError:
            assert server.poll() is None, "moto's server has ended"
            assert time.monotonic() < end, "moto's server does not listen"
            time.sleep(0.05)
    yield f"http://127.0.0.1:{port}"
    server.kill()
    server.wait(30)


@pytest.fixture
def bucket(s3_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    import s3fs

    for name, value in {
        "AWS_ENDPOINT_URL": s3_server,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    name = f"bucket-{os.urandom(6).hex()}"
    s3fs.S3FileSystem(skip_instance_cache=True).mkdir(name)
    return name


@pytest.fixture
def s3(bucket: str) -> RemoteTier:
    return RemoteTier(f"s3://{bucket}/kernels", timeout=LIMIT, writable=True)


def test_a_bucket_warms_another_machine(full: Store, other: Store, s3: RemoteTier, bucket: str) -> None:
    assert s3.load(KEYS[0]) is None
    assert push(full, s3).moved == tuple(KEYS)
    assert push(full, s3).present == tuple(KEYS)
    assert s3.keys() == KEYS
    assert sorted(s3.keys_of(SOURCE)) == KEYS
    cache = Cache(other, remote=RemoteTier(f"s3://{bucket}/kernels", timeout=LIMIT))
    assert cache.load_or_build(KEYS[0], lambda: pytest.fail("built")) == artifact_of(KEYS[0])
    assert pull(other, s3).moved == tuple(KEYS[1:])
    assert [other.load(key) for key in KEYS] == [artifact_of(key) for key in KEYS]


def test_a_tampered_object_of_a_bucket_is_refused(full: Store, other: Store, s3: RemoteTier, bucket: str) -> None:
    import s3fs

    push(full, s3)
    files = s3fs.S3FileSystem(skip_instance_cache=True)
    files.pipe_file(f"{bucket}/kernels/v1/{KEYS[0][:2]}/{KEYS[0]}/payload", b"evil" * 16000)
    assert Cache(other, remote=s3).load(KEYS[0]) is None
    assert list(pull(other, s3).refused) == [KEYS[0]]


BUILDER = """
import sys
from jitnorm.cache import Artifact, open_cache
built = open_cache().load_or_build(sys.argv[1], lambda: Artifact(b"built", {"source_key": sys.argv[2]}))
"""


def test_a_process_that_ends_at_once_has_published_what_it_built(
    tmp_path: Path, s3: RemoteTier, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JITNORM_CACHE_DIR", str(tmp_path / "user"))
    monkeypatch.setenv("JITNORM_REMOTE_CACHE", f"s3://{bucket}/kernels")
    monkeypatch.setenv("JITNORM_REMOTE_MODE", "readwrite")
    done = subprocess.run(
        [sys.executable, "-c", BUILDER, KEYS[0], SOURCE], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert s3.load(KEYS[0]) == Artifact(b"built", {"source_key": SOURCE})
    assert s3.keys_of(SOURCE) == (KEYS[0],)


def test_a_bucket_whose_server_is_killed_is_done_without(
    other: Store, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server answers the first request, then drops the connection in the middle of an answer."""
    listener = socket.create_server(("127.0.0.1", 0))

    def die() -> None:
        connection, _ = listener.accept()
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 206 Partial Content\r\nContent-Length: 5000\r\n\r\n{")
        listener.close()
        connection.close()

    threading.Thread(target=die, daemon=True).start()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{listener.getsockname()[1]}")
    remote = RemoteTier(f"s3://{bucket}/kernels", timeout=3.0)
    began = time.monotonic()
    built = Cache(other, remote=remote).load_or_build(KEYS[0], lambda: Artifact(b"built", {}))
    assert built.payload == b"built"
    assert time.monotonic() - began < 15
    assert remote.name in failed_tiers()


def forward(connection: socket.socket, server: socket.socket) -> None:
    """Pass a connection's requests on to the server."""
    with contextlib.suppress(OSError):
        while data := connection.recv(65536):
            server.sendall(data)
        server.shutdown(socket.SHUT_WR)


def cut(connection: socket.socket, answer: bytes) -> None:
    """Close the connection in the middle of an answer."""
    connection.sendall(answer[: len(answer) // 2])
    connection.shutdown(socket.SHUT_RDWR)


def slow(connection: socket.socket, answer: bytes) -> None:
    """Answer at a pace that would take minutes."""
    for byte in answer:
        connection.sendall(bytes([byte]))
        time.sleep(0.2)


def busy(connection: socket.socket, answer: bytes) -> None:
    connection.sendall(b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\n\r\n")


def honest(connection: socket.socket, answer: bytes) -> None:
    connection.sendall(answer)


Fault = Callable[[socket.socket, bytes], None]


@contextlib.contextmanager
def through(url: str, choose: Callable[[], Fault], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Route each answer of a server through a proxy that forwards it in some way."""

    def answer(connection: socket.socket) -> None:
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as server:
            threading.Thread(target=forward, args=(connection, server), daemon=True).start()
            while data := server.recv(1 << 20):
                choose()(connection, data)

    with listening(answer) as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        yield


@pytest.mark.parametrize("fault", [cut, slow, busy])
def test_a_bucket_whose_answers_are_faulty_costs_the_timeout_at_most(
    full: Store,
    other: Store,
    s3: RemoteTier,
    bucket: str,
    s3_server: str,
    monkeypatch: pytest.MonkeyPatch,
    fault: Fault,
) -> None:
    push(full, s3)
    with through(s3_server, lambda: fault, monkeypatch):
        remote = RemoteTier(f"s3://{bucket}/kernels", timeout=1.5)
        began = time.monotonic()
        built = Cache(other, remote=remote).load_or_build(KEYS[0], lambda: Artifact(b"built", {}))
        assert built.payload == b"built"
        assert time.monotonic() - began < 10
        assert remote.name in failed_tiers()
        with pytest.raises(RemoteError):
            pull(other, RemoteTier(f"s3://{bucket}/kernels", timeout=1.5))
    assert [other.load(key) for key in KEYS[1:]] == [None] * (len(KEYS) - 1)


def test_pulls_through_a_network_that_fails_now_and_then_bring_whole_entries_in_the_end(
    full: Store, other: Store, s3: RemoteTier, bucket: str, s3_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(full, s3)
    chance = random.Random(5)
    with through(s3_server, lambda: chance.choice((*[honest] * 8, cut, busy)), monkeypatch):
        for _ in range(20):
            with contextlib.suppress(RemoteError):
                pull(other, RemoteTier(f"s3://{bucket}/kernels", timeout=3.0))
            loaded = {key: found for key in KEYS if (found := other.load(key)) is not None}
            assert loaded == {key: artifact_of(key) for key in loaded}
            if len(loaded) == len(KEYS):
                break
    assert len(loaded) == len(KEYS)


FORKED = """
import os, sys
from jitnorm.cache import open_cache
cache = open_cache()
assert cache.load(sys.argv[1]) is not None
child = os.fork()
if child == 0:
    os._exit(0 if cache.remote.load(sys.argv[2]) is not None else 3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_child_of_a_fork_asks_for_itself(
    full: Store, tmp_path: Path, s3: RemoteTier, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(full, s3)
    monkeypatch.setenv("JITNORM_CACHE_DIR", str(tmp_path / "user"))
    monkeypatch.setenv("JITNORM_REMOTE_CACHE", f"s3://{bucket}/kernels")
    done = subprocess.run(
        [sys.executable, "-c", FORKED, *KEYS[:2]], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "0\n", done.stderr
