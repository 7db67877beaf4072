"""The arguments of an op as data: tensors and numbers."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from .dtypes import DTYPES
from .extents import Shape

# Bytes of the widest access; less aligned tensors get narrower accesses.
WIDEST_ACCESS = 16


@dataclass(frozen=True, slots=True)
class TensorArgument:
    """One tensor of an op.

    Args:
        name: its name for the caller.
        dtypes: the DLPack dtypes it may have, the preferred one first.
        shape: its extents, the first of which may be `LEADING`.
        chunk_bytes: bytes that belong to one chunk of a row; 0 if it is not accessed by chunks.
        is_output: whether the kernel writes it.
        is_strided: whether its rows may have any stride; otherwise it is dense.
        may_be: name of the input that this output may be, for an operation in place.
        is_present: False if this configuration does not use it, so the caller passes None.
        is_flat: whether any shape with as many elements is accepted, if it is dense.
        if_empty: what the launcher writes to a one-element output if there are no rows, so that no kernel runs.
        field: its name in the source; by default the same name.
        c_type: type of its elements in the source; that of the preferred dtype by default.
        run_bytes: bytes of its shortest contiguous run within a row, whose alignment limits accesses; 0 for the row.
        row_set: the row set that it belongs to, 0 or 1; in the source, both use the same field.
        table_dims: leading dimensions of its own, of any extent and stride, whose entries the kernel looks up.
    """

    name: str
    dtypes: tuple[str, ...]
    shape: Shape
    chunk_bytes: int = 0
    is_output: bool = False
    is_strided: bool = False
    may_be: str | None = None
    is_present: bool = True
    is_flat: bool = False
    if_empty: float = 0.0
    field: str = ""
    c_type: str = ""
    run_bytes: int = 0
    row_set: int = 0
    table_dims: int = 0

    def __post_init__(self) -> None:
        if not self.field:
            object.__setattr__(self, "field", self.name)
        if not self.c_type:
            object.__setattr__(self, "c_type", DTYPES[self.dtypes[0]].c_type)

    @property
    def is_updated(self) -> bool:
        """Whether it is only partly written, and so is always given by the caller."""
        return self.is_output and self.table_dims > 0

    @property
    def element_bytes(self) -> int:
        """Bytes of an element, in each of its dtypes."""
        return DTYPES[self.dtypes[0]].bytes

    def access_bytes(self, vector_bytes: int) -> int:
        """Bytes of one access when the widest ones of the input are narrowed to `vector_bytes`."""
        widest = min(WIDEST_ACCESS, self.chunk_bytes) * vector_bytes // WIDEST_ACCESS
        if self.run_bytes:
            widest = min(widest, self.run_bytes & -self.run_bytes)
        return max(self.element_bytes, widest)


@dataclass(frozen=True, slots=True)
class ScalarArgument:
    """One float32 number passed by value."""

    name: str
    c_type: str = dataclasses.field(default="float", init=False)
    is_present: bool = dataclasses.field(default=True, init=False)


Argument = TensorArgument | ScalarArgument
