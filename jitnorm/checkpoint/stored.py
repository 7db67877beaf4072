"""Tensors in safetensors files: reads and writes the headers of these files, never the tensors themselves.

A file is eight bytes with the length of its header, the header in JSON, and the tensors without gaps.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F16": 16, "BF16": 16, "F32": 32,
    "F64": 64, "C64": 64,
}  # fmt: skip
_LONGEST_HEADER = 100_000_000  # the limit of the safetensors library
_ALIGNMENT = 8


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a safetensors file.

    Attributes:
        name: the tensor's name.
        dtype: its dtype, by safetensors' name.
        shape: its shape.
        begin: the position of its first byte in the file.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int = 0

    @property
    def size(self) -> int:
        """Bytes of the tensor."""
        return prod(self.shape) * BITS[self.dtype] // 8


def read_header(path: Path) -> tuple[list[StoredTensor], dict[str, str]]:
    """Read the tensors of a file, in the order of their positions, and its metadata.

    Raises:
        ValueError: the file cannot be read, or is not a whole safetensors file.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= min(_LONGEST_HEADER, size - 8):
                raise ValueError(f"its header would have {length} of {size} bytes")
            header = json.loads(file.read(length))
        return _checked(header, 8 + length, size)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ValueError(f"{path}: is not a whole safetensors file: {why}; download it again") from None


def _checked(header: dict[str, Any], begin: int, size: int) -> tuple[list[StoredTensor], dict[str, str]]:
    metadata = {str(key): str(value) for key, value in header.pop("__metadata__", {}).items()}
    found = []
    for name, fields in header.items():
        first, last = fields["data_offsets"]
        tensor = StoredTensor(name, fields["dtype"], tuple(fields["shape"]), begin + first)
        if tensor.dtype not in BITS:
            raise ValueError(f"{name} has the unknown dtype {tensor.dtype}")
        if any(type(extent) is not int or extent < 0 for extent in tensor.shape) or last - first != tensor.size:
            raise ValueError(f"{name} of shape {tensor.shape} has {last - first} bytes")
        found.append(tensor)
    found.sort(key=lambda tensor: (tensor.begin, tensor.size))
    for tensor in found:
        if tensor.begin != begin:
            raise ValueError(f"{tensor.name} begins at byte {tensor.begin}, expected {begin}")
        begin += tensor.size
    if begin != size:
        raise ValueError(f"its tensors end at byte {begin}, the file at {size}")
    return found, metadata


def arranged(tensors: Iterable[StoredTensor], metadata: Mapping[str, str]) -> tuple[bytes, list[StoredTensor]]:
    """Arrange tensors in a new file, widest elements first, so that all are aligned.

    Returns:
        the beginning of the file, and the tensors at their positions.

    Example:
        >>> begin, tensors = arranged([StoredTensor("a", "U8", (3,)), StoredTensor("b", "F32", (1,))], {})
        >>> [(tensor.name, tensor.begin - len(begin)) for tensor in tensors]
        [('b', 0), ('a', 4)]
    """
    ordered = sorted(tensors, key=lambda tensor: (-BITS[tensor.dtype], tensor.name))
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    begins, position = [], 0
    for tensor in ordered:
        end = position + tensor.size
        header[tensor.name] = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [position, end]}
        begins.append(position)
        position = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    first = 8 + len(text)
    placed = [replace(tensor, begin=first + begin) for tensor, begin in zip(ordered, begins, strict=True)]
    return len(text).to_bytes(8, "little") + text, placed
