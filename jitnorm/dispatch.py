"""From an op's call to its kernel: one call into the launcher, and Python again only for what it has not seen."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache, lru_cache, partial
from operator import itemgetter
from typing import Any

from jitnorm.call_config import config_of_call, prototype
from jitnorm.errors import KernelNotReadyError
from jitnorm.kernels.arguments import Extent, evaluate
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.interface import tensor_arguments
from jitnorm.kernels.launch_recipe import MOST_BYTES, dispatch_signature
from jitnorm.kernels.row_classes import ROW_CLASSES
from jitnorm.kernels.target import Target
from jitnorm.launcher import launcher
from jitnorm.manager import get_kernel, recipe_text
from jitnorm.tiered import Place, is_tiered, learn_tiered, loaded_stand_in

# What allocates an op's outputs, by their positions, given the first tensor.
OutputMakers = tuple[tuple[int, Callable[[Any], Any]], ...]
_MOST_MAKERS = 1024
# Extents (None: the interface's own) and dtypes of outputs, by name, as an op wants them allocated.
Allocated = dict[str, tuple[tuple[Extent, ...] | None, str]]
# Makes what an op's options choose once for each combination, so that a call looks it up by what its caller gave.
# Types count, since 16.0 and True equal 16 and 1 but are refused.
per_options = lru_cache(maxsize=None, typed=True)


class Dispatcher:
    """Runs the calls of one op with one set of options.

    Args:
        enable_pdl: True, False, or None for wherever the target can.
        allocations: what outputs that the caller leaves out become, where that is not what the interface says.
        aliases: what the op calls arguments that the interface calls otherwise, for its errors.
        options: fields of KernelConfig that the op and the caller's options fix; the rest follows from the tensors.

    Attributes:
        names: of the tensors that the op takes with these options, in calling order.
        outputs: the positions of those that it writes.
        outputs_among: those of a call's tensors that it writes.
        leaders: the positions of inputs whose leading shapes others have.
        aliases: as given.
        takes_as_given: whether the last call's tensors went into the kernel as they were: those of the next are then
            tried so first.
        makers: what allocates the outputs of calls seen before, by what decides their shapes, dtypes and device.
        launch: one call into the launcher, with the arguments of `run`; returns None, or the facts of a call that has
            no kernel yet, and then it wrote nothing.
    """

    def __init__(
        self,
        enable_pdl: bool | None,
        *,
        allocations: Callable[[KernelConfig], Allocated] | None = None,
        aliases: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        self._enable_pdl, self._options, self._allocations = enable_pdl, options, allocations
        self.aliases = aliases or {}
        self.takes_as_given = True
        self.makers: dict[Hashable, OutputMakers] = {}
        example = prototype(options)
        tensors = tensor_arguments(example)
        self.names = tuple(a.name for a in tensors)
        self._is_batched = example.batched
        self.outputs = tuple(i for i, a in enumerate(tensors) if a.is_output)
        # With one position alone it would give the tensor itself.
        positions = self.outputs if len(self.outputs) > 1 else (slice(self.outputs[0], self.outputs[0] + 1),)
        self.outputs_among: Callable[[tuple[Any, ...]], tuple[Any, ...]] = itemgetter(*positions)
        row_sets = [a.row_set for a in tensors]
        self.leaders = tuple(sorted(set(map(row_sets.index, row_sets))))
        self._leader_of = tuple(self.leaders.index(row_sets.index(row_set)) for row_set in row_sets)
        self._weight = next((i for i, a in enumerate(tensors) if a.name.endswith("weight")), None)
        self._rows_combined = example.rows_combined
        # Of codes in E2M1 an element is two values.
        columns = evaluate(tensors[0].shape[-1], rows=0)
        self._values_per_element = max(1, example.hidden_size // columns)
        functions = launcher().make_dispatcher(json.dumps(dispatch_signature(example)))
        self.launch, self._learn, self._replace, self._facts = functions

    def run(self, *arguments: Any) -> None:
        """Run the op.

        Args:
            arguments: those of the op's that are present with its options, in the order of `interface`, outputs
                included, converted for TVM-FFI; then the stream, None for the caller's current one.
        """
        facts = self.launch(*arguments)
        if facts is not None:
            self._prepare(arguments, facts)(*arguments)

    def given_outputs(self, tensors: tuple[Any, ...]) -> Sequence[Any]:
        """The outputs that the caller gave, if one at least is None."""
        if len(self.outputs) == 1:
            return ()
        return [tensor for tensor in self.outputs_among(tensors) if tensor is not None]

    def kernel_of(self, *arguments: Any) -> tuple[Any, str]:
        """The kernel of a call, built if need be, and the text that it is known by; nothing is run.

        Args:
            arguments: those of `run` without the stream; stand-ins for tensors, which have no memory, will do.
        """
        config, target = self._config_of(arguments, self._facts(*arguments))
        return get_kernel(config, target), f"{config} for {target}"

    def remember_makers(self, call: Hashable, makers: OutputMakers) -> OutputMakers:
        """Keep what allocates the outputs of calls like one; calls of an engine have a few shapes."""
        if len(self.makers) >= _MOST_MAKERS:
            self.makers.clear()
        self.makers[call] = makers
        return makers

    def outputs_of(self, shapes: tuple[tuple[int, ...], ...], dtype: str) -> dict[int, tuple[tuple[int, ...], str]]:
        """Shape and dtype of each output, by its position, as they are allocated.

        Args:
            shapes: those of the leaders.
            dtype: of the first tensor.

        Raises:
            ValueError: the op does not take them.
        """
        for leader, shape in zip(self.leaders, shapes, strict=True):
            _check_bounds(self.names[leader], shape)
        arguments, outputs = self._arguments_of(shapes[0][-1], dtype), {}
        for position in self.outputs:
            extents, output_dtype = arguments[position]
            leading = tuple(shapes[self._leader_of[position]][:-1])
            sizes = self._rows_and_matrices(leading)
            inner = tuple(evaluate(extent, *sizes) for extent in extents if extent != "...")
            outputs[position] = (leading + inner if "..." in extents else inner, output_dtype)
        return outputs

    @cache  # noqa: B019 - dispatchers live as long as the process
    def _arguments_of(self, columns: int, dtype: str) -> tuple[tuple[tuple[Extent, ...], str], ...]:
        """Extents and preferred dtype of each tensor of calls whose first one is that wide, in that dtype."""
        config = KernelConfig(hidden_size=self._hidden_size(columns), **{"input": dtype, **self._options})
        own = self._allocations(config) if self._allocations else {}
        arguments = []
        for argument in tensor_arguments(config):
            shape, dtype = own.get(argument.name, (None, argument.dtypes[0]))
            arguments.append((argument.shape if shape is None else shape, dtype))
        return tuple(arguments)

    def _rows_and_matrices(self, leading: tuple[int, ...]) -> tuple[int, int]:
        """How many rows and matrices a first tensor of those leading dimensions has; rows of each matrix."""
        if not self._is_batched:
            return math.prod(leading), 1
        if not leading:
            raise ValueError(f"{self.names[0]}: has one dimension; expected (matrices, ..., hidden_size)")
        return math.prod(leading[1:]), leading[0]

    def _prepare(self, arguments: tuple[Any, ...], facts: Any) -> Any:
        """What runs a call that has no kernel yet: usually `launch`, which has learned one."""
        config, target = self._config_of(arguments, facts)
        *_, device, is_capturing = facts
        rows = sum(math.prod(tuple(arguments[i].shape)[:-1]) for i in self.leaders)
        if is_capturing:
            return _captured_kernel(config, target, rows)
        if is_tiered():
            learn = partial(self._learn_for, arguments)
            learn_tiered(config, target, rows, Place(learn, self._replace, None if target.is_cpu else device))
        else:
            self._learn(get_kernel(config, target), *arguments)
        return self.launch

    def _config_of(self, arguments: tuple[Any, ...], facts: Any) -> tuple[KernelConfig, Target]:
        """The kernel that a call needs and its target; a call that the kernel would refuse is refused."""
        found, columns, row_dims, vector_bytes, row_class, is_cuda, device, _ = facts
        dtypes = [str(dtype) for dtype in found]  # out of TVM-FFI's own kind of string
        for name, value, dtype in zip(self.names, arguments, dtypes, strict=False):
            if not dtype:
                raise TypeError(f"{name}: is {value!r}; expected a tensor")
        target = cuda_target(device) if is_cuda else Target("cpu")
        config = config_of_call(
            self._options,
            target,
            hidden_size=self._hidden_size(columns),
            input=dtypes[0],
            weight="" if self._weight is None else dtypes[self._weight],
            row_dims=row_dims,
            vector_bytes=vector_bytes,
            calls=ROW_CLASSES[row_class],
            enable_pdl=self._enable_pdl,
        )
        launcher().make_checker(recipe_text(config, target))(*arguments)
        return config, target

    def _learn_for(self, arguments: tuple[Any, ...], kernel: Any) -> int:
        return int(self._learn(kernel, *arguments))

    def _hidden_size(self, columns: int) -> int:
        """The hidden size of a first tensor that many columns wide."""
        if columns % self._rows_combined:
            raise ValueError(
                f"input: its last dimension is {columns}, not a multiple of {self._rows_combined}, "
                "as many rows as are combined"
            )
        return columns * self._values_per_element // self._rows_combined


def _check_bounds(name: str, shape: tuple[int, ...]) -> None:
    """Refuse a shape that no tensor can have, for which nothing should be allocated; see kernels/launcher/bounds.h."""
    if min(shape) < 0 or math.prod(max(1, extent) for extent in shape) > MOST_BYTES:
        raise ValueError(f"{name}: shape is {tuple(shape)}; at most {MOST_BYTES} bytes have addresses")


def _captured_kernel(config: KernelConfig, target: Target, rows: int) -> Any:
    """The kernel for a single call during a capture, where nothing may be loaded or learned."""
    kernel = loaded_stand_in(config, target, rows)
    if kernel is None:
        raise KernelNotReadyError(
            f"the kernel of {config} is not loaded, and loading it would break the CUDA graph being captured; "
            "call the op once with such tensors before the capture begins"
        )
    return kernel


@lru_cache(maxsize=64)
def cuda_target(device: int) -> Target:
    """The target of a CUDA device, by its ordinal; ValueError if it is not supported."""
    return Target.of_capability(*launcher().device_capability(device))
