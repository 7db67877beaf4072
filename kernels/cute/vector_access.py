"""Chunks between memory and words of registers, in accesses as wide as the addresses allow."""

from __future__ import annotations

from collections.abc import Sequence

from cutlass._mlir import ir
from cutlass._mlir.dialects import arith, llvm
from cutlass.cutlass_dsl import T

from ..dtypes import DTYPES
from ..numerics import CHUNK_SIZE
from .constants import Constants
from .values import UInt, Value, choose, pointer, u32, when


def load_chunk(constants: Constants, row: UInt, index: UInt, dtype: str, access_bytes: int) -> list[UInt]:
    """The words of chunk `index` of the row at address `row`, in either memory; elements past the row are zero."""
    element_bytes = DTYPES[dtype].bytes
    size = CHUNK_SIZE * element_bytes
    address = row + (index if row.width == 32 else index.wide()) * size
    if not constants.has_idle_slots:
        return load_words(address, size, access_bytes)
    loaded = choose(
        index < constants.whole_chunks,
        lambda: [word.value for word in load_words(address, size, access_bytes)],
        lambda: [word.value for word in _load_partial(constants, address, index, element_bytes)],
        [T.i32()] * (size // 4),
    )
    return [UInt(word) for word in loaded]


def store_chunk(
    constants: Constants, row: UInt, index: UInt, words: Sequence[UInt], element_bytes: int, access_bytes: int
) -> None:
    """Stores the words as chunk `index` of the row at `row`, without what lies past the row."""
    address = row + index.wide() * (4 * len(words))
    with when(index < constants.whole_chunks if constants.has_idle_slots else None):
        store_words(address, words, access_bytes)
    if constants.has_partial_chunk:
        with when(index.equals(constants.whole_chunks)):
            for i in range(constants.row_size % CHUNK_SIZE):
                _store_element(address + i * element_bytes, words, i, element_bytes)


def load_words(address: UInt, size: int, access_bytes: int) -> list[UInt]:
    """`size` bytes at an address that is aligned to `access_bytes`, as words."""
    if access_bytes >= 4:
        vector = ir.VectorType.get([access_bytes // 4], T.i32())
        loads = (
            llvm.load(vector, pointer(address + offset), alignment=access_bytes)
            for offset in range(0, size, access_bytes)
        )
        return [_element(loaded, i) for loaded in loads for i in range(access_bytes // 4)]
    return [_narrow_word(address + offset, access_bytes) for offset in range(0, size, 4)]


def store_words(address: UInt, words: Sequence[UInt], access_bytes: int) -> None:
    """Stores words at an address that is aligned to `access_bytes`."""
    if access_bytes < 4:
        for i in range(4 * len(words) // access_bytes):
            _store_element(address + i * access_bytes, words, i, access_bytes)
        return
    count = access_bytes // 4
    for first in range(0, len(words), count):
        vector = llvm.mlir_undef(ir.VectorType.get([count], T.i32()))
        for i, word in enumerate(words[first : first + count]):
            vector = llvm.insertelement(vector, word.value, u32(i).value)
        llvm.store(vector, pointer(address + 4 * first), alignment=access_bytes)


def load_f32(address: UInt) -> Value:
    """The float32 at an address."""
    return llvm.load(T.f32(), pointer(address), alignment=4)


def store_f32(address: UInt, value: Value) -> None:
    """Stores a float32."""
    llvm.store(value, pointer(address), alignment=4)


def store_u8(address: UInt, word: UInt) -> None:
    """Stores the lowest byte of a word."""
    llvm.store(word.narrow(8).value, pointer(address), alignment=1)


def _load_partial(constants: Constants, address: UInt, index: UInt, element_bytes: int) -> list[UInt]:
    """The chunk after the whole ones, which holds a few elements; none are in those past it."""
    count = CHUNK_SIZE * element_bytes // 4
    zeros = [u32(0)] * count
    if not constants.has_partial_chunk:
        return zeros
    loaded = choose(
        index.equals(constants.whole_chunks),
        lambda: [word.value for word in _load_elements(address, constants.row_size % CHUNK_SIZE, element_bytes)],
        lambda: [word.value for word in zeros],
        [T.i32()] * count,
    )
    return [UInt(word) for word in loaded]


def _load_elements(address: UInt, count: int, element_bytes: int) -> list[UInt]:
    """The first `count` elements of a chunk, and zeros."""
    words = []
    for first in range(0, CHUNK_SIZE, 4 // element_bytes):
        word = u32(0)
        for i in range(first, min(first + 4 // element_bytes, count)):
            element = _load_element(address + i * element_bytes, element_bytes)
            word = word | (element << 8 * element_bytes * (i - first))
        words.append(word)
    return words


def _load_element(address: UInt, element_bytes: int) -> UInt:
    bits = ir.IntegerType.get_signless(8 * element_bytes)
    return UInt(llvm.load(bits, pointer(address), alignment=element_bytes)).as_u32()


def _narrow_word(address: UInt, access_bytes: int) -> UInt:
    word = None
    for offset in range(0, 4, access_bytes):
        part = _load_element(address + offset, access_bytes) << 8 * offset
        word = part if word is None else word | part
    assert word is not None
    return word


def _store_element(address: UInt, words: Sequence[UInt], index: int, element_bytes: int) -> None:
    position = index * element_bytes
    bits = words[position // 4] >> 8 * (position % 4)
    llvm.store(bits.narrow(8 * element_bytes).value, pointer(address), alignment=element_bytes)


def _element(vector: Value, index: int) -> UInt:
    return UInt(llvm.extractelement(vector, arith.constant(T.i32(), index)))
