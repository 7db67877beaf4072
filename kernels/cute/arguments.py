"""The arguments of a kernel as its stages read them: addresses, strides and numbers by the names of the interface."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..arguments import TensorArgument
from ..config import KernelConfig
from ..interface import interface
from .row_offset import row_offset
from .values import UInt, Value


class Arguments:
    """The traced parameters of a kernel.

    Args:
        config: of the kernel.
        parameters: by the names in `jitnorm.kernels.entry_point.parameters`: addresses, numbers of 64 bits, floats.
    """

    def __init__(self, config: KernelConfig, parameters: Mapping[str, Any]) -> None:
        self.rows: UInt = parameters["rows"]
        self.extents: list[UInt] = [self.rows, *(parameters[f"extent{d}"] for d in range(1, config.row_dims))]
        self.eps: Value | None = parameters.get("eps")
        self._addresses: dict[str, UInt] = {}
        self._strides: dict[str, list[UInt]] = {}
        self._bytes: dict[str, int] = {}
        for argument in interface(config):
            if not isinstance(argument, TensorArgument) or not argument.is_present:
                continue
            self._addresses[argument.field] = parameters[argument.name]
            self._bytes[argument.field] = argument.element_bytes
            if argument.is_strided:
                dims = range(config.row_dims)
                self._strides[argument.field] = [parameters[f"{argument.name}_stride{d}"] for d in dims]

    def address(self, field: str) -> UInt:
        """The address of a tensor."""
        return self._addresses[field]

    def row_address(self, field: str, row: UInt) -> UInt:
        """The address of a row of a strided tensor."""
        return self._addresses[field] + row_offset(row, self.extents, self._strides[field]) * self._bytes[field]
