"""16-bit floats and float32 in words of memory. The conversions round to nearest even and write every NaN as one."""

from __future__ import annotations

from collections.abc import Sequence

from cutlass._mlir import ir
from cutlass._mlir.dialects import arith, llvm
from cutlass.cutlass_dsl import T

from .intrinsics import bits_of, f32, float_of, mul_rn, with_canonical_nan
from .values import UInt, Value, select, u32


def unpack(words: Sequence[UInt], dtype: str) -> list[Value]:
    """The elements of some words as float32, which holds them exactly."""
    if dtype == "float32":
        return [float_of(word) for word in words]
    if dtype == "bfloat16":
        return [float_of(half) for word in words for half in (word << 16, word & 0xFFFF0000)]
    if dtype == "float8_e4m3fn":
        return [_of_e4m3((word >> shift) & 0xFF) for word in words for shift in (0, 8, 16, 24)]
    halves = [llvm.bitcast(ir.VectorType.get([2], T.f16()), word.value) for word in words]
    return [arith.extf(T.f32(), _element(pair, i)) for pair in halves for i in (0, 1)]


def pack(values: Sequence[Value], dtype: str) -> list[UInt]:
    """The elements, rounded, as words."""
    if dtype == "float32":
        return [bits_of(with_canonical_nan(value)) for value in values]
    name, half = ("ff2bf16x2", T.bf16()) if dtype == "bfloat16" else ("ff2f16x2", T.f16())
    pair_type = ir.VectorType.get([2], half)
    pairs = zip(values[::2], values[1::2], strict=True)
    return [
        UInt(llvm.bitcast(T.i32(), llvm.call_intrinsic(pair_type, f"llvm.nvvm.{name}.rn", [high, low], [], [])))
        for low, high in pairs
    ]


def decode_e4m3(code: UInt) -> Value:
    """The value of an E4M3 code that is no NaN."""
    # As the top bits of a float the exponent is 120 too small; the product also normalizes denormals, exactly.
    return mul_rn(float_of(((code & 0x80) << 24) | ((code & 0x7F) << 20)), f32(2.0**120))


def _of_e4m3(code: UInt) -> Value:
    return float_of(select((code & 0x7F).equals(0x7F), u32(0x7FFFFFFF), bits_of(decode_e4m3(code))))


def _element(pair: Value, index: int) -> Value:
    return llvm.extractelement(pair, arith.constant(T.i32(), index))
