"""A worker process: reads jobs from stdin, one JSON object per line, and writes outcomes to stdout likewise."""

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

# The program of a worker's interpreter, which finds modules where its parent does.
PROGRAM = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from jitnorm.warm.worker import main; main()"


def main() -> None:
    """Work until stdin ends, at the latest when the parent dies, or until interrupted."""
    # Shells make background jobs ignore this signal, which workers inherit; but the parent interrupts them with it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Compilers and libraries may print, but only outcomes may reach the parent.
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
    """Encode a job for a worker."""
    return json.dumps({"config": str(job.config), "target": str(job.target), "backend": backend})


def read_job(asked: dict[str, Any]) -> Job:
    """Decode a job."""
    return Job(KernelConfig.parse(asked["config"]), Target(asked["target"]))


def write_outcome(outcome: Outcome) -> str:
    """Encode the outcome of a job without the job, which the parent knows."""
    return json.dumps([outcome.status, outcome.seconds, outcome.size, outcome.key, outcome.error])


def read_outcome(job: Job, line: str | bytes) -> Outcome:
    """Decode an outcome."""
    return Outcome(job, *json.loads(line))
