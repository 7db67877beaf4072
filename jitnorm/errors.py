"""Errors of the JIT manager; the cache and the toolchains define their own."""

from __future__ import annotations


class KernelNotReadyError(RuntimeError):
    """A kernel is not loaded yet, and loading it now would break the CUDA graph being captured."""


class KernelNotWarmError(RuntimeError):
    """A kernel or the launcher is in no tier of the cache, and JITNORM_JIT=deny forbids compiling it.

    Args:
        what: a kernel's configuration, or ``launcher``.
        target: the target it is needed for.
        command: the command that warms it.
    """

    def __init__(self, what: str, target: str, command: str) -> None:
        super().__init__(what, target, command)
        self.what, self.target, self.command = what, target, command

    def __str__(self) -> str:
        return (
            f"{self.what} for {self.target} is in no tier of the cache, and JITNORM_JIT is 'deny'; warm it where "
            f"compiling is allowed: {self.command}; or set JITNORM_JIT=auto"
        )


class CommError(RuntimeError):
    """A rank did not join a call, or made a different one; the workspace takes no calls until its `reset`.

    Args:
        rank: the rank that reports this.
        call: the index of the call since the workspace was created or reset, from 0.
        late: the ranks that did not arrive within the deadline.
        disagreeing: the ranks whose call differs in shape, dtype, format or number of earlier calls.
        deadline: the deadline of a wait, in seconds.
    """

    def __init__(
        self, rank: int, call: int, late: tuple[int, ...], disagreeing: tuple[int, ...], deadline: float
    ) -> None:
        super().__init__(rank, call, late, disagreeing, deadline)
        self.rank, self.call, self.late, self.disagreeing, self.deadline = rank, call, late, disagreeing, deadline

    def __str__(self) -> str:
        late = f"did not hear of ranks {list(self.late)} within {self.deadline:g} s" if self.late else ""
        other = (
            f"found ranks {list(self.disagreeing)} at a call of another shape, dtype, format or number"
            if self.disagreeing
            else ""
        )
        return (
            f"rank {self.rank}, in call {self.call}, {' and '.join(filter(None, (late, other)))}; what that call and "
            "later ones wrote is undefined: make the calls alike on all ranks, or restart those that ended, then call "
            "Workspace.reset() on all"
        )
