"""Web servers that stall, drip, lie, break off or send garbage: a lookup lasts the timeout at most."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable

from jitnorm.cache import Cache, Store
from jitnorm.cache.artifact import encode_manifest
from jitnorm.cache.remote import RemoteTier
from tcp_server import listening

from fire.corruption import damaged
from fire.trial import Trial, artifact_of, evil


def attack(trial: Trial) -> None:
    """A server that answers each request differently, asked for four artifacts by the tiers of four processes."""
    timeout, keys = trial.chance.uniform(0.2, 0.6), [trial.key() for _ in range(4)]
    chance = random.Random(trial.chance.getrandbits(32))

    def answer(connection: socket.socket) -> None:
        path = connection.recv(65536).split(b" ")[1].decode("latin-1")
        key = next((key for key in keys if key in path), keys[0])
        manifest = encode_manifest(key, artifact_of(key))
        body = manifest if path.endswith("manifest.json") else artifact_of(key).payload if "payload" in path else b""
        chance.choice(_ANSWERS)(connection, body, key, chance)

    with listening(answer) as port:
        for key in keys:
            remote = RemoteTier(f"http://127.0.0.1:{port}", timeout=timeout)
            trial.ask(Cache(Store(trial.root), remote=remote), key, bound=timeout)


Answer = Callable[[socket.socket, bytes, str, random.Random], None]


def _head(size: int, status: str = "200 OK", more: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {size}\r\nConnection: close\r\n{more}\r\n".encode()


def _honest(connection: socket.socket, body: bytes, key: str, chance: random.Random) -> None:
    connection.sendall(_head(len(body)) + body)


def _silent(connection: socket.socket, body: bytes, key: str, chance: random.Random) -> None:
    while connection.recv(65536):
        pass


def _dripping(connection: socket.socket, body: bytes, key: str, chance: random.Random) -> None:
    connection.sendall(_head(len(body)))
    for byte in body:
        connection.sendall(bytes([byte]))
        time.sleep(0.02)


def _breaking(connection: socket.socket, body: bytes, key: str, chance: random.Random) -> None:
    whole = _head(len(body)) + body
    connection.sendall(whole[: chance.randrange(len(whole))])


def _damaged(connection: socket.socket, body: bytes, key: str, chance: random.Random) -> None:
    changed = damaged(body, chance)
    connection.sendall(_head(len(changed)) + changed)


def _garbage(connection: socket.socket, body: bytes, key: str, chance: random.Random) -> None:
    connection.sendall(chance.randbytes(chance.randint(0, 2000)))


def _refusing(connection: socket.socket, body: bytes, key: str, chance: random.Random) -> None:
    connection.sendall(_head(0, chance.choice(["404 Not Found", "403 Forbidden", "500 Error", "503 Busy", "999 What"])))


def _boundless(connection: socket.socket, body: bytes, key: str, chance: random.Random) -> None:
    connection.sendall(_head(1 << chance.choice([31, 40, 62])))
    while True:
        connection.sendall(bytes(1 << 16))


def _circular(connection: socket.socket, body: bytes, key: str, chance: random.Random) -> None:
    connection.sendall(_head(0, "302 Found", "Location: /v1/again\r\n"))


def _exchanging(connection: socket.socket, body: bytes, key: str, chance: random.Random) -> None:
    """Another payload under the right manifest; without signatures, a whole other entry would be believed."""
    other = evil(key).payload if body == artifact_of(key).payload else body
    connection.sendall(_head(len(other)) + other)


_ANSWERS: tuple[Answer, ...] = (
    _honest, _honest, _silent, _dripping, _breaking, _damaged, _garbage, _refusing, _boundless, _circular, _exchanging,
)  # fmt: skip
