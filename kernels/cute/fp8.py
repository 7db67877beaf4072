"""E4M3 and E5M2, single and in pairs: round to nearest even, saturating, NaN to 0x7f, -0 kept."""

from __future__ import annotations

from typing import NamedTuple

from cutlass.cutlass_dsl import T

from ..target import Target
from .intrinsics import add_rn, assembly, bits_of, f32, float_of
from .values import UInt, Value, select, u32


class _Format(NamedTuple):
    """A format as its exact conversion needs it."""

    mantissa_bits: int
    smallest_normal: int  # as the bits of a float
    denormal_unit: float  # codes below the smallest normal are apart by the last place of this number
    saturated: int  # as the bits of a float: from here on, all is the largest code
    largest_code: int


_FORMATS = {
    "e4m3": _Format(3, 0x3C800000, 2.0**14, 0x43E00000, 0x7E),
    "e5m2": _Format(2, 0x38800000, 2.0**7, 0x47600000, 0x7B),
}


def encode_pair(low: Value, high: Value, element: str, target: Target) -> UInt:
    """The codes of two values in the lowest two bytes."""
    if target.has_native_e4m3:
        text = f"{{\n.reg .b16 pair;\ncvt.rn.satfinite.{element}x2.f32 pair, $1, $2;\ncvt.u32.u16 $0, pair;\n}}"
        return UInt(assembly(text, "=r,f,f", high, low, result=T.i32()))
    return _encode(low, _FORMATS[element]) | (_encode(high, _FORMATS[element]) << 8)


def encode_one(value: Value, element: str, target: Target) -> UInt:
    """The code of a value."""
    if target.has_native_e4m3:
        return encode_pair(value, f32(0.0), element, target) & 0xFF
    return _encode(value, _FORMATS[element])


def _encode(value: Value, to: _Format) -> UInt:
    bits = bits_of(value)
    magnitude = bits & 0x7FFFFFFF
    sign = (bits >> 24) & 0x80
    shift = 23 - to.mantissa_bits
    rounded = magnitude + ((1 << (shift - 1)) - 1) + ((magnitude >> shift) & 1)
    smallest_exponent = (to.smallest_normal >> 23) - 1
    normal = (rounded - (smallest_exponent << 23)) >> shift
    denormal = bits_of(add_rn(float_of(magnitude), f32(to.denormal_unit))) & (2 << to.mantissa_bits) - 1
    code = select(magnitude < to.smallest_normal, denormal, normal)
    code = select(magnitude >= to.saturated, u32(to.largest_code), code) | sign
    return select(magnitude > 0x7F800000, u32(0x7F), code)
