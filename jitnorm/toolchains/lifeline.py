"""Lifelines: what is started ends with the process that started it, however that ends.

A group of processes holds one end of a pipe, its starter the other. The kernel kills the group when the starter's end
closes, which it does with the starter at the latest. A parent-death signal would not reach the children of a compiler,
and would come when the thread that started it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal


class Lifeline:
    """A lifeline of one group of processes.

    Attributes:
        end: the descriptor that the group has to hold; start it with ``pass_fds``.
    """

    def __init__(self) -> None:
        self.end, self._own_end = os.pipe()
        _lifelines.add(self)

    def tie(self, group: int) -> None:
        """Have a process group, which has been started and holds the end, killed once this process ends."""
        # Not where the kernel has no such signals; and a group that has ended needs none.
        with contextlib.suppress(OSError):
            fcntl.fcntl(self.end, fcntl.F_SETSIG, signal.SIGKILL)
            fcntl.fcntl(self.end, fcntl.F_SETOWN, -group)
            fcntl.fcntl(self.end, fcntl.F_SETFL, os.O_ASYNC)

    def close(self) -> None:
        """Kill what is left of the group."""
        if self in _lifelines:
            _lifelines.remove(self)
            os.close(self.end)
            os.close(self._own_end)


_lifelines: set[Lifeline] = set()


def _after_fork() -> None:
    """Leave the lifelines to the parent: what it started is not to live as long as its children."""
    for lifeline in tuple(_lifelines):
        lifeline.close()


os.register_at_fork(after_in_child=_after_fork)
