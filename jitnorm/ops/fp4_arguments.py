"""What ops on FP4 under FlashInfer's names share: the encoding that their arguments ask for, and their outputs."""

from __future__ import annotations

from functools import cache
from typing import Any

from jitnorm.dispatch import Allocated
from jitnorm.kernels.arguments import Extent
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.numerics import round_up
from jitnorm.kernels.quant_spec import QuantSpec, require_one_of
from jitnorm.kernels.row_ops import padded_rows


def fp4_spec(block_size: int, scale_format: str, layout: str, global_scale: str, recipe: Any) -> QuantSpec:
    """The encoding that such arguments ask for.

    Args:
        block_size: of `sf_vec_size`.
        scale_format: as of QuantSpec.
        layout: as of QuantSpec.
        global_scale: as of QuantSpec.
        recipe: of `nvfp4_4over6`, None or FlashInfer's NVFP44Over6Config.

    Raises:
        ValueError: a value that is not allowed.
        TypeError: the recipe is something else.
    """
    require_one_of("sf_vec_size", block_size, (16, 32))
    is_four_over_six = recipe is not None and _is_four_over_six(recipe)
    return _plain_spec(block_size, scale_format, layout, global_scale, is_four_over_six)


@cache
def _plain_spec(block_size: int, scale_format: str, layout: str, global_scale: str, four_over_six: bool) -> QuantSpec:
    return QuantSpec("e2m1", block_size, scale_format, layout, global_scale, four_over_six=four_over_six)


def _is_four_over_six(recipe: Any) -> bool:
    """True if FlashInfer's configuration object asks for what four over six is here; else an error."""
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


def byte_outputs(config: KernelConfig) -> Allocated:
    """Codes and scales as bytes, scales with two dimensions, as FlashInfer allocates them."""
    columns = config.hidden_size // config.block_size
    swizzled = config.quant is not None and config.quant.is_swizzled
    scales: tuple[Extent, ...] = (padded_rows(config), round_up(columns, 4)) if swizzled else ("M", columns)
    return {"y_fp4": (None, "uint8"), "block_scale": (scales, "uint8")}
