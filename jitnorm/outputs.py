"""Allocates the outputs that a caller omits."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache
from typing import Any

from jitnorm.catalogue.op import Op
from jitnorm.interop import framework_of
from jitnorm.interop.base import Framework
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.extents import LEADING, Shape, sizes_of
from jitnorm.kernels.interface import tensor_arguments
from jitnorm.kernels.launch_recipe import MOST_BYTES

Makers = dict[str, Callable[[Any], Any]]
"""What allocates each output, by name, given the first tensor."""
_MOST_MAKERS = 1024


class Outputs:
    """The outputs of one op with one set of options.

    Args:
        op: the op.
        options: the fields of KernelConfig that the op and the caller's options fix.
        example: a configuration with these options.

    Attributes:
        makers: allocators for the outputs of earlier calls, by what decides their shapes, dtypes and device: the
            `likeness` of the first tensor and, with several leaders, the shape of each.
        names: the names of the outputs, in calling order.
        updated: the names of partly written outputs, which are not allocated.
        in_place: the names of the inputs that outputs may overwrite, by output.
        leaders: the names of the inputs whose leading dimensions outputs have, the first tensor first.
        of_rows: the names of the tensors that have a row for each row of a leader.
        folds: whether all outputs have such rows and no input is shared by several rows, so that a batch of calls is a
            call with more rows.
    """

    def __init__(self, op: Op, options: Mapping[str, Any], example: KernelConfig) -> None:
        self._op, self._options = op, options
        self.makers: dict[Hashable, Makers] = {}
        tensors = tensor_arguments(example)
        self.names = tuple(a.name for a in tensors if a.is_output)
        self.updated = tuple(a.name for a in tensors if a.is_updated)
        inputs = {a.name for a in tensors if not a.is_output}
        self.in_place = {a.name: a.may_be for a in tensors if a.is_output and a.may_be in inputs}
        row_sets = [a.row_set for a in tensors]
        self.leaders = tuple(tensors[i].name for i in sorted(set(map(row_sets.index, row_sets))))
        # Experts' offsets and row indices refer to the whole tensor, so it cannot be split.
        takes_parts = not (example.experts or example.gathers)
        self.of_rows = frozenset(a.name for a in tensors if LEADING in a.shape and takes_parts)
        self._leader_of = {a.name: self.leaders[a.row_set] for a in tensors}
        self._is_batched, self._rows_combined = example.batched, example.rows_combined
        # Heads belong to tokens, each of which has a position, so more rows would be different tokens.
        self.folds = not (self._is_batched or example.rope) and all(
            a.name in self.of_rows or not (a.is_output or _grows(a.shape)) for a in tensors
        )
        # An element of E2M1 codes is two values.
        columns = tensors[0].shape[-1].evaluate(rows=0)
        self._values_per_element = max(1, example.hidden_size // columns)

    def hidden_size(self, columns: int) -> int:
        """The hidden size for a first tensor with so many columns; ValueError if there is none."""
        if columns % self._rows_combined:
            raise ValueError(
                f"{self.leaders[0]}: its last dimension is {columns}, not a multiple of {self._rows_combined}, the "
                "number of rows that are combined in one, such as gates and values"
            )
        return columns * self._values_per_element // self._rows_combined

    def of(self, shapes: Sequence[tuple[int, ...]], dtype: str) -> dict[str, tuple[tuple[int, ...], str]]:
        """The shape and dtype with which each output is allocated, by name.

        Args:
            shapes: the shapes of the leaders.
            dtype: of the first tensor.

        Raises:
            ValueError: the op does not support them.
        """
        by_leader = dict(zip(self.leaders, shapes, strict=True))
        for leader, shape in by_leader.items():
            _check_bounds(leader, shape)
        found = {}
        rows_of_last = math.prod(shapes[-1][:-1])  # the second row set's, if there is one
        for name, (extents, output_dtype) in self._allocated(shapes[0][-1], dtype).items():
            leading = tuple(by_leader[self._leader_of[name]][:-1])
            found[name] = (sizes_of(extents, leading, *self._rows_and_matrices(leading), rows_of_last), output_dtype)
        return found

    def allocate(self, framework: Framework, named: dict[str, Any]) -> None:
        """Allocate the outputs of a call that are None.

        Args:
            framework: of the first tensor.
            named: the call's arguments by name.

        Raises:
            ValueError: the op does not support inputs of such shapes.
            TypeError: an input is not a tensor.
        """
        for name in self.names:
            if named[name] is None:
                break
        else:
            return
        first = named[self.leaders[0]]
        for name, make in self.makers_of(framework, named).items():
            if named[name] is None:
                named[name] = make(first)

    def makers_of(self, framework: Framework, named: Mapping[str, Any]) -> Makers:
        """Find what allocates the outputs of a call; arguments and errors are those of `allocate`."""
        first = named[self.leaders[0]]
        call: Hashable = framework.likeness(first)
        if len(self.leaders) > 1:
            call = call, *[_shape_of(named, name) for name in self.leaders]
        makers = self.makers.get(call)
        if makers is None:
            found = self.of([_shape_of(named, name) for name in self.leaders], framework.dtype_name(first))
            makers = {name: framework.maker(shape, dtype, first) for name, (shape, dtype) in found.items()}
            if len(self.makers) >= _MOST_MAKERS:  # an engine's calls have only a few shapes
                self.makers.clear()
            self.makers[call] = makers
        return makers

    @cache  # noqa: B019 - dispatchers live as long as the process
    def _allocated(self, columns: int, dtype: str) -> dict[str, tuple[Shape, str]]:
        """Extents and dtype of each output, for calls whose first tensor has this width and dtype."""
        config = KernelConfig(hidden_size=self.hidden_size(columns), **{"input": dtype, **self._options})
        own = self._op.allocated(config) if self._op.allocated else {}
        found = {}
        for argument in tensor_arguments(config):
            if argument.is_output and not argument.is_updated:
                extents, output_dtype = own.get(argument.name, (None, argument.dtypes[0]))
                found[argument.name] = (argument.shape if extents is None else extents, output_dtype)
        return found

    def _rows_and_matrices(self, leading: tuple[int, ...]) -> tuple[int, int]:
        """The numbers of rows per matrix and of matrices in a first tensor with such leading dimensions."""
        if not self._is_batched:
            return math.prod(leading), 1
        if not leading:
            raise ValueError(f"{self.leaders[0]}: has one dimension; expected (matrices, ..., hidden_size)")
        return math.prod(leading[1:]), leading[0]


def _grows(shape: Shape) -> bool:
    """Whether a tensor's size grows with the number of rows."""
    return LEADING in shape or any(extent.evaluate(rows=0) != extent.evaluate(rows=1 << 20) for extent in shape)


def _check_bounds(name: str, shape: tuple[int, ...]) -> None:
    """Reject a shape that no tensor can have, so that nothing is allocated for it; see kernels/launcher/bounds.h."""
    if not shape:
        raise ValueError(f"{name}: has no dimensions; expected (..., hidden_size)")
    # Extents may be a tracer's symbols, on which its program should not depend.
    known = [extent for extent in shape if isinstance(extent, int)]
    if any(extent < 0 for extent in known) or math.prod(max(1, extent) for extent in known) > MOST_BYTES:
        raise ValueError(f"{name}: shape is {tuple(shape)}; at most {MOST_BYTES} bytes have addresses")


def _shape_of(named: Mapping[str, Any], name: str) -> tuple[int, ...]:
    """The shape of an input that determines those of outputs."""
    framework_of(named[name], name)  # rejects anything that is not a tensor
    shape: tuple[int, ...] = named[name].shape
    return shape
