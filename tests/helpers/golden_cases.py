"""The cases of the golden digests, made by integer arithmetic, so that no random library can change them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from encoded import SPECS, hidden_size_of
from expected import FORMATS, LAYOUTS, Fp4Options, as_bytes
from inputs import DTYPES
from jitnorm.kernels.quant_spec import FP8_GROUP, FP8_TOKEN, MXFP8, QuantSpec
from jitnorm.kernels.quant_spec import NVFP4 as NVFP4_SPEC
from numpy.typing import NDArray

ROWS = 12
# Of a dtype: where its exponent begins, that field's value for 1.0, and the pattern of infinity.
_FIELDS = {"float16": (10, 15, 0x7C00), "bfloat16": (7, 127, 0x7F80), "float32": (23, 127, 0x7F800000)}


@dataclass(frozen=True)
class Case:
    """One call, of rmsnorm if there are no `options`."""

    hidden_size: int
    dtype: str
    weight_dtype: str
    options: Fp4Options | None = None

    def __str__(self) -> str:
        op = "rmsnorm" if self.options is None else f"rmsnorm_fp4quant-{self.options}"
        return f"{op}-{self.hidden_size}-{self.dtype}-{self.weight_dtype}"

    @property
    def kind_in_every_run(self) -> str:
        """The op, and its format."""
        if self.options is None:
            return "rmsnorm"
        return f"rmsnorm_fp4quant {self.options.block_size} {self.options.scale_format}"

    def input(self) -> NDArray[Any]:
        """Twelve rows of four kinds: moderate values, any finite ones, denormals, and one infinity or NaN."""
        _, _, infinity = _FIELDS[self.dtype]
        noise = splitmix64(1, ROWS * self.hidden_size).reshape(ROWS, self.hidden_size)
        bits = _moderate(noise, self.dtype)
        sign = noise & np.uint64(0x8000)
        bits[1::4] = (sign | (noise >> np.uint64(16)) % np.uint64(infinity))[1::4]
        bits[2::4] = (sign | noise & np.uint64(0x3F))[2::4]
        for row in range(3, ROWS, 4):
            bits[row, int(noise[row, 0] % np.uint64(self.hidden_size))] = infinity + row // 4
        return bits.astype(np.uint16).view(DTYPES[self.dtype])

    def weight(self) -> NDArray[Any]:
        bits = _moderate(splitmix64(2, self.hidden_size), self.weight_dtype)
        if self.weight_dtype == "float32":
            return bits.astype(np.uint32).view(np.float32)
        return bits.astype(np.uint16).view(DTYPES[self.weight_dtype])


@dataclass(frozen=True)
class QuantCase(Case):
    """One call of norm_quantize, with Gemma's weight and a residual if `is_fused`, or of quantize."""

    spec: QuantSpec = NVFP4_SPEC
    is_fused: bool = False

    def __str__(self) -> str:
        op = "fused_add_norm_quantize" if self.is_fused else "quantize"
        return f"{op}-{str(self.spec).replace('/', '.')}-{self.hidden_size}-{self.dtype}-{self.weight_dtype}"

    @property
    def kind_in_every_run(self) -> str:
        """The format, however its scales are laid out, rounded or given."""
        return f"{self.spec.element} {self.spec.block_size} {self.spec.scale_format} {self.spec.four_over_six}"

    def residual(self) -> NDArray[Any]:
        """Moderate values."""
        noise = splitmix64(3, ROWS * self.hidden_size).reshape(ROWS, self.hidden_size)
        return _moderate(noise, self.dtype).astype(np.uint16).view(DTYPES[self.dtype])


def quant_cases() -> Iterator[QuantCase]:
    for number, spec in enumerate(SPECS):
        dtype = list(DTYPES)[number % 2]
        yield QuantCase(hidden_size_of(spec), dtype, dtype, None, spec, is_fused=number % 2 == 1)
    for spec in (NVFP4_SPEC.with_global_scale("row"), FP8_TOKEN, FP8_GROUP, MXFP8):
        yield QuantCase(131072, "bfloat16", "bfloat16", None, spec, is_fused=True)


def all_cases() -> Iterator[Case]:
    for hidden_size in (1, 17, 384, 4096, 65536):
        for dtype in DTYPES:
            for weight_dtype in (dtype, "float32"):
                yield Case(hidden_size, dtype, weight_dtype)
    for options in FORMATS:
        for layout in LAYOUTS:
            for scale in (None, 0.75) if options.scale_format == "e4m3" else (None,):
                spec = Fp4Options(options.block_size, options.scale_format, layout, scale)
                yield Case(96, "bfloat16", "bfloat16", spec)
        yield Case(4096, "float16", "float32", options)
        yield Case(65536, "bfloat16", "bfloat16", options)


def digest(outputs: tuple[Any, ...]) -> str:
    """SHA-256 of the outputs' bytes."""
    return hashlib.sha256(b"".join(as_bytes(output).tobytes() for output in outputs)).hexdigest()


def splitmix64(seed: int, count: int) -> NDArray[np.uint64]:
    """The first numbers of the generator of Steele, Lea and Flood (2014)."""
    golden = 0x9E3779B97F4A7C15
    z = np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(golden)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: NDArray[np.uint64] = z ^ (z >> np.uint64(31))
    return mixed


def _moderate(noise: NDArray[np.uint64], dtype: str) -> NDArray[np.uint64]:
    """Bit patterns of values of both signs with magnitudes from 1/8 up to 32."""
    shift, one, infinity = _FIELDS[dtype]
    exponent = (noise >> np.uint64(40)) % np.uint64(8) + np.uint64(one - 3)
    all_bits = 0xFFFFFFFF if dtype == "float32" else 0xFFFF
    bits: NDArray[np.uint64] = noise & np.uint64(all_bits & ~infinity) | exponent << np.uint64(shift)
    return bits
