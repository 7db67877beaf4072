"""What ops on FP4 under FlashInfer's names share: the encoding that their arguments ask for, and their outputs."""

from __future__ import annotations

from typing import Any

from jitnorm.dispatch import Allocated
from jitnorm.kernels.arguments import Extent
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.numerics import round_up
from jitnorm.kernels.quant_spec import QuantSpec, require_one_of
from jitnorm.kernels.row_ops import padded_rows


def fp4_spec(
    block_size: int, scale_format: str, layout: str, global_scale: str, four_over_six: bool = False
) -> QuantSpec:
    """The encoding that such arguments ask for, `block_size` being `sf_vec_size`, the others as of QuantSpec.

    Raises:
        ValueError: a value that is not allowed.
    """
    require_one_of("sf_vec_size", block_size, (16, 32))
    return QuantSpec("e2m1", block_size, scale_format, layout, global_scale, four_over_six=four_over_six)


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


def byte_outputs(config: KernelConfig) -> Allocated:
    """Codes and scales as bytes, scales with two dimensions, as FlashInfer allocates them."""
    columns = config.hidden_size // config.block_size
    swizzled = config.quant is not None and config.quant.is_swizzled
    scales: tuple[Extent, ...] = (padded_rows(config), round_up(columns, 4)) if swizzled else ("M", columns)
    return {"y_fp4": (None, "uint8"), "block_scale": (scales, "uint8")}
