"""FlashInfer's argument for four over six."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from jitnorm.kernels.quant_spec import QuantSpec, require_one_of


@dataclass(frozen=True)
class FourOverSix:
    """A recipe, with the fields of FlashInfer's NVFP44Over6Config.

    Attributes:
        e4m3_max: the scale of the block with the largest value where the global scale is computed: 448 or 256.
        err_mode: what is compared, the sum of absolute errors (``MAE``) or of squared ones (``MSE``).
    """

    e4m3_max: int = 448
    err_mode: str = "MAE"
    err_use_fast_math: bool = False

    def __post_init__(self) -> None:
        require_one_of("nvfp4_4over6.e4m3_max", self.e4m3_max, (448, 256))
        require_one_of("nvfp4_4over6.err_mode", self.err_mode, ("MAE", "MSE"))

    @classmethod
    def of(cls, quant: QuantSpec) -> FourOverSix | None:
        """The recipe of an encoding."""
        if not quant.four_over_six:
            return None
        largest = 256 if quant.e4m3_max == 256 else 448  # another one is the base scale's
        return cls(largest, "MAE" if quant.four_over_six == "mae" else "MSE")

    def fields(self, global_scale: str) -> dict[str, Any]:
        """The fields of QuantSpec; a given global scale already implies its maximum."""
        is_found = global_scale in ("row", "tensor")
        return {
            "four_over_six": "mae" if self.err_mode == "MAE" else True,
            "e4m3_max": self.e4m3_max if is_found else 448,
        }


def recipe_of(nvfp4_4over6: Any) -> FourOverSix | None:
    """The recipe that an argument selects; errors are always computed in float32, even with fast math.

    Raises:
        ValueError: a field has a value that is not allowed.
        TypeError: the argument is neither None nor has the fields of FlashInfer's NVFP44Over6Config.
    """
    if nvfp4_4over6 is None:
        return None
    try:
        mode = getattr(nvfp4_4over6.err_mode, "name", nvfp4_4over6.err_mode)
        largest, _ = nvfp4_4over6.e4m3_max, nvfp4_4over6.err_use_fast_math
    except AttributeError:
        raise TypeError(
            f"nvfp4_4over6: is a {type(nvfp4_4over6).__name__}; expected None or FlashInfer's NVFP44Over6Config"
        ) from None
    return _recipe(largest, str(mode).upper())


# Cached, so that repeated calls construct nothing.
_recipe = cache(FourOverSix)
