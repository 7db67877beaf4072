"""A server of raw bytes, for behavior that no proper server shows."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

Answer = Callable[[socket.socket], None]


@contextlib.contextmanager
def listening(answer: Answer) -> Iterator[int]:
    """Answer each connection to a local port in a separate thread, then close it; return the port."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            answer(connection)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def say_nothing(connection: socket.socket) -> None:
    """Never answer; wait until the other side closes the connection."""
    while connection.recv(65536):
        pass


def unused_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port: int = unused.getsockname()[1]
        return port
