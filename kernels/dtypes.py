"""Dtypes, by DLPack's names: their types in sources, their bytes, and which of them hold the codes of a format."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DType:
    """A dtype.

    Args:
        c_type: the type of its elements in sources.
        bytes: bytes of an element.
    """

    c_type: str
    bytes: int


BYTE = DType("UInt8", 1)
DTYPES = {
    "float16": DType("Float16", 2),
    "bfloat16": DType("BFloat16", 2),
    "float32": DType("float", 4),
    "float8_e4m3fn": DType("Float8E4M3", 1),
    "float8_e5m2": BYTE,
    "float8_e8m0fnu": BYTE,
    "float4_e2m1fnx2": BYTE,
    "uint8": BYTE,
    "int8": BYTE,
    "int32": DType("Int32", 4),
    "none": DType("One", 0),  # for a norm without a weight
    "int64": DType("Int64", 8),
}

# Dtypes of codes and scales, by the formats of a QuantSpec.
DTYPE_OF_FORMAT = {
    "e2m1": "float4_e2m1fnx2",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "int8": "int8",
    "ue8m0": "float8_e8m0fnu",
    "f32": "float32",
    "f32_ue8m0": "float32",
}
