"""The normalize stages: RMSNorm, layer normalization, and none for quantization alone."""

from __future__ import annotations

from typing import NamedTuple

from .arguments import Arguments
from .constants import Constants
from .half_types import unpack
from .intrinsics import add_rn, div_rn, f32, mul_rn, negative, reciprocal_rn, sqrt_rn
from .values import UInt, Value
from .vector_access import load_chunk


class RowStatistic(NamedTuple):
    """The statistic that normalizes a row: its mean, in layer normalization alone, and the reciprocal of its RMS."""

    mean: Value
    rstd: Value


class Parameters(NamedTuple):
    """A chunk of the weight and of the bias, as words."""

    weight: list[Value]
    bias: list[Value]


class Normalize:
    """Normalizes the chunks of a row."""

    def __init__(self, constants: Constants) -> None:
        self._constants = constants
        self.normalizes = constants.config.normalizes
        self.centers = constants.config.op == "layernorm"

    def load_parameters(self, arguments: Arguments, index: UInt) -> Parameters:
        """Load the parameters of chunk `index`."""
        dtype = self._constants.config.weight
        weight = self._load(arguments, "weight", dtype, index) if self.normalizes else []
        return Parameters(weight, self._load(arguments, "bias", dtype, index) if self.centers else [])

    def mean_of(self, total: Value) -> Value:
        """A sum over a row, divided by its length."""
        return div_rn(total, f32(self._constants.row_size))

    def reciprocal_rms(self, sum_of_squares: Value, eps: Value) -> Value:
        """1 / sqrt(sum / H + eps)."""
        return reciprocal_rn(sqrt_rn(add_rn(self.mean_of(sum_of_squares), eps)))

    def centered(self, h: Value, mean: Value) -> Value:
        """An element without the mean."""
        return add_rn(h, negative(mean)) if self.centers else h

    def chunk(self, floats: list[Value], parameters: Parameters, statistic: RowStatistic) -> list[Value]:
        """Y of each element."""
        if not self.normalizes:
            return floats
        weights = self._floats(parameters.weight, self._constants.config.weight)
        scaled = [mul_rn(self.centered(h, statistic.mean), statistic.rstd) for h in floats]
        if self.centers:
            biases = self._floats(parameters.bias, self._constants.config.weight)
            return [add_rn(mul_rn(h, w), b) for h, w, b in zip(scaled, weights, biases, strict=True)]
        if self._constants.config.unit_bias:  # a bias of zero is not added: -0 keeps its sign
            weights = [add_rn(w, f32(1.0)) for w in weights]
        return [mul_rn(h, w) for h, w in zip(scaled, weights, strict=True)]

    def _load(self, arguments: Arguments, field: str, dtype: str, index: UInt) -> list[Value]:
        access_bytes = self._constants.access_bytes[field]
        words = load_chunk(self._constants, arguments.address(field), index, dtype, access_bytes)
        return [word.value for word in words]

    def _floats(self, words: list[Value], dtype: str) -> list[Value]:
        return unpack([UInt(word) for word in words], dtype)
