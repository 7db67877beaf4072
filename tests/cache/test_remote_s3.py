"""Remote tiers in S3, by a server on this machine: push, pull, tampering, and a server that dies."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from jitnorm.cache import Artifact, Cache, Store, failed_tiers
from jitnorm.cache.remote import RemoteTier
from jitnorm.cache.transfer import pull, push
from remote_entries import KEYS, LIMIT, SOURCE, artifact_of


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
    """It answers the first request, then takes the connection down in the middle of an answer."""
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
