"""The tensors that ops are measured on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

DRAWN = 1 << 24  # random numbers; larger tensors repeat them, because copying is faster than drawing
# Values that inputs may have; fast paths depend on them, see docs/measured.md.
VALUES = ("normal", "zeros", "large", "outliers")
_LARGE = 30.0  # standard deviation
_OUTLIERS, _FACTOR = 509, 1000.0  # every so many columns, times that


@dataclass(frozen=True)
class Tensors:
    """Makes torch tensors on a device.

    Attributes:
        device: ``cuda`` or ``cpu``.
        values: those of inputs other than parameters, one of `VALUES`: ``normal``, with a standard deviation of 1;
            ``zeros``, as in rows that pad a batch; ``large``, with one of 30; ``outliers``, with one of 1, but of 1000
            in every 509th column.
    """

    device: str
    values: str = "normal"

    def of(self, shape: tuple[int, ...], dtype: str, is_output: bool) -> Any:
        """A tensor of a dtype (DLPack's name): random numbers, scales of 1, codes without NaN, or empty outputs."""
        import torch

        kind = getattr(torch, {"float4_e2m1fnx2": "uint8", "float8_e8m0fnu": "uint8"}.get(dtype, dtype))
        if is_output:
            return torch.empty(shape, dtype=kind, device=self.device)
        if shape == (1,):
            return torch.ones(shape, dtype=kind, device=self.device)
        if kind == torch.int32:  # a mask: counts beyond the number of rows include all rows
            return torch.full(shape, torch.iinfo(kind).max, dtype=kind, device=self.device)
        if kind == torch.int64:  # positions
            return torch.zeros(shape, dtype=kind, device=self.device)
        if kind.itemsize == 1:
            return torch.randint(120, shape, dtype=torch.uint8, device=self.device).view(kind)
        return self._normal(shape, kind)

    def bfloat16(self, *shape: int) -> Any:
        """Normally distributed numbers."""
        import torch

        return self._normal(shape, torch.bfloat16)

    def float32(self, *shape: int) -> Any:
        """Normally distributed numbers."""
        import torch

        return self._normal(shape, torch.float32)

    def _normal(self, shape: tuple[int, ...], dtype: Any) -> Any:
        import torch

        count = math.prod(shape)
        drawn = torch.randn(min(count, DRAWN), dtype=dtype, device=self.device)
        if count <= DRAWN:
            return self._with_values(drawn.view(shape))
        tensor = torch.empty(count, dtype=dtype, device=self.device)
        for part in tensor.split(DRAWN):
            part.copy_(drawn[: len(part)])
        return self._with_values(tensor.view(shape))

    def _with_values(self, numbers: Any) -> Any:
        """Change normally distributed numbers in place; those of a parameter, which has one dimension, stay."""
        if numbers.dim() > 1:
            if self.values == "zeros":
                numbers.zero_()
            elif self.values == "large":
                numbers.mul_(_LARGE)
            elif self.values == "outliers":
                numbers[..., ::_OUTLIERS] *= _FACTOR
        return numbers

    def empty(self, *shape: int) -> Any:
        """An uninitialized output in bfloat16."""
        import torch

        return torch.empty(*shape, dtype=torch.bfloat16, device=self.device)

    def fp8(self, *shape: int) -> Any:
        """An uninitialized output in E4M3."""
        import torch

        return torch.empty(*shape, dtype=torch.float8_e4m3fn, device=self.device)

    def positions(self, count: int) -> Any:
        """The indices of some tokens, in another order."""
        import torch

        return torch.arange(count, device=self.device).flip(0)

    def one(self) -> Any:
        """A scale that changes nothing."""
        import torch

        return torch.ones(1, device=self.device)
