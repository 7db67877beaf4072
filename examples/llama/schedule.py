"""Which cells are prepared when: the longest first, as many at once as fit into the memory of a GPU."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Task:
    """A cell, as far as its preparation matters.

    Attributes:
        cell: its number.
        seconds: how long it takes, roughly.
        bytes: the GPU's memory that it needs.
        measuring: the memory that its measurement needs.
    """

    cell: int
    seconds: float = 0
    bytes: int = 0
    measuring: int = 0


class Schedule:
    """The cells of a GPU that wait, and the memory of those that have begun.

    Args:
        tasks: all cells.
        free: bytes of memory that there are for them.
    """

    def __init__(self, tasks: Iterable[Task], free: int) -> None:
        self.free = free
        self.waiting = sorted(tasks, key=lambda task: (-task.seconds, -task.bytes))
        self._begun: dict[int, Task] = {}

    @property
    def left(self) -> int:
        """Bytes that nothing uses."""
        return self.free - sum(task.bytes for task in self._begun.values())

    def begin(self) -> Task | None:
        """The next cell, whose memory it has from now on; None if none fits. One that never will has the GPU alone."""
        for task in self.waiting:
            if task.bytes <= self.left or not self._begun:
                self.waiting.remove(task)
                self._begun[task.cell] = task
                return task
        return None

    def end(self, cell: int) -> Task:
        """A cell that has begun gives its memory back."""
        return self._begun.pop(cell)

    def has_room_to_measure(self, task: Task) -> bool:
        """Whether a cell can be measured beside those that have begun."""
        return task.measuring <= self.left or not self._begun

    def repeat(self, task: Task) -> None:
        """Have a cell wait again, behind all others."""
        self.waiting.append(task)

    def alone(self, task: Task) -> Task | None:
        """The same cell with all memory; None if it has had that."""
        return None if task.bytes >= self.free else replace(task, bytes=self.free)
