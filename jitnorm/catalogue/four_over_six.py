"""The argument that asks for four over six, as FlashInfer has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class FourOverSix:
    """The one recipe that there is; FlashInfer's NVFP44Over6Config has these fields, too."""

    e4m3_max: int = 448
    err_mode: str = "MSE"
    err_use_fast_math: bool = False


def is_four_over_six(recipe: Any) -> bool:
    """Whether `nvfp4_4over6` asks for four over six: None does not, FlashInfer's NVFP44Over6Config does.

    Raises:
        ValueError: the configuration asks for something else.
        TypeError: it is something else.
    """
    if recipe is None:
        return False
    try:
        mode = str(getattr(recipe.err_mode, "name", recipe.err_mode)).upper()
        asked = (recipe.e4m3_max, mode, bool(recipe.err_use_fast_math))
    except AttributeError:
        raise TypeError(
            f"nvfp4_4over6: is a {type(recipe).__name__}; expected None or FlashInfer's NVFP44Over6Config"
        ) from None
    if asked != (448, "MSE", False):
        raise ValueError(
            f"nvfp4_4over6: is {recipe!r}; allowed are None and e4m3_max=448, err_mode='MSE', err_use_fast_math=False"
        )
    return True
