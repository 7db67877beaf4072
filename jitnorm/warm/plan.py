"""Jobs, the kernels to warm, and their outcomes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.target import Target
from jitnorm.warm.entry import Entry


@dataclass(frozen=True)
class Job:
    """A kernel to warm."""

    config: KernelConfig
    target: Target

    def __str__(self) -> str:
        return f"{self.config} for {self.target}"


@dataclass(frozen=True)
class Outcome:
    """The outcome of a job.

    Attributes:
        job: the job.
        status: ``hit``, if it was cached; ``built``; or ``failed``.
        seconds: the time it took.
        size: bytes of its payload; 0 if it failed.
        key: its cache key; empty if unknown.
        error: what went wrong; empty on success.
    """

    job: Job
    status: str
    seconds: float = 0.0
    size: int = 0
    key: str = ""
    error: str = ""


def jobs_of(entries: Iterable[Entry], targets: Sequence[Target]) -> list[Job]:
    """The distinct jobs of entries, grouped by target, so that workers can reuse a loaded compiler."""
    listed = list(entries)
    return list(
        dict.fromkeys(Job(config, target) for target in targets for entry in listed for config in entry.configs(target))
    )
