"""Lifelines kill a process group when the process that started it ends, however that happens.

The group holds one end of a pipe, its starter the other. The kernel kills the group when the starter's end closes, at
the latest when the starter ends. A parent-death signal would not reach a compiler's children, and would fire when the
starting thread ends. The kernel can only be told of a group that exists, so a group outlives a starter that is killed
after starting it but before `Lifeline.tie`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal


class Lifeline:
    """A lifeline of one process group.

    Attributes:
        end: the descriptor that the group must hold; pass it on with ``pass_fds``.
    """

    def __init__(self) -> None:
        self.end, self._own_end = os.pipe()
        _lifelines.add(self)

    def tie(self, group: int) -> None:
        """Make the kernel kill a process group that holds the end when this process ends."""
        # Fails if the kernel lacks such signals, or if the group has ended and needs none.
        with contextlib.suppress(OSError):
            fcntl.fcntl(self.end, fcntl.F_SETSIG, signal.SIGKILL)
            fcntl.fcntl(self.end, fcntl.F_SETOWN, -group)
            fcntl.fcntl(self.end, fcntl.F_SETFL, os.O_ASYNC)

    def close(self) -> None:
        """Kill the rest of the group."""
        if self in _lifelines:
            _lifelines.remove(self)
            os.close(self.end)
            os.close(self._own_end)


_lifelines: set[Lifeline] = set()


def _after_fork() -> None:
    """Leave the lifelines to the parent: groups must not outlive it with its children."""
    for lifeline in tuple(_lifelines):
        lifeline.close()


os.register_at_fork(after_in_child=_after_fork)
