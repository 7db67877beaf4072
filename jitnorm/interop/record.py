"""Results of calls besides tensors as kernels write them: an object such as a QuantizedTensor, and views."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

View = Callable[[Any, Any], Any]
"""Makes a view of an output, given the call's first tensor, too: from its first element on, or the output itself."""
Views = Mapping[str, View]
"""What is returned in place of outputs that a call allocates, by their names."""


@dataclass(frozen=True)
class Record:
    """Parts of such an object.

    Attributes:
        kind: its class.
        tensors: the arguments and outputs that are its attributes, by the names of the attributes.
        constants: its other attributes.
        shaped: the argument or output that has its ``shape``.
        values: how many values an element of that tensor holds; the last dimension of the shape counts values.
        make: makes it from all its attributes, once for a framework's tensors; a framework's own calls need nothing
            but the attributes.
    """

    kind: type
    tensors: Mapping[str, str]
    constants: Mapping[str, Any]
    shaped: str
    values: int
    make: Callable[[dict[str, Any]], Any]

    @property
    def expression(self) -> str:
        """Python that makes it, with arguments and outputs in braces, where ``_record`` is this."""
        tensors = ", ".join(f"'{attribute}': {{{name}}}" for attribute, name in self.tensors.items())
        shape = f"(*{{{self.shaped}}}.shape[:-1], {{{self.shaped}}}.shape[-1] * {self.values})"
        return f"_record.make({{{{**_record.constants, {tensors}, 'shape': {shape}}}}})"
