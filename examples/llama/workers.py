"""Processes that prepare cells on a GPU, as many at once as its memory allows, and then measure them one at a time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from queue import Empty, Queue
from threading import Thread
from typing import Any, TextIO

import torch

from llama.measure import Around, Bench, Cell, Row, freed
from llama.schedule import Schedule, Task

Message = dict[str, Any]
Results = Iterator[tuple[int, Row | str]]
"""Of cells by their numbers what was measured, or why nothing was."""

_OUT_OF_TIME, _ENDED, _OUT_OF_MEMORY = "out of time", "the process ended", "out of memory"
_FOR_PREPARATION = 0.55  # of the time that is left; then what is prepared is measured
_FOR_A_MEASUREMENT = 60.0  # seconds at the most
_GIB = 1 << 30


class Worker:
    """A process that takes cells.

    Args:
        arguments: of the command that it runs.
        environment: variables besides those of this process.
        messages: where what it says goes, with itself; None says that it has ended.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        messages: Queue[tuple[Worker, Message | None]],
    ) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "llama", *arguments, "--serve"],
            env={**os.environ, **environment}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        Thread(target=self._listen, args=(messages,), daemon=True).start()

    def ask(self, **request: Any) -> None:
        """Ask for something, as `serve` takes it."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has said that it ended
            print(json.dumps(request), file=self._process.stdin, flush=True)

    def pause(self) -> None:
        """Stop the process for a while."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Continue the process."""
        self._process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()

    def _listen(self, messages: Queue[tuple[Worker, Message | None]]) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            messages.put((self, json.loads(line)))
        messages.put((self, None))


class Crew:
    """The workers of a GPU.

    Args:
        arguments: of the command that they run.
        cells: all cells by their numbers, the most important first.
        schedule: of those that are missing.
        count: how many workers there are.
        environment: variables of theirs.
        say: takes a line for each cell that is prepared.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        cells: Sequence[Cell],
        schedule: Schedule,
        count: int,
        environment: Mapping[str, str],
        say: Callable[[str], None],
    ) -> None:
        self._cells, self._schedule, self._say, self._begun = cells, schedule, say, time.monotonic()
        self._messages: Queue[tuple[Worker, Message | None]] = Queue()
        self._all = [Worker(arguments, environment, self._messages) for _ in range(count)]
        self._idle = list(self._all)
        self._busy: dict[Worker, Task] = {}
        self._prepared: dict[int, tuple[Worker, Task]] = {}
        self._around: dict[tuple[object, object], list[float | None]] = {}

    def results(self, seconds: float) -> Results:
        """Measure the cells; those that have not come to an end after so many seconds are out of time."""
        end = time.monotonic() + seconds
        try:
            while (self._schedule.waiting or self._busy or self._prepared) and time.monotonic() < end:
                now = time.monotonic()
                yield from self._prepare(now + _FOR_PREPARATION * (end - now))
                yield from self._measure(end)
            yield from ((cell, _OUT_OF_TIME) for cell in self._left())
        finally:
            for worker in self._all:
                worker.end()

    def _left(self) -> list[int]:
        tasks = [*self._schedule.waiting, *self._busy.values(), *(task for _, task in self._prepared.values())]
        return sorted(task.cell for task in tasks)

    def _prepare(self, until: float) -> Results:
        """Have cells prepared, until all are or the time has come; those that fail are results."""
        while True:
            self._begin()
            if not self._busy or time.monotonic() >= until:
                break
            yield from self._heard(until)
        if not self._busy and not self._idle:  # all workers have ended
            while self._schedule.waiting:
                yield self._schedule.waiting.pop(0).cell, _ENDED

    def _begin(self) -> None:
        """Give cells to workers that have none."""
        while self._idle and (task := self._schedule.begin()):
            worker = self._idle.pop(0)
            self._busy[worker] = task
            worker.ask(prepare=task.cell, bytes=task.bytes)

    def _heard(self, until: float) -> Results:
        """What comes of the next thing that a worker says while cells are prepared, if one says something in time."""
        try:
            worker, message = self._messages.get(timeout=max(0.0, until - time.monotonic()))
        except Empty:
            return
        task = self._busy.pop(worker, None)
        if task is not None:
            self._schedule.end(task.cell)
        if message is None:
            self._without(worker)
            if task is not None:
                yield task.cell, _ENDED
            return
        assert task is not None
        self._idle.append(worker)
        reason = message.get("failed")
        again = self._schedule.alone(task) if reason and _OUT_OF_MEMORY in reason else None
        if again is not None:
            self._schedule.repeat(again)
        elif reason:
            yield task.cell, reason
        else:
            self._prepared[task.cell] = worker, task
            name, after = " ".join(map(str, self._cells[task.cell].key)), time.monotonic() - self._begun
            memory = f"{message['held'] / _GIB:.1f} of {task.bytes / _GIB:.1f} GiB"
            self._say(f"prepared after {after:.0f} s, in {memory}: {name}")

    def _without(self, worker: Worker) -> None:
        """Go on without a worker that has ended; what it had prepared is prepared again."""
        self._idle = [each for each in self._idle if each is not worker]
        for cell, (owner, task) in list(self._prepared.items()):
            if owner is worker:
                del self._prepared[cell]
                self._schedule.repeat(task)

    def _measure(self, end: float) -> Results:
        """Measure the cells that are prepared, while workers that prepare others pause."""
        for worker in self._busy:
            worker.pause()
        for cell in sorted(self._prepared):
            if cell not in self._prepared or time.monotonic() >= end:
                continue
            worker, task = self._prepared[cell]
            if worker in self._idle and self._schedule.has_room_to_measure(task):
                del self._prepared[cell]
                found = self._answer(worker, cell, end)
                yield cell, found
        for worker in self._busy:
            worker.go_on()

    def _answer(self, worker: Worker, cell: int, end: float) -> Row | str:
        """What comes of asking for a cell; a worker that does not answer in time is ended."""
        case, end = self._cells[cell][:2], min(end, time.monotonic() + _FOR_A_MEASUREMENT)
        worker.ask(measure=cell, around=self._around.get(case))
        others = []
        try:
            while True:
                speaker, message = self._messages.get(timeout=max(0.0, end - time.monotonic()))
                if speaker is not worker:  # said before it paused
                    others.append((speaker, message))
                    continue
                if message is None:
                    self._without(worker)
                    return _ENDED
                if "row" not in message:
                    return str(message["failed"])
                self._around[case] = message["around"]
                return Row(**message["row"])
        except Empty:
            worker.end()
            self._without(worker)
            return _OUT_OF_TIME
        finally:
            for each in others:
                self._messages.put(each)


def environment_of(gpu: int, workers: int) -> dict[str, str]:
    """The variables of a GPU's workers: that GPU alone, and no more threads than there are processors."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    threads = max(1, (os.cpu_count() or 1) // (2 * workers))
    return {
        "CUDA_VISIBLE_DEVICES": visible.split(",")[gpu] if visible else str(gpu),
        "TORCHINDUCTOR_COMPILE_THREADS": str(threads), "OMP_NUM_THREADS": str(threads),
    }  # fmt: skip


