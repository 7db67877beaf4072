"""Measured ops: how each is called, and the bytes that its calls move."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from jitnorm.bench.calls import Call, New, call_of, config_of
from jitnorm.bench.shapes import Shape, Shapes
from jitnorm.bench.tensors import Tensors
from jitnorm.catalogue import OPS as CATALOGUE
from jitnorm.catalogue.launches import chosen_of, launches
from jitnorm.kernels.arguments import WIDEST_ACCESS
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.dtypes import DTYPES
from jitnorm.kernels.extents import sizes_of
from jitnorm.kernels.interface import tensor_arguments

Maker = Callable[[Tensors, int, int], Call]
"""From M and H to a call on tensors of its own."""

MATRICES = 8  # of a batch
_ANY_SIZE = 3072


@dataclass(frozen=True)
class Measured:
    """An op over input of shape (M, H).

    Attributes:
        name: the name of the op and its format.
        op: its name in the catalogue.
        choices: what its caller chooses, besides the hidden size.
        bytes_per_element: bytes that it reads and writes per element of (M, H).
        bytes_per_row: bytes that it reads besides, per row.
        make: the call of jitnorm.
        multiples: what M and H must be multiples of.
        only_large: whether it is measured on large tensors only.
        most_rows: the maximum number of rows to measure; None for no limit.
        lengths: the lengths of its rows, by their names in a configuration, from H.
        vector_bytes: bytes to which rows of inputs are aligned, 16 at most.
    """

    name: str
    op: str
    choices: Mapping[str, Any]
    bytes_per_element: float
    make: Maker
    multiples: Shape = (1, 1)
    only_large: bool = False
    most_rows: int | None = None
    bytes_per_row: int = 0
    lengths: Callable[[int], Mapping[str, int]] = lambda h: {"hidden_size": h}
    vector_bytes: int = WIDEST_ACCESS

    def bytes_at(self, m: int, h: int) -> int:
        """Bytes that a call of shape (m, h) reads and writes."""
        return int(self.bytes_per_element * m * h) + self.bytes_per_row * m

    def config(self, hidden_size: int) -> KernelConfig:
        """The call-independent part of its kernel's configuration; ValueError if it has none."""
        config = config_of(*chosen_of(CATALOGUE[self.op], {**self.choices, **self.lengths(hidden_size)}))
        return replace(config, vector_bytes=self.vector_bytes)

    def shapes(self, shapes: Shapes) -> list[Shape]:
        """The shapes at which to measure the op, without those it does not support."""
        rows, hidden_size = self.multiples
        chosen = shapes.large if self.only_large else shapes.usual
        taken = [(m, h) for m, h in chosen if m % rows == 0 and h % hidden_size == 0]
        return [(m, h) for m, h in taken if self.most_rows is None or m <= self.most_rows]


def op_of(
    name: str, op_name: str, *, only_large: bool = False, vector_bytes: int = WIDEST_ACCESS, **choices: Any
) -> Measured:
    """An op with some choices; outputs are given where the function takes them."""
    op = CATALOGUE[op_name]

    def make(new: Tensors, m: int, h: int) -> Call:
        tensors = new.of if vector_bytes == WIDEST_ACCESS else _aligned_to(vector_bytes, new.of)
        rows = m // matrices
        call = call_of(op, {**choices, "hidden_size": h}, tensors, rows, matrices=MATRICES, outputs=True)
        make_sums_positive(call.keywords)
        return call

    config = config_of(*chosen_of(op, {**choices, "hidden_size": _ANY_SIZE}))
    matrices = MATRICES if config.batched else 1
    multiples = (config.block_size, 1) if config.axis == 0 else (matrices, config.block_size)
    per_element = _bytes_per_element(op_name, choices)
    return Measured(name, op_name, choices, per_element, make, multiples, only_large, vector_bytes=vector_bytes)


def _aligned_to(count: int, new: New) -> New:
    """Make tensors as before, but inputs with rows at addresses that are multiples of only so many bytes."""

    def of(shape: tuple[int, ...], dtype: str, is_output: bool) -> Any:
        if is_output or len(shape) < 2:
            return new(shape, dtype, is_output)
        *leading, columns = shape
        first, more = (each // DTYPES[dtype].bytes for each in (count, WIDEST_ACCESS))
        return new((*leading, columns + more), dtype, is_output)[..., first : first + columns]

    return of


def make_sums_positive(named: Mapping[str, Any]) -> None:
    """Square the sums of squares among tensors: NaN, the root of a negative one, takes the slow path of divisions."""
    if "sqrsum" in named:
        named["sqrsum"].square_()


def _bytes_per_element(op_name: str, choices: dict[str, Any]) -> float:
    """Bytes that grow with rows times columns, without scales of rows and weights."""

    def bytes_of(rows: int, hidden_size: int) -> int:
        calls = launches(op_name, {**choices, "hidden_size": hidden_size})
        # Sums of rows, and the amax of parts, do not grow with the call's rows.
        calls = [each for each in calls if each.options["op"] != "sum_rows" and each.options.get("amax_parts") != 1]
        configs = [KernelConfig(**{"hidden_size": hidden_size, "input": each.input, **each.options}) for each in calls]
        tensors = [argument for config in configs for argument in tensor_arguments(config)]
        return sum(each.element_bytes * prod(sizes_of(each.shape, (rows,), rows)) for each in tensors)

    m, h = _ANY_SIZE, _ANY_SIZE
    return (bytes_of(2 * m, 2 * h) - bytes_of(2 * m, h) - bytes_of(m, 2 * h) + bytes_of(m, h)) / (m * h)
