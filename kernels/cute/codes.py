"""Codes of y * factor in words, the first code in the lowest bits: E2M1, eight a word, E4M3 and E5M2, four."""

from __future__ import annotations

from collections.abc import Sequence

from cutlass.cutlass_dsl import T

from .constants import Constants
from .fp8 import encode_pair
from .intrinsics import add_rn, assembly, bits_of, f32, fma_rn, magnitude_of, min_or_limit, mul_rn
from .values import UInt, Value, u32

# Products of a smaller magnitude need no saturation; 0 where that saves nothing.
EXACT_E2M1_BOUND = 7.0
# The bits of 2^23 - 2; each code is one more.
_CODE_ZERO = 0x4AFFFFFC

_NATIVE_E2M1 = """{
.reg .b8 a, b, c, d;
cvt.rn.satfinite.e2m1x2.f32 a, $2, $1;
cvt.rn.satfinite.e2m1x2.f32 b, $4, $3;
cvt.rn.satfinite.e2m1x2.f32 c, $6, $5;
cvt.rn.satfinite.e2m1x2.f32 d, $8, $7;
mov.b32 $0, {a, b, c, d};
}"""


def word_bound(constants: Constants) -> float:
    """The bound below which `encode_word` is cheaper; 0 if it never is."""
    is_exact_e2m1 = constants.quant.element == "e2m1" and not constants.target.has_native_e2m1
    return EXACT_E2M1_BOUND if is_exact_e2m1 else 0.0


def encode_word(constants: Constants, y: Sequence[Value], factor: Value, *, is_bounded: bool = False) -> UInt:
    """The codes of as many values as a word has; if bounded, the products' magnitudes are below the bound."""
    element, target = constants.quant.element, constants.target
    if element != "e2m1":
        scaled = [mul_rn(v, factor) for v in y]
        low, high = (encode_pair(scaled[i], scaled[i + 1], element, target) for i in (0, 2))
        return low | (high << 16)
    if target.has_native_e2m1:
        return UInt(assembly(_NATIVE_E2M1, "=r" + ",f" * 8, *(mul_rn(v, factor) for v in y), result=T.i32()))
    return _encode_e2m1(y, factor, is_bounded)


def _encode_e2m1(y: Sequence[Value], factor: Value, is_bounded: bool) -> UInt:
    """Without the instruction: exact, round to nearest even, saturating at 6, NaN to code 7, -0 kept."""
    magnitudes = signs = u32(0)
    for v in reversed(y):
        code = bits_of(_magnitude_code(mul_rn(magnitude_of(v), factor), is_bounded))
        magnitudes = magnitudes * 16 + code
        # Infinity times zero is NaN, whose sign is not that of the value.
        signs = (signs << 4) | (bits_of(v if is_bounded else mul_rn(v, factor)) >> 28)
    return (magnitudes - (_CODE_ZERO * 0x11111111 & 0xFFFFFFFF)) | (signs & 0x88888888)


def _magnitude_code(m: Value, is_bounded: bool) -> Value:
    """`_CODE_ZERO` + the code of a magnitude; common/e2m1.h says why."""
    below_4 = add_rn(m, f32(2.0**23 - 2.0))
    above_4 = fma_rn(m, f32(0.5), f32(2.0**23))
    if not is_bounded:
        above_4 = min_or_limit(above_4, f32(2.0**23 + 3.0))
    return min_or_limit(below_4, above_4)
