"""The arithmetic of the numerics: one IEEE rounding each. NVVM's intrinsics name it, so nothing contracts them."""

from __future__ import annotations

from cutlass._mlir import ir
from cutlass._mlir.dialects import arith, llvm
from cutlass.cutlass_dsl import T

from .values import UInt, Value

MAX_FLOAT = float.fromhex("0x1.fffffep127")
_FULL_WARP = -1


def f32(value: float) -> Value:
    """A constant, rounded to float32."""
    return arith.constant(T.f32(), float(value))


def fma_rn(a: Value, b: Value, c: Value) -> Value:
    """A * b + c, rounded once."""
    return _intrinsic("fma.rn.f", a, b, c)


def add_rn(a: Value, b: Value) -> Value:
    """A + b."""
    return _intrinsic("add.rn.f", a, b)


def mul_rn(a: Value, b: Value) -> Value:
    """A * b."""
    return _intrinsic("mul.rn.f", a, b)


def div_rn(a: Value, b: Value) -> Value:
    """A / b."""
    return _intrinsic("div.rn.f", a, b)


def reciprocal_rn(a: Value) -> Value:
    """1 / a."""
    return _intrinsic("rcp.rn.f", a)


def sqrt_rn(a: Value) -> Value:
    """The square root."""
    return _intrinsic("sqrt.rn.f", a)


def negative(a: Value) -> Value:
    """-a."""
    return arith.negf(a)


def magnitude_of(a: Value) -> Value:
    """|a|."""
    return _intrinsic("fabs.f", a)


def max_magnitude(a: Value, v: Value) -> Value:
    """The larger magnitude of a >= 0 and v; NaN if either is."""
    return _intrinsic("fmax.nan.f", a, magnitude_of(v))


def min_or_limit(a: Value, limit: Value) -> Value:
    """a, but at most `limit`; limit if a is NaN."""
    return _intrinsic("fmin.f", a, limit)


def with_canonical_nan(a: Value) -> Value:
    """a, its NaNs replaced by one."""
    return arith.select(is_nan(a).value, float_of(UInt(arith.constant(T.i32(), 0x7FFFFFFF))), a)


def is_nan(a: Value) -> UInt:
    """Whether a is NaN."""
    return UInt(arith.cmpf(arith.CmpFPredicate.UNO, a, a))


def is_less(a: Value, b: Value) -> UInt:
    """A < b; False with a NaN."""
    return UInt(arith.cmpf(arith.CmpFPredicate.OLT, a, b))


def is_equal(a: Value, b: Value) -> UInt:
    """A == b; False with a NaN."""
    return UInt(arith.cmpf(arith.CmpFPredicate.OEQ, a, b))


def bits_of(a: Value) -> UInt:
    """The bits of a float."""
    return UInt(llvm.bitcast(T.i32(), a))


def float_of(bits: UInt) -> Value:
    """The float of some bits."""
    return llvm.bitcast(T.f32(), bits.value)


def lane_exchanged(a: Value, mask: int) -> Value:
    """The value of the lane whose number differs in the bits of `mask`."""
    operands = [arith.constant(T.i32(), _FULL_WARP), a, arith.constant(T.i32(), mask), arith.constant(T.i32(), 31)]
    return _intrinsic("shfl.sync.bfly.f32", *operands)


def assembly(
    text: str, constraints: str, *operands: Value, result: ir.Type | None = None, has_effects: bool = False
) -> Value:
    """Inline PTX, with `$0` and so on for the result and the operands."""
    return llvm.inline_asm(
        result, list(operands), text, constraints, has_side_effects=has_effects, is_align_stack=False, asm_dialect=0
    )


def forget(word: UInt) -> UInt:
    """The same word, of which the compiler knows nothing: what was computed from it is computed anew."""
    return UInt(assembly("", "=r,0", word.value, result=T.i32(), has_effects=True))


def _intrinsic(name: str, *operands: Value) -> Value:
    return llvm.call_intrinsic(T.f32(), f"llvm.nvvm.{name}", list(operands), [], [])
