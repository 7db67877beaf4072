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
