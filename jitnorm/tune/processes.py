"""Runs a function on ranks that are processes, for a limited time, after which none is left."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any


@dataclass
class Exchange:
    """An all-gather of bytes by files in a folder; an error if a rank does not join within `seconds`."""

    folder: Path
    rank: int
    ranks: int
    seconds: float
    rounds: int = 0

    def __call__(self, data: bytes) -> list[bytes]:
        """The bytes of all ranks, in their order."""
        self.rounds += 1
        own = self._path(self.rank)
        partial = own.with_suffix(".part")
        partial.write_bytes(data)
        partial.rename(own)
        end = time.monotonic() + self.seconds
        return [self._await(rank, end) for rank in range(self.ranks)]

    def _path(self, rank: int) -> Path:
        return self.folder / f"{self.rounds}-{rank}"

    def _await(self, rank: int, end: float) -> bytes:
        path = self._path(rank)
        while not path.exists():
            if time.monotonic() > end:
                raise TimeoutError(f"rank {rank} did not come to exchange {self.rounds} within {self.seconds:g} s")
            time.sleep(2e-4)
        return path.read_bytes()


@dataclass(frozen=True)
class Outcome:
    """The value that a rank's function returned; or why there is none."""

    value: Any = None
    error: str = ""


def run_ranks(ranks: int, function: Callable[..., Any], *arguments: Any, seconds: float) -> list[Outcome]:
    """Call function(exchange, *arguments) on each rank. Those that take longer than `seconds` are killed."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="jitnorm-ranks-") as folder:
        started = []
        for rank in range(ranks):
            receiver, sender = context.Pipe(duplex=False)
            exchange = Exchange(Path(folder), rank, ranks, seconds)
            process = context.Process(target=_run, args=(sender, function, exchange, arguments), daemon=True)
            process.start()
            sender.close()  # so that the end of the process is noticed here
            started.append((process, receiver))
        end = time.monotonic() + seconds
        try:
            return [_outcome(receiver, end, seconds) for _, receiver in started]
        finally:
            for process, _ in started:
                process.kill()
                process.join()


def _run(sender: Connection, function: Callable[..., Any], exchange: Exchange, arguments: tuple[Any, ...]) -> None:
    try:
        sender.send(Outcome(function(exchange, *arguments)))
    except Exception:
        sender.send(Outcome(error=traceback.format_exc()))


def _outcome(receiver: Connection, end: float, seconds: float) -> Outcome:
    if not receiver.poll(max(0.0, end - time.monotonic())):
        return Outcome(error=f"took longer than {seconds:g} s")
    try:
        outcome: Outcome = receiver.recv()
    except EOFError:
        return Outcome(error="died")
    return outcome
