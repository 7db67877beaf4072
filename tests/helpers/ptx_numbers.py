"""The arithmetic of PTX: integers, floats and conversions, bit for bit as on a GPU."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from ptx_arithmetic import flushed, fma, fma_up, halves_of, high_words, rounded, sign
from ptx_registers import BITS, Array, Registers

_INTEGERS = ("s32", "u32", "s64", "u64")


class Numbers(Registers):
    """Registers, and the instructions that compute with them."""

    def _integers(self, modifiers: list[str], operands: tuple[str, ...], operate: Any) -> None:
        bits = BITS[modifiers[-1]]
        values = [self.read(operand, bits) for operand in operands[1:]]
        self.write(operands[0], operate(*values), bits)

    def _signed(self, operand: str, bits: int) -> Array:
        return self.read(operand, bits).astype(np.int64) << (64 - bits) >> (64 - bits)

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
        values, by = self.extended(operands[1], kind), self.read(operands[2], 32)
        shifted = values.view(np.int64) >> by.astype(np.int64) if kind[0] == "s" else values >> by
        self.write(operands[0], shifted, BITS[kind])

    def _do_brev(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        bits = np.unpackbits(self.read(operands[1], 32).astype("<u4").view(np.uint8), bitorder="little").reshape(-1, 32)
        self.write(operands[0], np.packbits(bits, axis=1).view(">u4")[:, 0].astype(np.uint64), 32)

    def _do_bfind(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        """The number of zeros before the highest one bit; all ones if there is none."""
        assert modifiers == ["shiftamt", "u32"]
        values = self.read(operands[1], 32)
        zeros = [32 - int(value).bit_length() if value else (1 << 32) - 1 for value in values]
        self.write(operands[0], np.array(zeros, np.uint64), 32)

    def _do_clz(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        """The number of zeros before the highest one bit."""
        assert modifiers == ["b32"]
        zeros = [32 - int(value).bit_length() for value in self.read(operands[1], 32)]
        self.write(operands[0], np.array(zeros, np.uint64), 32)

    def _do_shf(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        assert modifiers[1:] == ["wrap", "b32"]
        low, high, by = (self.read(operand, 32) for operand in operands[1:])
        both, by = high << np.uint64(32) | low, by & np.uint64(31)
        self.write(operands[0], both >> by if modifiers[0] == "r" else both << by >> np.uint64(32), 32)

    def _do_prmt(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        assert modifiers == ["b32"]
        low, high, selectors = (self.read(operand, 32) for operand in operands[1:])
        both, result = high << np.uint64(32) | low, np.zeros_like(low)
        for i in range(4):
            selector = selectors >> np.uint64(4 * i)
            byte = both >> ((selector & np.uint64(7)) * np.uint64(8)) & np.uint64(0xFF)
            sign = np.where(byte >> np.uint64(7), np.uint64(0xFF), np.uint64(0))
            result |= np.where(selector & np.uint64(8), sign, byte) << np.uint64(8 * i)
        self.write(operands[0], result, 32)

    def _do_bfi(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        bits = BITS[modifiers[0]]
        inserted, base, at, length = (self.read(operand, bits) for operand in operands[1:])
        mask = ((np.uint64(1) << length) - np.uint64(1)) << at
        self.write(operands[0], (base & ~mask) | (inserted << at & mask), bits)

    def _do_lop3(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        a, b, c = (self.read(operand, 32) for operand in operands[1:4])
        table, result = int(operands[4], 0), np.zeros_like(a)
        for case in range(8):
            if table >> case & 1:
                result |= (a if case & 4 else ~a) & (b if case & 2 else ~b) & (c if case & 1 else ~c)
        self.write(operands[0], result, 32)

    def _do_mad(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        assert modifiers[0] == "lo"
        self._integers(modifiers, operands, lambda a, b, c: a * b + c)

    def _do_selp(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        holds = self.read(operands[3], 1).astype(bool)
        self.write(operands[0], np.where(holds, self.read(operands[1]), self.read(operands[2])))

    def _do_mov(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        if operands[1].startswith("{"):
            parts = operands[1].strip("{}").replace(" ", "").split(",")
            bits = BITS[modifiers[0]] // len(parts)
            each = [self.read(part, bits) << np.uint64(bits * i) for i, part in enumerate(parts)]
            self.write(operands[0], np.bitwise_or.reduce(each))
        elif operands[0].startswith("{"):
            parts = operands[0].strip("{}").replace(" ", "").split(",")
            bits, value = BITS[modifiers[0]] // len(parts), self.read(operands[1])
            for i, part in enumerate(parts):
                if part != "_":
                    self.write(part, value >> np.uint64(bits * i), bits)
        else:
            self.write(operands[0], self.read(operands[1]))

    def _do_setp(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        compare, kind = modifiers[0], modifiers[-1]
        if kind == "f32":
            a, b = (self.float(operand) for operand in operands[1:])
            unordered = np.isnan(a) | np.isnan(b)
            if compare in ("nan", "num"):
                result = unordered == (compare == "nan")
            else:
                plain = compare.removesuffix("u") if len(compare) == 3 else compare
                result = getattr(np, _COMPARISONS[plain])(a, b)
                result = result | unordered if compare != plain else result & ~unordered
        else:
            a, b = (self.read(operand, BITS[kind]) for operand in operands[1:])
            if kind[0] == "s":  # moved up by half the range, signed numbers have the order of unsigned ones
                a, b = (values ^ np.uint64(1 << (BITS[kind] - 1)) for values in (a, b))
            result = getattr(np, _COMPARISONS[compare])(a, b)
        self.write(operands[0], result, 1)

    # Numbers of either kind

    def _do_add(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        if modifiers[0] not in ("rn", "f32"):
            self._integers(modifiers, operands, np.add)
            return
        self.write_float(
            operands[0], self.float(operands[1], modifiers[-1]) + self.float(operands[2], _wide(modifiers))
        )

    def _do_sub(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        if modifiers[0] != "rn":
            self._integers(modifiers, operands, np.subtract)
            return
        assert modifiers == ["rn", "f32"]
        self.write_float(operands[0], self.float(operands[1]) - self.float(operands[2]))

    def _do_mul(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        if modifiers in (["rn", "f32"], ["rn", "f32x2"]):
            self.write_float(operands[0], np.multiply(*(self.float(each, modifiers[1]) for each in operands[1:])))
        elif modifiers == ["rn", "f16x2"]:
            self._for_halves(operands, np.multiply)
        elif modifiers[0] == "wide":
            kind = modifiers[1]
            product = self.extended(operands[1], kind) * self.extended(operands[2], kind)
            self.write(operands[0], product, 2 * BITS[kind])
        elif modifiers[0] == "hi":
            kind = modifiers[1]
            a, b = (self.extended(operand, kind) for operand in operands[1:])
            if BITS[kind] == 64:
                high = high_words(a, b) - (a * sign(b) + b * sign(a) if kind == "s64" else np.uint64(0))
            else:
                high = a * b >> np.uint64(BITS[kind])
            self.write(operands[0], high, BITS[kind])
        else:
            assert modifiers[0] == "lo"
            self._integers(modifiers, operands, np.multiply)

    def _do_div(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        if modifiers == ["rn", "f32"]:
            self.write_float(operands[0], self.float(operands[1]) / self.float(operands[2]))
        else:
            self._integers(modifiers, operands, np.floor_divide)

    def _do_rem(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        assert modifiers[0] in ("u32", "u64")
        self._integers(modifiers, operands, np.remainder)

    # Floats

    def _do_fma(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        assert modifiers[:2] in (["rn", "f32"], ["rp", "f32"], ["rn", "f32x2"])
        a, b = (self.float(operand, modifiers[-1]) for operand in operands[1:3])
        c = self.float(operands[3], _wide(modifiers))
        self.write_float(operands[0], (fma if modifiers[0] == "rn" else fma_up)(a, b, c))

    def _do_rcp(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        values = np.float32(1) / self.float(operands[1])
        if modifiers == ["approx", "ftz", "f32"]:
            exact = np.float32(1) / flushed(self.float(operands[1]))
            # Of a normal result, the error is an ulp at most: here it always is, except where one of Newton's steps
            # would not make up for it. The GPU's exact reciprocal takes that step, too, so there is no error there.
            has_all_ones = self.read(operands[1], 23) == (1 << 23) - 1
            has_error = ~(np.isinf(exact) | has_all_ones)
            values = flushed(np.where(has_error, np.nextafter(exact, np.float32(0)), exact))
        else:
            assert modifiers == ["rn", "f32"]
        self.write_float(operands[0], values)

    def _do_ex2(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        assert modifiers == ["approx", "ftz", "f32"]
        # The error is 2 ulp at most: here it always is, except of powers of zero, and of infinity.
        values = flushed(self.float(operands[1]))
        exact = np.exp2(values.astype(np.float64)).astype(np.float32)
        up = np.nextafter(np.nextafter(exact, np.float32(np.inf)), np.float32(np.inf))
        self.write_float(operands[0], flushed(np.where((values == 0) | np.isinf(values), exact, up)))

    def _do_sqrt(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        assert modifiers == ["rn", "f32"]
        self.write_float(operands[0], np.sqrt(self.float(operands[1])))

    def _do_rsqrt(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        assert modifiers == ["approx", "ftz", "f32"]
        values = self.float(operands[1])
        # The error is 2^-22.9 of a result at most: an ulp, of those that are less than 1.6 times a power of two.
        exact = (1 / np.sqrt(values.astype(np.float64))).astype(np.float32)
        self.write_float(operands[0], np.nextafter(exact, np.float32(np.inf)))

    def _do_neg(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        if modifiers[0] in _INTEGERS:
            bits = BITS[modifiers[0]]
            self.write(operands[0], -self._signed(operands[1], bits), bits)
            return
        assert modifiers[-1] == "f32"
        self.write(operands[0], self.read(operands[1], 32) ^ np.uint64(1 << 31))

    def _do_abs(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        mask = 0x7FFF7FFF if modifiers == ["f16x2"] else 0x7FFFFFFF
        self.write(operands[0], self.read(operands[1], 32) & np.uint64(mask))

    def _extremes(self, modifiers: list[str], operands: tuple[str, ...], choose: Any) -> None:
        kind = modifiers[-1]
        read, bits = self._signed if kind[0] == "s" else self.read, BITS[kind]
        chosen = choose(read(operands[1], bits), read(operands[2], bits))
        self.write(operands[0], np.maximum(chosen, 0) if modifiers[0] == "relu" else chosen, bits)

    def _for_halves(self, operands: tuple[str, ...], operate: Any) -> None:
        halves = operate(*(halves_of(self.read(operand, 32)) for operand in operands[1:]))
        self._write_halves(operands[0], halves)

    def _write_halves(self, operand: str, halves: Array) -> None:
        pairs = np.where(np.isnan(halves), np.uint16(0x7FFF), halves.view(np.uint16)).view(np.uint32)
        self.write(operand, pairs[:, 0].astype(np.uint64), 32)

    def _do_max(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        if modifiers[-1] in _INTEGERS:
            self._extremes(modifiers, operands, np.maximum)
            return
        if modifiers == ["NaN", "f16x2"]:
            self._for_halves(operands, np.maximum)
            return
        if modifiers == ["xorsign", "abs", "f32"]:
            self._choose_magnitude(operands, np.fmax)
            return
        choose = {"f32": np.fmax, "NaN.f32": np.maximum}[".".join(modifiers)]
        a, b = (self.float(operand) for operand in operands[1:])
        of_same = (a.view(np.uint32) & b.view(np.uint32)).view(np.float32)  # of zeros, +0 is the greater
        self.write_float(operands[0], np.where(a == b, of_same, choose(a, b)))

    def _choose_magnitude(self, operands: tuple[str, ...], choose: np.ufunc) -> None:
        """One of two magnitudes, with the exclusive or of both signs."""
        a, b = (self.float(operand) for operand in operands[1:])
        chosen = choose(np.abs(a), np.abs(b))
        self.write_float(operands[0], np.where(np.signbit(a) ^ np.signbit(b), -chosen, chosen))

    def _do_min(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        if modifiers[-1] in _INTEGERS:
            self._extremes(modifiers, operands, np.minimum)
            return
        if modifiers == ["xorsign", "abs", "f32"]:
            self._choose_magnitude(operands, np.fmin)
            return
        if modifiers == ["f16x2"]:
            self._for_halves(operands, np.fmin)
            return
        choose = {"f32": np.fmin, "NaN.f32": np.minimum}[".".join(modifiers)]
        a, b = (self.float(operand) for operand in operands[1:])
        of_same = (a.view(np.uint32) | b.view(np.uint32)).view(np.float32)  # of zeros, -0 is the less
        self.write_float(operands[0], np.where(a == b, of_same, choose(a, b)))

    def _do_cvt(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        if modifiers[0] == "pack":
            self._pack(modifiers, operands)
            return
        if modifiers[0] == "rni":
            self._round_to_integers(modifiers, operands)
            return
        if modifiers[0] != "rn":
            self._convert_exactly(modifiers, operands)
            return
        if modifiers == ["rn", "f16x2", "e4m3x2"]:
            codes = self.read(operands[1], 16).astype("<u2").view(ml_dtypes.float8_e4m3fn).reshape(-1, 2)
            self._write_halves(operands[0], codes.astype(np.float16))
            return
        if modifiers == ["rn", "f32", "s32"]:
            self.write_float(operands[0], self._signed(operands[1], 32).astype(np.float32))
            return
        kind = modifiers[-2]
        if len(operands) == 2:
            self.write(operands[0], rounded(self.float(operands[1]), f"{kind}x2"))
            return
        high, low = (self.float(operand) for operand in operands[1:])
        pair = [rounded(values, kind) for values in (low, high)]
        bits = {"bf16x2": 16, "f16x2": 16, "e2m1x2": 4}.get(kind, 8)
        self.write(operands[0], pair[0] | pair[1] << np.uint64(bits))

    def _round_to_integers(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        """Round to nearest even, saturating; NaN becomes 0."""
        assert modifiers == ["rni", "s32", "f32"]
        values = self.float(operands[1]).astype(np.float64)
        rounded = np.rint(np.where(np.isnan(values), 0, values)).clip(-(1 << 31), (1 << 31) - 1)
        self.write(operands[0], rounded.astype(np.int64), 32)

    def _pack(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        """Two saturated bytes, the second one the lowest, below two others."""
        assert modifiers == ["pack", "sat", "s8", "s32", "b32"]
        high, low = (self._signed(operand, 32).clip(-128, 127) & 0xFF for operand in operands[1:3])
        others = self.read(operands[3], 16).astype(np.int64)
        self.write(operands[0], low | high << 8 | others << 16, 32)

    def _convert_exactly(self, modifiers: list[str], operands: tuple[str, ...]) -> None:
        to, of = modifiers
        if of == "f16":
            assert to == "f32"
            self.write_float(operands[0], self.float(operands[1], "f16"))
        else:
            self.write(operands[0], self.extended(operands[1], of), BITS[to])
            if to == "s8":  # no register is that narrow
                self.write(operands[0], self.extended(operands[0], to), 16)


_COMPARISONS = {
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal",
}  # fmt: skip


def _wide(modifiers: list[str]) -> str:
    """The kind of what is added: only what it is added to may be narrower."""
    return "f32x2" if modifiers[-1] == "f32x2" else "f32"