def measured_here(bench: Bench, cells: Sequence[Cell], numbers: Iterable[int], seconds: float) -> Results:
    """Measure cells in this process, one after another."""
    end = time.monotonic() + seconds
    for number in numbers:
        if time.monotonic() > end:
            yield number, _OUT_OF_TIME
            continue
        reason = attempted(bench.prepare, cells[number])
        freed(bench.device)
        found = reason if isinstance(reason, str) else attempted(bench.measure, cells[number])
        freed(bench.device)
        yield number, found


def attempted(step: Callable[[Cell], Any], cell: Cell) -> Any:
    """What a step gives, or the first sentence of an exception: libraries may fail, in some arms alone."""
    try:
        with torch.no_grad():
            return step(cell)
    except Exception as error:
        first_sentence = str(error).strip().partition("\n")[0].partition(". ")[0]
        return f"{type(error).__name__}: {first_sentence}"


def serve(bench: Bench, cells: Sequence[Cell], requests: TextIO, answers: TextIO) -> None:
    """Do what a crew asks for, as a worker does: prepare a cell with so many bytes, or measure one."""
    for line in requests:
        answer = _served(bench, cells, json.loads(line))
        freed(bench.device)  # also what an exception held
        print(json.dumps(answer), file=answers, flush=True)


def _served(bench: Bench, cells: Sequence[Cell], request: Message) -> Message:
    if "prepare" in request:
        bench.limit(request["bytes"])
        reason = attempted(bench.prepare, cells[request["prepare"]])
        return {"failed": reason} if reason else {"held": bench.held}
    cell = cells[request["measure"]]
    case = cell.shape, cell.case
    if request["around"]:
        bench.around[case] = Around(*request["around"])
    bench.limit(None)
    found = attempted(bench.measure, cell)
    return {"failed": found} if isinstance(found, str) else {"row": asdict(found), "around": bench.around[case]}
