"""Named inputs that find what random numbers do not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

DTYPES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
ALL_DTYPES = {**DTYPES, "float32": np.dtype(np.float32)}
_INFINITY = {"float16": 0x7C00, "bfloat16": 0x7F80, "float32": 0x7F800000}


def make_input(kind: str, rows: int, hidden_size: int, dtype: str, seed: int = 0) -> Array:
    """A (rows, hidden_size) array of one of `INPUT_KINDS`."""
    with np.errstate(over="ignore"):
        return _KINDS[kind](np.random.default_rng(seed), (rows, hidden_size), ALL_DTYPES[dtype])


def make_weight(hidden_size: int, dtype: str, seed: int = 1) -> Array:
    """Weights of both signs around 1, with a few zeros of both signs."""
    weight = 1 + np.random.default_rng(seed).standard_normal(hidden_size) / 4
    weight[3::61], weight[5::61] = 0.0, -0.0
    return weight.astype(np.float32 if dtype == "float32" else DTYPES[dtype])


def _bits_of(dtype: Any) -> Any:
    return np.uint32 if dtype.itemsize == 4 else np.uint16


def _signed(generator: np.random.Generator, bits: Array, dtype: Any) -> Array:
    """Magnitudes with random signs."""
    signs = generator.integers(0, 2, bits.shape, dtype=bits.dtype) << bits.dtype.type(8 * dtype.itemsize - 1)
    return (bits | signs).view(dtype)


def _random(generator: np.random.Generator, shape: tuple[int, int], dtype: Any) -> Array:
    return generator.standard_normal(shape).astype(dtype)


def _finite_patterns(generator: np.random.Generator, shape: tuple[int, int], dtype: Any) -> Array:
    return _signed(generator, generator.integers(0, _INFINITY[dtype.name], shape, dtype=_bits_of(dtype)), dtype)


def _all_patterns(generator: np.random.Generator, shape: tuple[int, int], dtype: Any) -> Array:
    return generator.integers(0, 1 << 8 * dtype.itemsize, shape, dtype=_bits_of(dtype)).view(dtype)


@lru_cache(maxsize=1)
def _activations() -> Array:
    with np.load(str(files("jitnorm") / "data" / "activations.npz")) as sample:
        stacked = np.concatenate([sample["x_l5_mlp"].ravel(), sample["x_l3_mlp"].ravel()])
    return stacked.view(ml_dtypes.bfloat16)


def _real(generator: np.random.Generator, shape: tuple[int, int], dtype: Any) -> Array:
    return np.resize(_activations(), shape).astype(dtype)


def _zeros(generator: np.random.Generator, shape: tuple[int, int], dtype: Any) -> Array:
    zeros = np.zeros(shape, dtype)
    zeros[:, 1::3] = -0.0
    return zeros


def _tiny(generator: np.random.Generator, shape: tuple[int, int], dtype: Any) -> Array:
    """Denormals and zeros of both signs."""
    return _signed(generator, generator.integers(0, 64, shape, dtype=_bits_of(dtype)), dtype)


def _huge(generator: np.random.Generator, shape: tuple[int, int], dtype: Any) -> Array:
    """Values up to the largest finite one: the sum of squares of bfloat16 overflows."""
    bits = _bits_of(dtype)(_INFINITY[dtype.name]) - generator.integers(1, 300, shape, dtype=_bits_of(dtype))
    return _signed(generator, bits, dtype)


def _with_special(generator: np.random.Generator, shape: tuple[int, int], dtype: Any, bits: list[int]) -> Array:
    """Random values, with one of the bit patterns in every second row, at its first, last or a random place."""
    x = _random(generator, shape, dtype)
    for row in range(0, shape[0], 2):
        place = (0, shape[1] - 1, int(generator.integers(shape[1])))[row // 2 % 3]
        x.view(_bits_of(dtype))[row, place] = bits[row // 2 % len(bits)]
    return x


def _nan(generator: np.random.Generator, shape: tuple[int, int], dtype: Any) -> Array:
    sign, signalling = 1 << 8 * dtype.itemsize - 1, _INFINITY[dtype.name] + 1
    return _with_special(generator, shape, dtype, [sign - 1, 2 * sign - 1, signalling, signalling | sign])


def _inf(generator: np.random.Generator, shape: tuple[int, int], dtype: Any) -> Array:
    sign, infinity = 1 << 8 * dtype.itemsize - 1, _INFINITY[dtype.name]
    return _with_special(generator, shape, dtype, [infinity, infinity | sign])


def _spiky(generator: np.random.Generator, shape: tuple[int, int], dtype: Any) -> Array:
    """Rows of tiny values with one large value each, so most blocks have scales near or at zero."""
    x = (generator.standard_normal(shape) * 1e-4).astype(dtype)
    x[np.arange(shape[0]), generator.integers(0, shape[1], shape[0])] = 1000
    return x


_KINDS: dict[str, Callable[[np.random.Generator, tuple[int, int], Any], Array]] = {
    "random": _random,
    "real": _real,
    "zeros": _zeros,
    "tiny": _tiny,
    "huge": _huge,
    "nan": _nan,
    "inf": _inf,
    "spiky": _spiky,
    "finite_patterns": _finite_patterns,
    "all_patterns": _all_patterns,
}
INPUT_KINDS = tuple(_KINDS)


def in_turn(many: Iterable[Any], *others: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Combine each of `many` with one of each of the others, in turn: independent choices need no product."""
    return [(one, *(other[number % len(other)] for other in others)) for number, one in enumerate(many)]


def make_frequencies(size: int) -> Any:
    """A table of frequencies for heads of which `size` elements are rotated: of whole turns and any parts of them."""
    return np.random.default_rng(0).integers(-(2**31), 2**31, (1, size)).astype(np.int32)
