"""Tensors placed in memory in every way that an op allows, with guard bytes all around."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

_POISON = 0xA5
_ALIGNMENT = 64


@dataclass(frozen=True)
class Placement:
    """The placement in memory of a tensor's rows, for some number of leading dimensions.

    Args:
        order: the leading dimensions from the outermost to the innermost in memory.
        gaps: rows left out between the leading dimensions' elements, one number for each in memory order.
        row_gap: elements between the rows.
        offset: elements before the first row.
        reversed: for each leading dimension, whether it runs downwards.
    """

    order: tuple[int, ...]
    gaps: tuple[int, ...]
    row_gap: int
    offset: int
    reversed: tuple[bool, ...]


def placements(leading_dims: int, gaps: tuple[int, ...], may_reverse: bool = True) -> st.SearchStrategy[Placement]:
    """A strategy for any placement; `gaps` are the row gaps and offsets to choose from."""
    counts = st.tuples(*[st.integers(0, 1)] * leading_dims)
    return st.builds(
        Placement,
        st.permutations(range(leading_dims)).map(tuple),
        counts,
        st.sampled_from(gaps),
        st.sampled_from(gaps),
        st.tuples(*[st.booleans() if may_reverse else st.just(False)] * leading_dims),
    )


@dataclass(frozen=True)
class Placed:
    """A view and the buffer that contains it, which is poisoned around it."""

    view: NDArray[Any]
    buffer: NDArray[np.uint8]


def place(shape: tuple[int, ...], dtype: Any, placement: Placement) -> Placed:
    """A poisoned array of a shape, with its rows placed according to `placement`."""
    dtype = np.dtype(dtype)
    extents = [shape[d] + gap for d, gap in zip(placement.order, placement.gaps, strict=True)]
    extents.append(shape[-1] + placement.row_gap)
    buffer = poisoned((placement.offset + math.prod(extents) + 64) * dtype.itemsize)
    elements = buffer[: (placement.offset + math.prod(extents)) * dtype.itemsize].view(dtype)
    memory = elements[placement.offset :].reshape(extents)
    memory = memory[tuple(map(slice, [*(shape[d] for d in placement.order), shape[-1]]))]
    view = memory.transpose([*np.argsort(placement.order).tolist(), len(shape) - 1])
    steps = tuple(slice(None, None, -1 if down else 1) for down in placement.reversed)
    return Placed(view[steps], buffer)


def poisoned(size: int) -> NDArray[np.uint8]:
    """An array of that many poisoned bytes at an aligned address."""
    memory = np.full(size + _ALIGNMENT, _POISON, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size]


def assert_written_exactly(actual: Placed, expected: NDArray[Any], placement: Placement) -> None:
    """Check that the view has the expected values and that no byte around it has changed."""
    wanted = place(expected.shape, expected.dtype, placement)
    wanted.view[...] = expected
    assert actual.buffer.tobytes() == wanted.buffer.tobytes()
