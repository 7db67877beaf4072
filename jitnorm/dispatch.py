"""From an op's call to its kernel: one call into the launcher, and Python again only for what it has not seen."""

from __future__ import annotations

import json
from functools import cache, lru_cache
from typing import Any

from jitnorm.errors import KernelNotReadyError
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.interface import Extent, TensorArgument, interface
from jitnorm.kernels.launch_recipe import dispatch_signature
from jitnorm.kernels.quant_spec import QuantSpec
from jitnorm.kernels.target import Target
from jitnorm.launcher import launcher
from jitnorm.manager import get_kernel, recipe_text


class Dispatcher:
    """Runs the calls of one op with one set of options.

    Args:
        op: as in KernelConfig.
        quant: as in KernelConfig.
        enable_pdl: True, False, or None for wherever the target can.

    Attributes:
        names: of the op's tensors, in calling order.
        outputs: the positions of those that the op writes with these options.
    """

    def __init__(self, op: str, quant: QuantSpec | None, enable_pdl: bool | None) -> None:
        self._op, self._quant, self._enable_pdl = op, quant, enable_pdl
        prototype = KernelConfig(op, 64, quant=quant)
        tensors = [a for a in interface(prototype) if isinstance(a, TensorArgument)]
        self.names = tuple(a.name for a in tensors)
        self.outputs = tuple(i for i, a in enumerate(tensors) if a.is_output and a.is_present)
        self._launch, self._learn = launcher().make_dispatcher(json.dumps(dispatch_signature(prototype)))

    def run(self, *arguments: Any) -> None:
        """Run the op.

        Args:
            arguments: the op's in the order of `interface`, outputs included, converted for TVM-FFI; then the stream,
                None for the caller's current one.
        """
        facts = self._launch(*arguments)
        if facts is not None:
            self._prepare(arguments, facts)
            self._launch(*arguments)

    @cache  # noqa: B019 - dispatchers live as long as the process
    def arguments_of(self, hidden_size: int, input_dtype: str) -> tuple[tuple[tuple[Extent, ...], str], ...]:
        """Shape and preferred dtype of each tensor of calls with such an input; ValueError if it is not allowed."""
        config = KernelConfig(self._op, hidden_size, input_dtype, quant=self._quant)
        return tuple((a.shape, a.dtypes[0]) for a in interface(config) if isinstance(a, TensorArgument))

    def _prepare(self, arguments: tuple[Any, ...], facts: Any) -> None:
        dtypes, hidden_size, row_dims, vector_bytes, is_cuda, device, is_capturing = facts
        target = cuda_target(device) if is_cuda else Target("cpu")
        config = KernelConfig(
            self._op,
            hidden_size,
            *self._input_and_weight(dtypes),
            quant=self._quant,
            row_dims=row_dims,
            vector_bytes=vector_bytes,
            pdl=self._pdl(target),
        )
        # A call that its kernel would refuse is refused before anything is compiled for it.
        launcher().make_checker(recipe_text(config, target))(*arguments)
        if is_capturing:
            raise KernelNotReadyError(
                f"the kernel of {config} is not loaded, and loading it would break the CUDA graph being captured; "
                "call the op once with such tensors before the capture begins"
            )
        self._learn(get_kernel(config, target), *arguments)

    def _input_and_weight(self, dtypes: Any) -> tuple[str, str]:
        if not dtypes[1]:
            raise TypeError("weight: is not a tensor; expected one of the input's dtype or float32")
        return dtypes[0], dtypes[1]

    def _pdl(self, target: Target) -> bool:
        if self._enable_pdl is None:
            return target.has_pdl
        if self._enable_pdl and not target.has_pdl:
            raise ValueError(
                f"enable_pdl: is True, but {target} has no programmatic dependent launch, which begins with sm_90a; "
                "pass None or False"
            )
        return self._enable_pdl


@lru_cache(maxsize=64)
def cuda_target(device: int) -> Target:
    """The target of a CUDA device, by its ordinal; ValueError if it is not supported."""
    return Target.of_capability(*launcher().device_capability(device))
