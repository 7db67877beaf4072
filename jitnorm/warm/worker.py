"""A worker process: reads jobs from its standard input, a JSON object a line, and writes outcomes likewise."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from typing import Any

from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.target import Target
from jitnorm.warm.plan import Job, Outcome

# What a new interpreter runs to become a worker: its modules are found where its parent's are.
PROGRAM = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from jitnorm.warm.worker import main; main()"


def main() -> None:
    """Work until the standard input ends, which it does when the parent dies, or until interrupted."""
    # A shell has its background jobs ignore it, which workers inherit; the parent interrupts them by it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Compilers and libraries may print: only outcomes are to reach the parent.
    with contextlib.suppress(KeyboardInterrupt), os.fdopen(os.dup(1), "w", encoding="utf-8") as results:
        os.dup2(2, 1)
        from jitnorm.store import user_cache
        from jitnorm.warm.build import build

        for line in sys.stdin:
            asked = json.loads(line)
            outcome = build(read_job(asked), user_cache(), asked["backend"])
            results.write(write_outcome(outcome) + "\n")
            results.flush()


def write_job(job: Job, backend: str) -> str:
    """A job as a worker reads it."""
    return json.dumps({"config": str(job.config), "target": str(job.target), "backend": backend})


def read_job(asked: dict[str, Any]) -> Job:
    """The job that was written."""
    return Job(KernelConfig.parse(asked["config"]), Target(asked["target"]))


def write_outcome(outcome: Outcome) -> str:
    """What became of the job, without the job: its parent knows it."""
    return json.dumps([outcome.status, outcome.seconds, outcome.size, outcome.key, outcome.error])


def read_outcome(job: Job, line: str | bytes) -> Outcome:
    """The outcome that was written."""
    return Outcome(job, *json.loads(line))
