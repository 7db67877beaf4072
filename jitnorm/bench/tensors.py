"""The tensors that ops are measured on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


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

        return torch.randn(*shape, dtype=torch.bfloat16, device=self.device)

    def float32(self, *shape: int) -> Any:
        """Normally distributed numbers."""
        import torch

        return torch.randn(*shape, device=self.device)

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
