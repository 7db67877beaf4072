"""SfLayout: the layouts of block scales under the names that FlashInfer gives them."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

_NAMES = ("128x4", "8x4", "linear")


class SfLayout(IntEnum):
    """Layout of block scales; FlashInfer's enumeration of this name is taken, too."""

    layout_128x4 = 0
    layout_8x4 = 1
    layout_linear = 2


def layout_name(argument: str, layout: Any) -> str:
    """A layout as QuantSpec calls it; ValueError, naming the argument, if there is none."""
    if isinstance(layout, int) and 0 <= layout < len(_NAMES):
        return _NAMES[layout]
    raise ValueError(f"{argument}: is {layout!r}; allowed are {', '.join(map(str, map(repr, SfLayout)))}")
