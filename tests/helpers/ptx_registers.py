"""The registers of all threads of a grid: operands as numbers, for the active threads."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
_NAN, _ARBITRARY = np.uint32(0x7FFFFFFF), np.uint64(0xA55AC33CA55AC33C)
_NARROW: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}
BITS = {
    "pred": 1,
    "b8": 8,
    "u8": 8,
    "s8": 8,
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


class Registers:
    """The registers of the threads of one or more grids, whose blocks are numbered one grid after the other.

    Attributes:
        active: the numbers of the threads that an instruction is executed by.
        symbols: names that stand for addresses.
    """

    def __init__(self, launches: int, grid: int, block: int, symbols: dict[str, int]) -> None:
        self.grid, self.symbols = launches * grid, symbols
        self.count = self.grid * block
        threads = np.arange(self.count)
        self.tid, self.block = threads % block, threads // block
        self.launch = self.block // grid
        self.special = {
            "%tid.x": self.tid, "%ctaid.x": self.block % grid, "%nctaid.x": np.full(self.count, grid),
            "%globaltimer": np.zeros(self.count, np.int64),
        }  # fmt: skip
        self.registers: dict[str, Array] = {}
        self.active = threads

    def read(self, operand: str, bits: int = 64) -> Array:
        """The operand of each active thread, as an unsigned number."""
        if operand in self.special:
            return self.special[operand][self.active].astype(np.uint64)
        if operand in self.registers:
            values = self.registers[operand][self.active]
        elif operand in self.symbols:
            values = np.full(self.active.size, self.symbols[operand], np.uint64)
        elif operand[0] == "%":  # never written: NVRTC makes pairs of registers of which it only uses one
            values = np.full(self.active.size, _ARBITRARY, np.uint64)
        else:
            number = int(operand[2:], 16) if operand.startswith("0f") else int(operand.removesuffix("U"), 0)
            values = np.full(self.active.size, number & (1 << 64) - 1, np.uint64)
        return values & np.uint64((1 << bits) - 1)

    def extended(self, operand: str, kind: str) -> Array:
        """The operand of a kind in 64 bits."""
        bits = BITS[kind]
        values = self.read(operand, bits)
        if kind[0] != "s":
            return values
        sign = np.uint64(1 << (bits - 1))
        return (values ^ sign) - sign

    def float(self, operand: str, kind: str = "f32") -> Array:
        """The operand as float32; for `f32x2`, the pairs of each thread."""
        if kind == "f32x2":
            return self.read(operand).view(np.float32).reshape(-1, 2)
        if kind in _NARROW:
            return self.read(operand, 16).astype(np.uint16).view(_NARROW[kind]).astype(np.float32)
        return self.read(operand, 32).astype(np.uint32).view(np.float32)

    def write(self, register: str, values: Array, bits: int = 64) -> None:
        if register not in self.registers:
            self.registers[register] = np.zeros(self.count, np.uint64)
        self.registers[register][self.active] = values.astype(np.uint64) & np.uint64((1 << bits) - 1)

    def write_float(self, register: str, values: Array) -> None:
        values = np.ascontiguousarray(values, np.float32)
        bits = np.where(np.isnan(values), _NAN, values.view(np.uint32))
        self.write(register, bits.view(np.uint64)[:, 0] if bits.ndim == 2 else bits)
