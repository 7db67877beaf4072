"""Worker processes, which build one kernel at a time and fail independently."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Generator, Sequence
from time import monotonic

from jitnorm.toolchains.lifeline import Lifeline
from jitnorm.warm.plan import Job, Outcome
from jitnorm.warm.worker import PROGRAM, read_outcome, write_job

SECONDS_PER_KERNEL = 900.0
_GRACE = 2.0  # seconds that a worker has to exit by itself
_CHUNK = 1 << 16
_TAIL = 2000  # characters of a dead worker's output that are shown


def run(
    jobs: Sequence[Job], count: int, backend: str = "auto", seconds: float = SECONDS_PER_KERNEL
) -> Generator[Outcome, None, None]:
    """Build kernels in `count` processes, and yield outcomes as they become known.

    A job whose worker dies, or takes longer than `seconds`, is retried once at the end, alone. Closing the iterator
    kills the workers: published kernels stay, unfinished ones are lost.

    Args:
        jobs: the kernels to build.
        count: number of processes.
        backend: see `jitnorm.toolchains.select`.
        seconds: time limit for one kernel.
    """
    with contextlib.closing(_Pool(backend, seconds)) as pool:
        lost = yield from pool.work(deque(jobs), count)
        for job, _ in lost:
            for again, reason in (yield from pool.work(deque([job]), 1)):
                yield Outcome(again, "failed", error=f"{reason}, twice; the second time alone")
        pool.finish()


class _Worker:
    """A worker process and its current job."""

    def __init__(self) -> None:
        self.said = tempfile.TemporaryFile()  # noqa: SIM115 - closed by kill
        self._lifeline = Lifeline()
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.said,
            # This is an explicit order to build, so JITNORM_JIT=deny does not apply.
            env={**os.environ, "JITNORM_JIT": "auto"},
            # The parent handles interrupts from the terminal.
            start_new_session=True,
            pass_fds=(self._lifeline.end,),
        )
        self._lifeline.tie(self.process.pid)
        self.job: Job | None = None
        self.deadline = 0.0
        self._received = b""

    @property
    def output(self) -> int:
        """The descriptor that outcomes arrive on."""
        assert self.process.stdout
        return self.process.stdout.fileno()

    def give(self, job: Job, backend: str, seconds: float) -> None:
        """Send a job; if the worker is already dead, its output has ended."""
        assert self.process.stdin
        self.job, self.deadline = job, monotonic() + seconds
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(write_job(job, backend).encode() + b"\n")
            self.process.stdin.flush()

    def take(self) -> bytes | None:
        """Read its output once it is a whole line, empty until then; None if the worker died."""
        chunk = os.read(self.output, _CHUNK)
        if not chunk:
            return None
        self._received += chunk
        if not self._received.endswith(b"\n"):
            return b""
        line, self._received = self._received, b""
        return line

    def dismiss(self) -> None:
        """Signal that no more jobs will come."""
        assert self.process.stdin
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()

    def interrupt(self) -> None:
        """Interrupt the worker and its compiler; NVRTC finishes its kernel first."""
        self.process.send_signal(signal.SIGINT)

    def kill(self) -> str:
        """Kill the worker; return how it ended, and the end of its output."""
        self.interrupt()
        try:
            status = self.process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        self._lifeline.close()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                with contextlib.suppress(OSError):
                    pipe.close()
        self.said.seek(0)
        said = self.said.read().decode(errors="replace").strip()[-_TAIL:]
        self.said.close()
        ended = f"by signal {-status}" if status < 0 else f"with exit status {status}"
        return f"{ended}: {said}" if said else ended


class _Pool:
    """A pool of workers."""

    def __init__(self, backend: str, seconds: float) -> None:
        self._backend, self._seconds = backend, seconds
        self._idle: list[_Worker] = []
        self._busy: list[_Worker] = []

    def finish(self) -> None:
        """Let all workers exit by themselves, so that they finish publishing in the background."""
        for worker in self._idle:
            worker.dismiss()
        limit = monotonic() + self._seconds
        for worker in self._idle:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.process.wait(max(0.0, limit - monotonic()))

    def close(self) -> None:
        """Kill all workers."""
        for worker in self._idle + self._busy:
            worker.interrupt()
        for worker in self._idle + self._busy:
            worker.kill()
        self._idle, self._busy = [], []

    def work(self, queue: deque[Job], count: int) -> Generator[Outcome, None, list[tuple[Job, str]]]:
        """Process the queue; return the jobs whose workers died, with the reasons."""
        lost: list[tuple[Job, str]] = []
        while queue or self._busy:
            while queue and len(self._busy) < count:
                worker = self._idle.pop() if self._idle else _Worker()
                self._busy.append(worker)
                worker.give(queue.popleft(), self._backend, self._seconds)
            for worker in self._ready():
                line = worker.take() if worker.deadline > monotonic() else None
                if line == b"":
                    continue
                self._busy.remove(worker)
                assert worker.job
                if line is None:
                    is_late = worker.deadline <= monotonic()
                    how = worker.kill()
                    late = f"took longer than {self._seconds:g} s and was killed"
                    lost.append((worker.job, f"its worker {late if is_late else 'ended ' + how}"))
                else:
                    self._idle.append(worker)
                    yield read_outcome(worker.job, line)
        return lost

    def _ready(self) -> list[_Worker]:
        """Workers that have output, have ended or are late."""
        with selectors.DefaultSelector() as selector:
            for worker in self._busy:
                selector.register(worker.output, selectors.EVENT_READ, worker)
            patience = max(0.0, min(worker.deadline for worker in self._busy) - monotonic())
            heard = [key.data for key, _ in selector.select(patience)]
        return [worker for worker in self._busy if worker in heard or worker.deadline <= monotonic()]
