"""Reads blocks of a file, processes them in several threads and writes the results, in constant memory."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from jitnorm.checkpoint.stored import BITS, StoredTensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK_BYTES = 8 << 20
_WRITES_WAITING = 2
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Block:
    """Some bytes of a tensor.

    Attributes:
        tensor: the tensor.
        first: the first row, for a matrix that is divided by rows; otherwise 0.
        begin: the position of the first byte within the tensor.
        size: the number of bytes.
    """

    tensor: StoredTensor
    first: int
    begin: int
    size: int

    def read(self, descriptor: int) -> NDArray[np.uint8]:
        """Read the block from its file.

        Raises:
            OSError: the file is too short.
        """
        data = np.empty(self.size, np.uint8)
        done = 0
        while done < self.size:
            count = os.preadv(descriptor, [data[done:].data], self.tensor.begin + self.begin + done)
            if count == 0:
                raise OSError(
                    f"in: the file of {self.tensor.name} has become shorter; restore it, and repeat the command"
                )
            done += count
        return data


def blocks_of_rows(tensor: StoredTensor, multiple: int) -> Iterator[Block]:
    """Divide a matrix by rows, into blocks of a multiple of some number of rows."""
    rows, columns = tensor.shape
    row_bytes = columns * BITS[tensor.dtype] // 8
    count = max(1, BLOCK_BYTES // (row_bytes * multiple)) * multiple
    for first in range(0, rows, count):
        yield Block(tensor, first, first * row_bytes, min(count, rows - first) * row_bytes)


def blocks_of_bytes(tensor: StoredTensor) -> Iterator[Block]:
    """Divide a tensor that is copied."""
    for begin in range(0, tensor.size, BLOCK_BYTES):
        yield Block(tensor, 0, begin, min(BLOCK_BYTES, tensor.size - begin))


def flow(
    items: Iterable[Item], work: Callable[[Item], Result], write: Callable[[Result], int], threads: int
) -> Generator[int, None, None]:
    """Yield what `write` returns of each item, in order.

    This thread takes the items, `threads` others process them and one more writes them; at most `threads` + 4 are held
    at once.
    """
    with contextlib.ExitStack() as stack:
        workers = stack.enter_context(ThreadPoolExecutor(threads))
        writer = stack.enter_context(ThreadPoolExecutor(1))
        working: deque[Future[Result]] = deque()
        writing: deque[Future[int]] = deque()
        for item in items:
            working.append(workers.submit(work, item))
            if len(working) > threads:
                writing.append(writer.submit(write, working.popleft().result()))
            if len(writing) > _WRITES_WAITING:
                yield writing.popleft().result()
        for future in working:
            writing.append(writer.submit(write, future.result()))
        for done in writing:
            yield done.result()


def write_at(descriptor: int, data: bytes | memoryview, position: int) -> None:
    """Write bytes at a position of a file."""
    rest = memoryview(data).cast("B")
    while rest:
        count = os.pwrite(descriptor, rest, position)
        rest, position = rest[count:], position + count
