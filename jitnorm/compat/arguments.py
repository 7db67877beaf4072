"""Converts arguments as engines pass them for stricter functions: scales of any kind, hints, torch dtypes."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from jitnorm.kernels.quant_spec import QuantSpec

_ELEMENTS = {torch.float8_e4m3fn: "e4m3", torch.float8_e5m2: "e5m2", torch.int8: "int8"}


def element_of(dtype: torch.dtype, name: str) -> str:
    """The element format of a dtype of codes.

    Raises:
        ValueError: it is neither FP8 nor INT8.
    """
    element = _ELEMENTS.get(dtype)
    if element is None:
        raise ValueError(f"{name}: is {dtype}; allowed are {', '.join(map(str, _ELEMENTS))}")
    return element


def as_scale(scale: Any, like: torch.Tensor) -> torch.Tensor:
    """Convert a number, or a tensor of any dtype and device, to a one-element float32 scale on the device of `like`."""
    if isinstance(scale, torch.Tensor):
        if scale.dtype is torch.float32 and scale.device == like.device:
            return scale
        return scale.to(like.device, torch.float32)
    return torch.full((1,), scale, dtype=torch.float32, device=like.device)


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """A view as uint8; each view that is not needed would take 0.8 us."""
    return tensor if tensor.dtype is torch.uint8 else tensor.view(torch.uint8)


def on_host(tensor: torch.Tensor) -> torch.Tensor:
    """Copy a tensor to the host, unless it is there, where the method alone would take 0.1 us more."""
    return tensor if tensor.is_cpu else tensor.cpu()


def as_hint(enable_pdl: bool | None) -> bool | None:
    """`enable_pdl` as a hint: even True means wherever the GPU supports it."""
    return None if enable_pdl else enable_pdl


# Cached, because constructing a spec takes 20 us.
@cache
def spec_of(
    element: str,
    block_size: int | str,
    scale_format: str = "f32",
    scale_layout: str = "linear",
    scale_floor: float | None = None,
) -> QuantSpec:
    """The encoding of these fields."""
    return QuantSpec(element, block_size, scale_format, scale_layout, scale_floor=scale_floor)


@cache
def spec_of_codes(dtype: torch.dtype, name: str, block_size: int | str) -> QuantSpec:
    """`spec_of` for the codes of an argument of this name: looking up both takes 0.1 us more."""
    return spec_of(element_of(dtype, name), block_size)


@cache
def given_spec(element: str, block_size: int | str) -> QuantSpec:
    """The encoding with given float32 scales."""
    return QuantSpec(element, block_size, "f32", global_scale="none" if block_size == "tensor" else "given")
