"""From an op's call to its kernel: one call into the launcher, and Python again only for what it has not seen."""

from __future__ import annotations

import json
from functools import cache, lru_cache
from typing import Any

from jitnorm.errors import KernelNotReadyError
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.interface import Extent, ScalarArgument, TensorArgument, interface
from jitnorm.kernels.launch_recipe import dispatch_signature
from jitnorm.kernels.target import Target
from jitnorm.launcher import launcher
from jitnorm.manager import get_kernel, recipe_text


class Dispatcher:
    """Runs the calls of one op with one set of options.

    Args:
        enable_pdl: True, False, or None for wherever the target can.
        options: fields of KernelConfig that the op and the caller's options fix; the rest follows from the tensors.

    Attributes:
        names: of the op's tensors, in calling order.
        outputs: the positions of those that the op writes with these options.
        launch: one call into the launcher, with the arguments of `run`; returns None, or the facts of a call that has
            no kernel yet, and then it wrote nothing.
    """

    def __init__(self, enable_pdl: bool | None, **options: Any) -> None:
        self._enable_pdl, self._options = enable_pdl, options
        prototype = KernelConfig(hidden_size=_ANY_HIDDEN_SIZE, **options)
        self._arguments = interface(prototype)
        self._tensors = [a for a in self._arguments if isinstance(a, TensorArgument)]
        self.names = tuple(a.name for a in self._tensors)
        self.outputs = tuple(i for i, a in enumerate(self._tensors) if a.is_output and a.is_present)
        self.launch, self._learn = launcher().make_dispatcher(json.dumps(dispatch_signature(prototype)))

    def run(self, *arguments: Any) -> None:
        """Run the op.

        Args:
            arguments: the op's in the order of `interface`, outputs included, None for those that the options do
                without, converted for TVM-FFI; then the stream, None for the caller's current one.
        """
        facts = self.launch(*arguments)
        if facts is not None:
            self._prepare(arguments, facts)
            self.launch(*arguments)

    @cache  # noqa: B019 - dispatchers live as long as the process
    def arguments_of(self, hidden_size: int, input_dtype: str) -> tuple[tuple[tuple[Extent, ...], str], ...]:
        """Shape and preferred dtype of each tensor of calls with such an input; ValueError if it is not allowed."""
        config = KernelConfig(hidden_size=hidden_size, input=input_dtype, **self._options)
        return tuple((a.shape, a.dtypes[0]) for a in interface(config) if isinstance(a, TensorArgument))

    def _prepare(self, arguments: tuple[Any, ...], facts: Any) -> None:
        found, hidden_size, row_dims, vector_bytes, is_cuda, device, is_capturing = facts
        dtypes = [str(dtype) for dtype in found]  # out of TVM-FFI's own kind of string
        self._check_presence(arguments, dtypes)
        target = cuda_target(device) if is_cuda else Target("cpu")
        config = KernelConfig(
            hidden_size=hidden_size,
            input=dtypes[0],
            weight=dtypes[self.names.index("weight")] if "weight" in self.names else "",
            row_dims=row_dims,
            vector_bytes=vector_bytes,
            pdl=self._pdl(target),
            **self._options,
        )
        # A call that its kernel would refuse is refused before anything is compiled for it.
        launcher().make_checker(recipe_text(config, target))(*self._taken_by_the_kernel(arguments))
        if is_capturing:
            raise KernelNotReadyError(
                f"the kernel of {config} is not loaded, and loading it would break the CUDA graph being captured; "
                "call the op once with such tensors before the capture begins"
            )
        self._learn(get_kernel(config, target), *arguments)

    def _check_presence(self, arguments: tuple[Any, ...], dtypes: Any) -> None:
        for argument, value, dtype in zip(self._tensors, arguments, dtypes, strict=False):
            if argument.is_present and not dtype:
                raise TypeError(f"{argument.name}: is {value!r}; expected a tensor")
            if not argument.is_present and value is not None:
                raise ValueError(f"{argument.name}: is given, but the other options leave no use for it; pass None")

    def _taken_by_the_kernel(self, arguments: tuple[Any, ...]) -> list[Any]:
        """The arguments without the tensors that are absent; a number that is None is left to be refused."""
        is_number = [isinstance(argument, ScalarArgument) for argument in self._arguments]
        is_number += [False] * (len(arguments) - len(is_number))  # the stream
        return [value for value, number in zip(arguments, is_number, strict=True) if number or value is not None]

    def _pdl(self, target: Target) -> bool:
        if self._enable_pdl is None:
            return target.has_pdl
        if self._enable_pdl and not target.has_pdl:
            raise ValueError(
                f"enable_pdl: is True, but {target} has no programmatic dependent launch, which begins with sm_90a; "
                "pass None or False"
            )
        return self._enable_pdl


# Divisible by every block size: what a dispatcher has to know of an op is the same for all hidden sizes.
_ANY_HIDDEN_SIZE = 4096


@lru_cache(maxsize=64)
def cuda_target(device: int) -> Target:
    """The target of a CUDA device, by its ordinal; ValueError if it is not supported."""
    return Target.of_capability(*launcher().device_capability(device))
