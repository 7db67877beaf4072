"""Runs the PTX of a kernel on the host, thread for thread, so that a machine without a GPU can compare its bytes.

It knows the instructions that our kernels consist of, from CuTe-DSL and from CUDA C++, and fails on any other. All
threads of a grid advance together: those at the lowest instruction first, which is where branches meet again.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
_SHARED_BYTES = 1 << 18
_CLUSTER_SHIFT = 24  # a shared address of a cluster: the block's rank plus 1, above these bits
_NAN = np.uint32(0x7FFFFFFF)
_BITS = {
    "pred": 1,
    "b8": 8,
    "u8": 8,
    "f32": 32,
    "b16": 16,
    "b32": 32,
    "b64": 64,
    "u16": 16,
    "s16": 16,
    "u32": 32,
    "s32": 32,
    "u64": 64,
    "s64": 64,
}
_FP8 = {"e4m3x2": ml_dtypes.float8_e4m3fn, "e5m2x2": ml_dtypes.float8_e5m2}


class Instruction(NamedTuple):
    """A line: executed by the threads whose predicate is as wanted."""

    predicate: str
    is_negated: bool
    opcode: str
    operands: tuple[str, ...]


def run_ptx(
    ptx: str,
    memory: Array,
    parameters: list[int | float],
    grid: int,
    block: int,
    cluster: int = 1,
    *,
    is_uneven: bool = False,
) -> None:
    """Runs the only kernel of `ptx`, whose pointers are offsets into the bytes of `memory`.

    If uneven, the first warp of each block goes ahead as far as barriers let it: what it overwrites, others still need.
    """
    machine = _Machine(ptx, memory, parameters, grid, block, cluster)
    machine.is_uneven = is_uneven
    machine.run()


class _Machine:
    def __init__(
        self, ptx: str, memory: Array, parameters: list[int | float], grid: int, block: int, cluster: int
    ) -> None:
        self.instructions, self.labels, self.shared_symbols = _parse(ptx)
        self.memory, self.count = memory, grid * block
        bits = [np.float32(p).view(np.uint32) if isinstance(p, float) else p & (1 << 64) - 1 for p in parameters]
        self.parameters = [np.uint64(p) for p in bits]
        threads = np.arange(self.count)
        self.tid, self.block = threads % block, threads // block
        self.grid, self.cluster, self.block_size = grid, cluster, block
        self.shared = np.zeros((grid, _SHARED_BYTES), np.uint8)
        self.barriers: dict[tuple[int, int], list[int]] = {}
        self.registers: dict[str, Array] = {}
        self.pc = np.zeros(self.count, np.int64)
        self.waits = np.zeros(self.count, bool)
        self.active = threads
        self.is_uneven = False

    def run(self) -> None:
        end = len(self.instructions)
        for _ in range(1_000_000):
            ready = (self.pc < end) & ~self.waits
            if not ready.any():
                if not self.waits.any():
                    return
                self._release()
                continue
            if self.is_uneven and (ready & (self.tid < 32)).any():
                ready &= self.tid < 32
            at = int(self.pc[ready].min())
            self.active = np.flatnonzero(ready & (self.pc == at))
            self.pc[self.active] += 1
            self._execute(self.instructions[at])
        raise AssertionError("the kernel does not end")

    def _release(self) -> None:
        """All threads are at a barrier or have ended."""
        self.waits[:] = False

    def _execute(self, instruction: Instruction) -> None:
        if instruction.predicate:
            holds = self._read(instruction.predicate, 1).astype(bool) ^ instruction.is_negated
            self.active = self.active[holds]
            if not self.active.size:
                return
        name, *modifiers = instruction.opcode.split(".")
        with np.errstate(all="ignore"):
            getattr(self, f"_do_{name}")(modifiers, instruction.operands)

    # Values

    def _read(self, operand: str, bits: int = 64) -> Array:
        """The operand of each active thread, as an unsigned number."""
        special = {"%tid.x": self.tid, "%ctaid.x": self.block, "%nctaid.x": np.full(self.count, self.grid)}
        if operand in special:
            return special[operand][self.active].astype(np.uint64)
        if operand in self.registers:
            values = self.registers[operand][self.active]
        elif operand in self.shared_symbols:
            values = np.full(self.active.size, self.shared_symbols[operand], np.uint64)
        else:
            number = int(operand[2:], 16) if operand.startswith("0f") else int(operand, 0)
            values = np.full(self.active.size, number & (1 << 64) - 1, np.uint64)
        return values & np.uint64((1 << bits) - 1)

    def _extended(self, operand: str, kind: str) -> Array:
        """The operand of a kind in 64 bits."""
        bits = _BITS[kind]
        values = self._read(operand, bits)
        if kind[0] != "s":
            return values
        sign = np.uint64(1 << (bits - 1))
        return (values ^ sign) - sign

    def _float(self, operand: str, kind: str = "f32") -> Array:
        if kind == "f16":
            return self._read(operand, 16).astype(np.uint16).view(np.float16).astype(np.float32)
        return self._read(operand, 32).astype(np.uint32).view(np.float32)

    def _write(self, register: str, values: Array, bits: int = 64) -> None:
        whole = self.registers.setdefault(register, np.zeros(self.count, np.uint64))
        whole[self.active] = values.astype(np.uint64) & np.uint64((1 << bits) - 1)

    def _write_float(self, register: str, values: Array) -> None:
        values = np.asarray(values, np.float32)
        self._write(register, np.where(np.isnan(values), _NAN, values.view(np.uint32)))

    # Memory

    def _address(self, operand: str) -> Array:
        base, _, offset = operand.strip("[]").partition("+")
        return self._read(base) + np.uint64(int(offset or 0) & (1 << 64) - 1)

    def _bytes(self, space: str, operand: str) -> tuple[Array, Any]:
        """The flat memory of a space, and where in it each thread's address is."""
        address = self._address(operand).astype(np.int64)
        if space == "global":
            return self.memory, address
        block = self.block[self.active]
        if space == "shared::cluster":
            rank = (address >> _CLUSTER_SHIFT) - 1
            block, address = block // self.cluster * self.cluster + rank, address & (1 << _CLUSTER_SHIFT) - 1
        return self.shared.reshape(-1), block * _SHARED_BYTES + address

    def _do_ld(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        space, kind = modifiers[0], modifiers[-1]
        size = _BITS[kind] // 8
        if space == "param":
            number = int(operands[1].strip("[]").rpartition("_")[2])
            self._write(operands[0], np.full(self.active.size, self.parameters[number]))
            return
        flat, at = self._bytes(space, operands[1])
        targets = operands[0].strip("{}").replace(" ", "").split(",")
        assert not (at % (size * len(targets))).any(), "misaligned load"
        for i, target in enumerate(targets):
            each = [flat[at + size * i + b].astype(np.uint64) << np.uint64(8 * b) for b in range(size)]
            self._write(target, np.bitwise_or.reduce(each))

    def _do_st(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        size = _BITS[modifiers[-1]] // 8
        flat, at = self._bytes(modifiers[0], operands[0])
        sources = operands[1].strip("{}").replace(" ", "").split(",")
        assert not (at % (size * len(sources))).any(), "misaligned store"
        for i, source in enumerate(sources):
            values = self._read(source)
            for b in range(size):
                flat[at + size * i + b] = (values >> np.uint64(8 * b)).astype(np.uint8)

    def _do_red(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        assert modifiers == ["global", "max", "u32"]
        values = self._read(operands[1], 32).astype(np.uint32)
        for at, value in zip(self._address(operands[0]), values, strict=True):
            word = self.memory[int(at) : int(at) + 4].view(np.uint32)
            word[0] = max(word[0], value)

    def _do_cvta(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        self._write(operands[0], self._read(operands[1]))

    def _do_mapa(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        rank = self._read(operands[2]) + np.uint64(1)
        self._write(operands[0], self._read(operands[1]) | rank << np.uint64(_CLUSTER_SHIFT))

    def _do_mbarrier(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        """Phases end with one arrival and all bytes announced; copies are there as soon as they begin."""
        if modifiers[0] == "init":
            for barrier in self._barriers(operands[0]):
                self.barriers[barrier] = [0, 0, 0]  # the parity of the phase, arrivals, bytes to come
        elif modifiers[:2] == ["arrive", "expect_tx"]:
            for barrier, size in zip(self._barriers(operands[1]), self._read(operands[2], 32), strict=True):
                state = self.barriers[barrier]
                state[1] += 1
                state[2] += int(size)
                self._end_phase(state)
        else:
            assert modifiers[:2] == ["try_wait", "parity"]
            parities = self._read(operands[2], 1)
            pairs = zip(self._barriers(operands[1]), parities, strict=True)
            self._write(operands[0], np.array([self.barriers[barrier][0] != parity for barrier, parity in pairs]), 1)

    def _barriers(self, operand: str) -> list[tuple[int, int]]:
        """Of each active thread, the block and the address of a barrier."""
        return list(zip(self.block[self.active].tolist(), self._address(operand).tolist(), strict=True))

    def _end_phase(self, state: list[int]) -> None:
        assert state[2] >= 0, "more bytes came than were announced"
        if state[1] == 1 and state[2] == 0:
            state[:] = [1 - state[0], 0, 0]

    def _do_fence(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        pass

    def _do_cp(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        assert modifiers[:3] == ["async", "bulk", "shared::cluster"]
        to, source, size = (self._address(operand) for operand in operands[:3])
        assert not ((to | source | size) % 16).any(), "misaligned copy"
        for i, barrier in enumerate(self._barriers(operands[3])):
            memory = self.memory[int(source[i]) :][: int(size[i])]
            assert memory.size == size[i], "the copy reads past the memory"
            self.shared[barrier[0], int(to[i]) :][: int(size[i])] = memory
            self.barriers[barrier][2] -= int(size[i])
            self._end_phase(self.barriers[barrier])

    # Control

    def _do_bra(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        self.pc[self.active] = self.labels[operands[0]]

    def _do_ret(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        self.pc[self.active] = len(self.instructions)

    def _do_cvta(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        self._write(operands[0], self._read(operands[1]))

    def _do_bar(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        self.waits[self.active] = True

    def _do_barrier(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        if "wait" in modifiers:
            self.waits[self.active] = True

    def _do_griddepcontrol(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        pass

    def _do_shfl(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        assert modifiers[:2] == ["sync", "bfly"]
        source = self.registers[operands[1]]
        assert self.active.size % 32 == 0, "a warp is not together"
        partner = self.active ^ self._read(operands[2], 32).astype(np.int64)
        self._write(operands[0].partition("|")[0], source[partner])

    def _do_redux(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        assert modifiers == ["sync", "max", "u32"]
        assert self.active.size % 32 == 0, "a warp is not together"
        of_warps = self._read(operands[1], 32).reshape(-1, 32).max(axis=1)
        self._write(operands[0], np.repeat(of_warps, 32), 32)

    # Integers

    def _integers(self, modifiers: list[str], operands: tuple[str, ...], operate: Any) -> None:
        bits = _BITS[modifiers[-1]]
        values = [self._read(operand, bits) for operand in operands[1:]]
        self._write(operands[0], operate(*values), bits)

    def _signed(self, operand: str, bits: int) -> Array:
        return self._read(operand, bits).astype(np.int64) << (64 - bits) >> (64 - bits)

    def _do_and(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        self._integers(modifiers, operands, np.bitwise_and)

    def _do_or(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        self._integers(modifiers, operands, np.bitwise_or)

    def _do_xor(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        self._integers(modifiers, operands, np.bitwise_xor)

    def _do_not(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        self._integers(modifiers, operands, np.bitwise_not)

    def _do_shl(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        self._integers(modifiers, operands, np.left_shift)

    def _do_shr(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        kind = modifiers[-1]
        values, by = self._extended(operands[1], kind), self._read(operands[2], 32)
        shifted = values.view(np.int64) >> by.astype(np.int64) if kind[0] == "s" else values >> by
        self._write(operands[0], shifted, _BITS[kind])

    def _do_shf(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        assert modifiers == ["l", "wrap", "b32"]
        low, high, by = (self._read(operand, 32) for operand in operands[1:])
        self._write(operands[0], ((high << np.uint64(32) | low) << (by & np.uint64(31))) >> np.uint64(32), 32)

    def _do_bfi(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        bits = _BITS[modifiers[0]]
        inserted, base, at, length = (self._read(operand, bits) for operand in operands[1:])
        mask = ((np.uint64(1) << length) - np.uint64(1)) << at
        self._write(operands[0], (base & ~mask) | (inserted << at & mask), bits)

    def _do_lop3(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        a, b, c = (self._read(operand, 32) for operand in operands[1:4])
        table, result = int(operands[4], 0), np.zeros_like(a)
        for case in range(8):
            if table >> case & 1:
                result |= (a if case & 4 else ~a) & (b if case & 2 else ~b) & (c if case & 1 else ~c)
        self._write(operands[0], result, 32)

    def _do_mad(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        assert modifiers[0] == "lo"
        self._integers(modifiers, operands, lambda a, b, c: a * b + c)

    def _do_selp(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        holds = self._read(operands[3], 1).astype(bool)
        self._write(operands[0], np.where(holds, self._read(operands[1]), self._read(operands[2])))

    def _do_mov(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        if operands[1].startswith("{"):
            parts = operands[1].strip("{}").replace(" ", "").split(",")
            bits = _BITS[modifiers[0]] // len(parts)
            each = [self._read(part, bits) << np.uint64(bits * i) for i, part in enumerate(parts)]
            self._write(operands[0], np.bitwise_or.reduce(each))
        elif operands[0].startswith("{"):
            parts = operands[0].strip("{}").replace(" ", "").split(",")
            bits, value = _BITS[modifiers[0]] // len(parts), self._read(operands[1])
            for i, part in enumerate(parts):
                if part != "_":
                    self._write(part, value >> np.uint64(bits * i), bits)
        else:
            self._write(operands[0], self._read(operands[1]))

    def _do_setp(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        compare, kind = modifiers[0], modifiers[-1]
        if kind == "f32":
            a, b = (self._float(operand) for operand in operands[1:])
            unordered = np.isnan(a) | np.isnan(b)
            if compare in ("nan", "num"):
                result = unordered == (compare == "nan")
            else:
                plain = compare.removesuffix("u") if len(compare) == 3 else compare
                result = getattr(np, _COMPARISONS[plain])(a, b)
                result = result | unordered if compare != plain else result & ~unordered
        else:
            a, b = (self._read(operand, _BITS[kind]) for operand in operands[1:])
            if kind[0] == "s":  # moved up by half the range, signed numbers have the order of unsigned ones
                a, b = (values ^ np.uint64(1 << (_BITS[kind] - 1)) for values in (a, b))
            result = getattr(np, _COMPARISONS[compare])(a, b)
        self._write(operands[0], result, 1)

    # Numbers of either kind

    def _do_add(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        if modifiers[0] not in ("rn", "f32"):
            self._integers(modifiers, operands, np.add)
            return
        self._write_float(operands[0], self._float(operands[1], modifiers[-1]) + self._float(operands[2]))

    def _do_sub(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        if modifiers[0] != "rn":
            self._integers(modifiers, operands, np.subtract)
            return
        assert modifiers == ["rn", "f32"]
        self._write_float(operands[0], self._float(operands[1]) - self._float(operands[2]))

    def _do_mul(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        if modifiers == ["rn", "f32"]:
            self._write_float(operands[0], self._float(operands[1]) * self._float(operands[2]))
        elif modifiers[0] == "wide":
            kind = modifiers[1]
            product = self._extended(operands[1], kind) * self._extended(operands[2], kind)
            self._write(operands[0], product, 2 * _BITS[kind])
        else:
            assert modifiers[0] == "lo"
            self._integers(modifiers, operands, np.multiply)

    def _do_div(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        if modifiers == ["rn", "f32"]:
            self._write_float(operands[0], self._float(operands[1]) / self._float(operands[2]))
        else:
            self._integers(modifiers, operands, np.floor_divide)

    def _do_rem(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        assert modifiers[0] in ("u32", "u64")
        self._integers(modifiers, operands, np.remainder)

    # Floats

    def _do_fma(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        assert modifiers[:2] == ["rn", "f32"]
        a, b = (self._float(operand, modifiers[-1]) for operand in operands[1:3])
        c = self._float(operands[3])
        self._write_float(operands[0], fma(a, b, c))

    def _do_rcp(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        values = np.float32(1) / self._float(operands[1])
        if modifiers == ["approx", "ftz", "f32"]:
            exact = np.float32(1) / _flushed(self._float(operands[1]))
            # Of a normal result, the error is an ulp at most: here it always is.
            values = _flushed(np.where(np.isinf(exact), exact, np.nextafter(exact, np.float32(0))))
        else:
            assert modifiers == ["rn", "f32"]
        self._write_float(operands[0], values)

    def _do_sqrt(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        assert modifiers == ["rn", "f32"]
        self._write_float(operands[0], np.sqrt(self._float(operands[1])))

    def _do_neg(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        self._write(operands[0], self._read(operands[1], 32) ^ np.uint64(1 << 31))

    def _do_abs(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        self._write(operands[0], self._read(operands[1], 31))

    def _do_max(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        if modifiers[0] in ("s32", "u32"):
            read = self._signed if modifiers[0] == "s32" else self._read
            self._write(operands[0], np.maximum(read(operands[1], 32), read(operands[2], 32)), 32)
            return
        assert modifiers == ["NaN", "f32"]
        self._write_float(operands[0], np.maximum(self._float(operands[1]), self._float(operands[2])))

    def _do_min(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        if modifiers[0] in ("s32", "u32"):
            read = self._signed if modifiers[0] == "s32" else self._read
            self._write(operands[0], np.minimum(read(operands[1], 32), read(operands[2], 32)), 32)
            return
        assert modifiers == ["f32"]
        self._write_float(operands[0], np.fmin(self._float(operands[1]), self._float(operands[2])))

    def _do_cvt(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        if modifiers[0] != "rn":
            self._convert_exactly(modifiers, operands)
            return
        kind = modifiers[-2]
        if len(operands) == 2:
            self._write(operands[0], _rounded(self._float(operands[1]), f"{kind}x2"))
            return
        high, low = (self._float(operand) for operand in operands[1:])
        pair = [_rounded(values, kind) for values in (low, high)]
        bits = {"bf16x2": 16, "f16x2": 16, "e2m1x2": 4}.get(kind, 8)
        self._write(operands[0], pair[0] | pair[1] << np.uint64(bits))

    def _convert_exactly(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        to, of = modifiers
        if of == "f16":
            assert to == "f32"
            self._write_float(operands[0], self._float(operands[1], "f16"))
        else:
            self._write(operands[0], self._extended(operands[1], of), _BITS[to])


_COMPARISONS = {
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal",
}  # fmt: skip


def fma(a: Array, b: Array, c: Array) -> Array:
    """a * b + c of float32, rounded once: the product is exact in 64 bits, the sum is rounded to odd there."""
    product = a.astype(np.float64) * b.astype(np.float64)
    total = product + c
    # What was cut off, by the exact sum of two numbers; an inexact even sum is moved to its odd neighbour.
    part = total - product
    lost = (product - (total - part)) + (c - part)
    bits = total.view(np.int64)
    is_even = (bits & 1) == 0
    away = np.where((lost > 0) == (total > 0), 1, -1)
    is_inexact = np.isfinite(total) & (lost != 0) & is_even
    return np.where(is_inexact, bits + away, bits).view(np.float64).astype(np.float32)


def _flushed(values: Array) -> Array:
    """Zeros for what is not normal, as .ftz has it."""
    return np.where(np.abs(values) < np.finfo(np.float32).tiny, np.float32(0) * values, values).astype(np.float32)


def _rounded(values: Array, kind: str) -> Array:
    """The codes of float32 in a format, saturating below 16 bits, NaN as the GPU has it."""
    nan = np.isnan(values)
    if kind == "f16x2":
        codes = values.astype(np.float16).view(np.uint16)
        return np.where(nan, 0x7FFF, codes).astype(np.uint64)
    if kind == "bf16x2":
        codes = values.astype(ml_dtypes.bfloat16).view(np.uint16)
        return np.where(nan, 0x7FFF, codes).astype(np.uint64)
    if kind == "e2m1x2":
        codes = np.clip(values, -6, 6).astype(ml_dtypes.float4_e2m1fn).view(np.uint8) & 0xF
        return np.where(nan, 7, codes).astype(np.uint64)
    dtype = _FP8[kind]
    limit = float(ml_dtypes.finfo(dtype).max)
    codes = np.clip(values, -limit, limit).astype(dtype).view(np.uint8)
    return np.where(nan, 0x7F, codes).astype(np.uint64)


def _parse(ptx: str) -> tuple[list[Instruction], dict[str, int], dict[str, int]]:
    """The instructions, where labels point to, and the addresses of arrays in shared memory."""
    shared, top = {}, 1024
    found_arrays = re.findall(r"\.shared \.align (\d+) \.b8 ([\w$]+)\[(\d*)\]", ptx)
    for alignment, name, size in sorted(found_arrays, key=lambda found: not found[2]):  # the dynamic one is last
        top = -(-top // int(alignment)) * int(alignment)
        shared[name] = top
        top += int(size or 0)
    assert top <= _SHARED_BYTES
    entry = ptx.index(".reqntid" if ".reqntid" in ptx else ".maxntid")
    body = re.sub(r"//.*", "", ptx[entry:].partition("{")[2].rpartition("}")[0])
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    # A block of inline assembly has braces on lines of their own.
    for line in re.split(r"[;\n]", re.sub(r"(?m)^\s*[{}]\s*$", "", body)):
        text = line.strip()
        while found := re.match(r"([$\w]+):\s*", text):
            labels[found[1]] = len(instructions)
            text = text[found.end() :]
        if not text or text.startswith("."):
            continue
        parsed = re.match(r"(?:@(!?)(%?\w+)\s+)?([\w.:]+)\s*(.*)", text)
        assert parsed, text
        operands = re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^\s,{}\[\]]+", parsed[4])
        instructions.append(Instruction(parsed[2] or "", bool(parsed[1]), parsed[3], tuple(operands)))
    return instructions, labels, shared
