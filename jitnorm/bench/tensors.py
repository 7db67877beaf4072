"""The tensors that ops are measured on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

DRAWN = 1 << 24  # numbers; larger tensors repeat them, as copying takes less time than drawing


@dataclass(frozen=True)
class Tensors:
    """Makes torch tensors on a device.

    Attributes:
        device: ``cuda`` or ``cpu``.
    """

    device: str

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
            return drawn.view(shape)
        tensor = torch.empty(count, dtype=dtype, device=self.device)
        for part in tensor.split(DRAWN):
            part.copy_(drawn[: len(part)])
        return tensor.view(shape)

    def empty(self, *shape: int) -> Any:
        """An uninitialised output in bfloat16."""
        import torch

        return torch.empty(*shape, dtype=torch.bfloat16, device=self.device)

    def fp8(self, *shape: int) -> Any:
        """An uninitialised output in E4M3."""
        import torch

        return torch.empty(*shape, dtype=torch.float8_e4m3fn, device=self.device)

    def one(self) -> Any:
        """A scale that changes nothing."""
        import torch

        return torch.ones(1, device=self.device)
