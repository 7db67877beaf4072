"""Formats in which linears multiply, and the devices that support them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from jitnorm.kernels.quant_spec import FP8_TOKEN, MXFP8, NVFP4, QuantSpec


@dataclass(frozen=True)
class Format:
    """How the rows of both matrices are encoded.

    Attributes:
        name: as callers know it.
        spec: the encoding.
        multiple: what torch's matrix product requires all sizes to be multiples of.
        capability: compute capability of the first GPUs that support it.
        gpus: these GPUs in words.
        scales: how the tensor's scale is computed, if there is one.
    """

    name: str
    spec: QuantSpec
    multiple: int
    capability: tuple[int, int]
    gpus: str
    scales: Mapping[str, Any] = field(default_factory=dict)

    def check(self, device: torch.device) -> None:
        """Raise ValueError if a device cannot multiply matrices of this format."""
        if device.type in ("cpu", "meta"):
            return
        if device.type != "cuda":
            raise ValueError(f"quant: {self.name!r} is for NVIDIA GPUs and the CPU; the model is on {device}")
        if torch.cuda.get_device_capability(device) < self.capability:
            raise ValueError(
                f"quant: torch multiplies {self.name} on {self.gpus} or later; the model is on {device}, "
                f"{torch.cuda.get_device_name(device)}: use {self._remedy()}, or move the model"
            )

    def _remedy(self) -> str:
        return "quant=None" if self.name == "fp8" else "quant='fp8' or None"


FORMATS = {
    each.name: each
    for each in (
        Format("fp8", FP8_TOKEN, 16, (8, 9), "Ada, Hopper"),
        Format("mxfp8", MXFP8.with_layout("128x4"), 32, (10, 0), "Blackwell"),
        Format("nvfp4", NVFP4.with_layout("128x4"), 32, (10, 0), "Blackwell", {"global_scale": "tensor"}),
    )
}


def format_of(quant: str | None) -> Format | None:
    """Look up a format by name.

    Raises:
        ValueError: there is none of this name.
    """
    if quant is None:
        return None
    if quant not in FORMATS:
        raise ValueError(f"quant: is {quant!r}, expected None or one of {', '.join(map(repr, FORMATS))}")
    return FORMATS[quant]
