"""The lower bounds of the scales that vLLM's fused kernels compute."""

from __future__ import annotations

from functools import cache

from jitnorm.compat.arguments import spec_of
from jitnorm.kernels.quant_spec import QuantSpec

# For FP8, an amax of 1 / 512; for INT8, float32's epsilon.
_FLOORS = {"e4m3": 1 / (448 * 512), "e5m2": 1 / (57344 * 512), "int8": 2.0**-23}


@cache
def row_spec(element: str) -> QuantSpec:
    """One scale a row, with vLLM's lower bound."""
    return spec_of(element, "row", scale_floor=_FLOORS[element])


@cache
def group_spec(element: str, group_size: int, layout: str = "linear") -> QuantSpec:
    """One scale a group, with vLLM's lower bound."""
    return spec_of(element, group_size, "f32", layout, _FLOORS[element])
