"""Processes that each prepare some cells of a model, all at once, and then measure them, one at a time on a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from queue import Empty, Queue
from threading import Thread
from typing import Any, TextIO

import torch

from llama.measure import Bench, Cell, Row

Message = dict[str, Any]
Results = Iterator[tuple[int, Row | str]]
"""Of cells by their numbers what was measured, or why nothing was."""

_OUT_OF_TIME, _ENDED, _OUT_OF_MEMORY = "out of time", "the process ended", "out of memory"
_FOR_PREPARATION = 0.65  # of the time


class Worker:
    """A process with some of the cells.

    Args:
        arguments: of the command that it runs.
        cells: the numbers of its cells.
        environment: variables besides those of this process.
        messages: where what it says goes, with itself.
    """

    def __init__(
        self, arguments: Sequence[str], cells: Sequence[int], environment: dict[str, str], messages: Queue[Message]
    ) -> None:
        self.cells = cells
        self._process = subprocess.Popen(
            [sys.executable, "-m", "llama", *arguments, "--cells", ",".join(map(str, cells))],
            env={**os.environ, **environment}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        Thread(target=self._listen, args=(messages,), daemon=True).start()

    def ask(self, cell: int) -> None:
        """Ask for a cell's measurement."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has said that it ended
            print(cell, file=self._process.stdin, flush=True)

    @property
    def has_ended(self) -> bool:
        """Whether the process has."""
        return self._process.poll() is not None

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()

    def _listen(self, messages: Queue[Message]) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            messages.put(json.loads(line))
        for cell in self.cells:  # those that it has not spoken of will not come
            messages.put({"cell": cell, "failed": _ENDED})


def measured_by_workers(
    arguments: Sequence[str], cells: Sequence[int], workers: int, environment: dict[str, str], seconds: float
) -> Results:
    """Measure cells; those for which so many processes have no memory, last, by a quarter as many.

    Args:
        arguments: of the command, for one model.
        cells: their numbers, the most important first.
        workers: how many processes there are.
        environment: variables of theirs.
        seconds: when all is over.
    """
    end = time.monotonic() + seconds
    messages: Queue[Message] = Queue()
    groups = [cells[i::workers] for i in range(min(workers, len(cells)))]
    started = [Worker(arguments, group, environment, messages) for group in groups]
    owners = {cell: worker for worker in started for cell in worker.cells}
    try:
        states = _prepared(cells, messages, time.monotonic() + _FOR_PREPARATION * seconds)
        for worker in started:
            if any(cell not in states for cell in worker.cells):
                worker.end()  # it would disturb the others
                states.update(dict.fromkeys(worker.cells, _OUT_OF_TIME))
        scarce = [cell for cell in cells if _OUT_OF_MEMORY in states[cell] and workers > 1]
        for cell in cells:
            if cell not in scarce:
                yield cell, states[cell] or _answer(cell, owners[cell], messages, end)
    finally:
        for worker in started:
            worker.end()
    if scarce:
        yield from measured_by_workers(arguments, scarce, max(1, workers // 4), environment, end - time.monotonic())


def _prepared(cells: Sequence[int], messages: Queue[Message], end: float) -> dict[int, str]:
    """Of each cell that has come to an end, why it cannot be measured; an empty text if it can."""
    states: dict[int, str] = {}
    while len(states) < len(cells):
        try:
            message = messages.get(timeout=max(0.0, end - time.monotonic()))
        except Empty:
            break
        states.setdefault(message["cell"], message.get("failed", ""))
    return states


def _answer(cell: int, worker: Worker, messages: Queue[Message], end: float) -> Row | str:
    """What comes of asking for a cell; a worker that has not answered by the end is ended."""
    worker.ask(cell)
    while time.monotonic() < end and not worker.has_ended:
        with suppress(Empty):
            message = messages.get(timeout=0.2)
            if message["cell"] == cell:
                return Row(**message["row"]) if "row" in message else str(message["failed"])
    worker.end()
    return _OUT_OF_TIME if time.monotonic() >= end else _ENDED


def environment_of(gpu: int, workers: int) -> dict[str, str]:
    """The variables of a GPU's workers: that GPU alone, and no more threads than there are processors."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    threads = max(1, (os.cpu_count() or 1) // (2 * workers))
    return {
        "CUDA_VISIBLE_DEVICES": visible.split(",")[gpu] if visible else str(gpu),
        "TORCHINDUCTOR_COMPILE_THREADS": str(threads), "OMP_NUM_THREADS": str(threads),
    }  # fmt: skip


def measured_here(bench: Bench, cells: Mapping[int, Cell], seconds: float) -> Results:
    """Measure cells in this process, one after another."""
    end = time.monotonic() + seconds
    for number, cell in cells.items():
        if time.monotonic() > end:
            yield number, _OUT_OF_TIME
            continue
        reason = attempted(bench.prepare, cell)
        yield number, reason if isinstance(reason, str) else attempted(bench.measure, cell)


def attempted(step: Callable[[Cell], Any], cell: Cell) -> Any:
    """What a step gives, or the first sentence of an exception: libraries may fail, in some arms alone."""
    try:
        with torch.no_grad():
            return step(cell)
    except Exception as error:
        first_sentence = str(error).strip().partition("\n")[0].partition(". ")[0]
        return f"{type(error).__name__}: {first_sentence}"


def serve(bench: Bench, cells: Mapping[int, Cell], requests: TextIO, answers: TextIO) -> None:
    """Prepare cells, then measure those that are asked for, as a worker does."""

    def say(number: int, **message: Any) -> None:
        print(json.dumps({"cell": number, **message}), file=answers, flush=True)

    for number, cell in cells.items():
        reason = attempted(bench.prepare, cell)
        say(number, **({"failed": reason} if reason else {}))
    for line in requests:
        number = int(line)
        found = attempted(bench.measure, cells[number])
        say(number, **({"failed": found} if isinstance(found, str) else {"row": asdict(found)}))
