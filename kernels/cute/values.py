"""Values of a kernel that is being traced: unsigned integers with operators, and the control flow around them.

Floats are bare MLIR values, which have operators that may be contracted: `intrinsics` alone computes with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from cutlass._mlir import ir
from cutlass._mlir.dialects import arith, llvm, scf

Value = Any  # an ir.Value, which has no types for checkers


class UInt:
    """An unsigned integer of 32 or 64 bits, or a truth value of 1, that wraps around.

    Operators take another of the same width or a Python integer.
    """

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value

    @property
    def width(self) -> int:
        """The number of its bits."""
        return int(self.value.type.width)

    def __add__(self, other: UInt | int) -> UInt:
        return self if other == 0 else UInt(arith.addi(self.value, self._operand(other)))

    def __sub__(self, other: UInt | int) -> UInt:
        return UInt(arith.subi(self.value, self._operand(other)))

    def __mul__(self, other: UInt | int) -> UInt:
        return self if other == 1 else UInt(arith.muli(self.value, self._operand(other)))

    def __floordiv__(self, other: UInt | int) -> UInt:
        return self if other == 1 else UInt(arith.divui(self.value, self._operand(other)))

    def __mod__(self, other: UInt | int) -> UInt:
        return UInt(arith.remui(self.value, self._operand(other)))

    def __lshift__(self, other: UInt | int) -> UInt:
        return UInt(arith.shli(self.value, self._operand(other)))

    def __rshift__(self, other: UInt | int) -> UInt:
        return UInt(arith.shrui(self.value, self._operand(other)))

    def __and__(self, other: UInt | int) -> UInt:
        return UInt(arith.andi(self.value, self._operand(other)))

    def __or__(self, other: UInt | int) -> UInt:
        return UInt(arith.ori(self.value, self._operand(other)))

    def __xor__(self, other: UInt | int) -> UInt:
        return UInt(arith.xori(self.value, self._operand(other)))

    def __lt__(self, other: UInt | int) -> UInt:
        return self._compare(arith.CmpIPredicate.ult, other)

    def __gt__(self, other: UInt | int) -> UInt:
        return self._compare(arith.CmpIPredicate.ugt, other)

    def __ge__(self, other: UInt | int) -> UInt:
        return self._compare(arith.CmpIPredicate.uge, other)

    def equals(self, other: UInt | int) -> UInt:
        """Whether both are the same number."""
        return self._compare(arith.CmpIPredicate.eq, other)

    def differs(self, other: UInt | int) -> UInt:
        """Whether they are not."""
        return self._compare(arith.CmpIPredicate.ne, other)

    def wide(self) -> UInt:
        """The same number in 64 bits."""
        return self if self.width == 64 else UInt(arith.extui(_integer(64), self.value))

    def narrow(self, width: int = 32) -> UInt:
        """The lowest bits of the number."""
        return self if self.width == width else UInt(arith.trunci(_integer(width), self.value))

    def as_u32(self) -> UInt:
        """A truth value or a short number in 32 bits."""
        return self if self.width == 32 else UInt(arith.extui(_integer(32), self.value))

    def _compare(self, predicate: Any, other: UInt | int) -> UInt:
        return UInt(arith.cmpi(predicate, self.value, self._operand(other)))

    def _operand(self, other: UInt | int) -> Value:
        if isinstance(other, UInt):
            return other.value
        return _constant(self.width, other)


def u32(value: int) -> UInt:
    """A constant of 32 bits."""
    return UInt(_constant(32, value))


def select(condition: UInt, if_true: UInt, if_false: UInt | int) -> UInt:
    """One of two integers, without a branch."""
    return UInt(arith.select(condition.value, if_true.value, if_true._operand(if_false)))


def select_value(condition: UInt, if_true: Value, if_false: Value) -> Value:
    """One of two floats, without a branch."""
    return arith.select(condition.value, if_true, if_false)


@contextmanager
def when(condition: UInt | None) -> Iterator[None]:
    """Run what is traced within only if the condition holds; None always holds."""
    if condition is None:
        yield
        return
    branch = scf.IfOp(condition.value)
    with ir.InsertionPoint(branch.then_block):
        yield
        scf.yield_([])


def choose(
    condition: UInt, if_true: Callable[[], Sequence[Value]], if_false: Callable[[], Sequence[Value]], types: list[Any]
) -> list[Value]:
    """The values, of the given types, of one of two branches."""
    branch = scf.IfOp(condition.value, types, has_else=True)
    for block, values in ((branch.then_block, if_true), (branch.else_block, if_false)):
        with ir.InsertionPoint(block):
            scf.yield_(list(values()))
    return list(branch.results)


def loop(
    start: UInt,
    stop: UInt,
    step: UInt | int,
    carried: Sequence[Value],
    body: Callable[[UInt, list[Value]], Sequence[Value]],
) -> list[Value]:
    """The values carried through a loop that is not unrolled: `body` makes the next ones of the index and the last."""
    steps = scf.ForOp(start.value, stop.value, start._operand(step), list(carried))
    steps.attributes["loop_annotation"] = ir.Attribute.parse("#llvm.loop_annotation<unroll = <disable = true>>")
    with ir.InsertionPoint(steps.body):
        scf.yield_(list(body(UInt(steps.induction_variable), list(steps.inner_iter_args))))
    return list(steps.results)


def pointer(address: UInt) -> Value:
    """The pointer to global memory (64 bits) or to shared memory (32 bits) at an address."""
    return llvm.inttoptr(llvm.PointerType.get(1 if address.width == 64 else 3), address.value)


def _integer(width: int) -> Any:
    return ir.IntegerType.get_signless(width)


def _constant(width: int, value: int) -> Value:
    # Attributes hold signed numbers.
    bits = value & ((1 << width) - 1)
    signed = bits - (1 << width) if width > 1 and bits >> (width - 1) else bits
    return arith.constant(_integer(width), signed)
