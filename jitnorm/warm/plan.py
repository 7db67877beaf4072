"""Jobs: kernels to be warmed, and which of them are there already."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.target import Target
from jitnorm.warm.entry import Entry


@dataclass(frozen=True)
class Job:
    """A kernel to be warmed."""

    config: KernelConfig
    target: Target

    def __str__(self) -> str:
        return f"{self.config} for {self.target}"


@dataclass(frozen=True)
class Outcome:
    """What became of a job.

    Attributes:
        job: the job.
        status: ``hit``, it was there; ``built``; ``failed``.
        seconds: how long it took.
        size: bytes of its payload; 0 if it failed.
        key: what it is stored under; empty if that is not known.
        error: what went wrong; empty if nothing did.
    """

    job: Job
    status: str
    seconds: float = 0.0
    size: int = 0
    key: str = ""
    error: str = ""


def jobs_of(entries: Iterable[Entry], targets: Sequence[Target]) -> list[Job]:
    """The jobs of entries, each once; those of a target stay together, since a worker knows its compiler then."""
    listed = list(entries)
    return list(
        dict.fromkeys(Job(config, target) for target in targets for entry in listed for config in entry.configs(target))
    )
