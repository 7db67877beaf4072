"""SfLayout: the layouts of block scales under FlashInfer's names."""

from __future__ import annotations

from enum import IntEnum
from typing import Any


class SfLayout(IntEnum):
    """Layout of block scales; FlashInfer's enumeration of the same name is accepted, too.

    Example:
        >>> SfLayout.layout_8x4.value
        1
    """

    layout_128x4 = 0
    layout_8x4 = 1
    layout_linear = 2


def layout_of_flags(is_sf_swizzled_layout: bool, is_sf_8x4_layout: bool) -> str:
    """Translate FlashInfer's two flags to QuantSpec's name of a layout."""
    return ("8x4" if is_sf_8x4_layout else "128x4") if is_sf_swizzled_layout else "linear"


def sf_layout_of(layout: str) -> SfLayout:
    """The member for QuantSpec's name of a layout."""
    return SfLayout[f"layout_{layout}"]


def layout_name(argument: str, layout: Any) -> str:
    """Translate a layout to QuantSpec's name; ValueError, naming the argument, if there is none."""
    if isinstance(layout, int) and layout in tuple(SfLayout):
        return SfLayout(layout).name.removeprefix("layout_")
    raise ValueError(f"{argument}: is {layout!r}; allowed are {', '.join(f'{x.value} ({x.name})' for x in SfLayout)}")
