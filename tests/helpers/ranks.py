"""Ranks of a tensor-parallel group as processes that can exchange bytes with each other."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

Exchange = Callable[[bytes], list[bytes]]
# Longer than any deadline of a test: a test that hangs fails.
_PATIENCE = 60.0


class Processes:
    """Ranks as processes that run work(rank, exchange, *arguments), a function of a module."""

    def __init__(self, ranks: int, work: Callable[..., Any], *arguments: Any) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["numpy", "jitnorm.comm"])
        links: list[list[Any]] = [[None] * ranks for _ in range(ranks)]
        for i in range(ranks):
            for j in range(i):
                links[i][j], links[j][i] = context.Pipe()
        self.results: list[Connection] = []
        self.ranks = []
        for rank in range(ranks):
            result, out = context.Pipe(duplex=False)
            self.results.append(result)
            process = context.Process(target=_run, args=(rank, links[rank], out, work, arguments), daemon=True)
            process.start()
            self.ranks.append(process)
            out.close()

    def result(self, rank: int) -> Any:
        """The result of `work` on a rank; RuntimeError if it raised something or ended silently."""
        if not self.results[rank].poll(_PATIENCE):
            raise RuntimeError(f"rank {rank} does not end")
        try:
            is_good, value = self.results[rank].recv()
        except EOFError:
            raise RuntimeError(f"rank {rank} ended") from None
        if not is_good:
            raise RuntimeError(f"rank {rank}: {value}")
        return value

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.ranks:
            process.kill()
            process.join()


def _run(rank: int, links: list[Any], out: Connection, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    def exchange(own: bytes) -> list[bytes]:
        others = [link for link in links if link is not None]
        for link in others:
            link.send_bytes(own)
        return [own if link is None else link.recv_bytes() for link in links]

    try:
        out.send((True, work(rank, exchange, *arguments)))
    except Exception as error:
        out.send((False, f"{type(error).__name__}: {error}"))
