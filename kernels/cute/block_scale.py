"""The scale of a block: E4M3 with a global scale, UE8M0, or float32; and what it makes of the block's codes."""

from __future__ import annotations

from typing import NamedTuple

from ..quant_spec import MAX_EXPONENT
from .arguments import Arguments
from .constants import Constants
from .fp8 import encode_one
from .fp8_scale import amax_bound, bounded, fp8_scale_from
from .half_types import decode_e4m3
from .intrinsics import (
    MAX_FLOAT,
    bits_of,
    f32,
    float_of,
    is_equal,
    is_nan,
    min_or_limit,
    mul_rn,
    reciprocal_rn,
)  # fmt: skip
from .values import UInt, Value, select, select_value, u32


class BlockScale(NamedTuple):
    """The scale of a block."""

    stored: UInt  # its bits
    encode: Value  # codes are those of y * encode
    keep: UInt  # and-mask of the codes: none of a zero block
    fill: UInt  # or-mask of the codes: those of NaN in a block that holds one


class GlobalScale(NamedTuple):
    """The factors that block scales take from a global one; for float32 scales, the upper bound of amax."""

    reciprocal_max: Value  # global scale / 6
    inverse: Value | None  # 1 / global scale; None for 1
    bound: Value | None


def prepare_global_scale(constants: Constants, arguments: Arguments, global_scale: Value | None) -> GlobalScale:
    """The factors of a global scale (None for 1), or of a bound."""
    bound = amax_bound(constants, arguments) if constants.quant.scale_format.startswith("f32") else None
    if global_scale is None:
        return GlobalScale(f32(constants.reciprocal_max), None, bound)
    return GlobalScale(mul_rn(global_scale, f32(constants.reciprocal_max)), reciprocal_rn(global_scale), bound)


def scale_of(constants: Constants, amax: Value, of: GlobalScale) -> BlockScale:
    """The scale of a block by its largest magnitude."""
    formats = {"e4m3": _e4m3, "ue8m0": _ue8m0, "f32": _f32, "f32_ue8m0": _f32}
    return formats[constants.quant.scale_format](constants, amax, of)


def _masked(constants: Constants, stored: UInt, encode: Value, is_zero: UInt | None, has_nan: UInt) -> BlockScale:
    has_no_codes = has_nan if is_zero is None else is_zero | has_nan
    fill = select(has_nan, u32(constants.nan_codes), u32(0))
    return BlockScale(stored, encode, select(has_no_codes, u32(0), u32(0xFFFFFFFF)), fill)


def _e4m3(constants: Constants, amax: Value, of: GlobalScale) -> BlockScale:
    code = encode_one(mul_rn(amax, of.reciprocal_max), "e4m3", constants.target)
    decoded = decode_e4m3(code)
    encode = reciprocal_rn(decoded if of.inverse is None else mul_rn(decoded, of.inverse))
    magnitude = code & 0x7F
    return _masked(constants, code, min_or_limit(encode, f32(MAX_FLOAT)), magnitude.equals(0), magnitude.equals(0x7F))


def _ue8m0(constants: Constants, amax: Value, of: GlobalScale) -> BlockScale:
    unbounded = _exponent(constants, amax)
    is_largest = unbounded >= 254
    exponent = select(is_largest, u32(254), unbounded)
    encode = float_of(select(is_largest, u32(0x00400000), (u32(254) - exponent) << 23))  # 2^(127 - exponent)
    has_nan = is_nan(amax)
    return _masked(constants, select(has_nan, u32(0xFF), exponent), encode, is_equal(amax, f32(0.0)), has_nan)


def _exponent(constants: Constants, amax: Value) -> UInt:
    """The biased exponent of a scale, not yet bounded above."""
    if constants.quant.scale_rounding == "floor":  # OCP's rule: that of amax less that of the largest code
        exponent, of_code = bits_of(amax) >> 23, MAX_EXPONENT[constants.quant.element]
        return select(exponent > of_code, exponent - of_code, u32(0))
    # That of the least normal power of two that is not below amax / (largest code).
    bits = bits_of(mul_rn(amax, f32(constants.reciprocal_max)))
    return (bits >> 23) + (bits & 0x7FFFFF).differs(0).as_u32()


def _f32(constants: Constants, amax: Value, of: GlobalScale) -> BlockScale:
    scale = fp8_scale_from(constants, bounded(amax, of.bound))
    has_nan = is_nan(scale)
    if constants.quant.scale_format == "f32_ue8m0":  # the smallest power of two that is not below
        scale = select_value(has_nan, scale, float_of((bits_of(scale) + 0x7FFFFF) & 0x7F800000))
    return _masked(constants, bits_of(scale), reciprocal_rn(scale), None, has_nan)
