"""FlashInfer's `_cute_dsl` functions: the same kernels as without that ending, for matrices, with other arguments.

Inputs of more than two dimensions are taken as matrices of their rows. `sf_layout` is 0 for 128x4, 1 for 8x4, 2 for
linear scales; `enable_pdl` is a hint.
"""

from __future__ import annotations

from typing import Any

import torch

import jitnorm
from jitnorm.catalogue.encodings import fp4_spec
from jitnorm.catalogue.four_over_six import recipe_of
from jitnorm.catalogue.sf_layout import SfLayout, layout_name
from jitnorm.compat.arguments import as_hint, as_scale
from jitnorm.compat.flashinfer.four_over_six import UNSET, resolve_nvfp4_4over6
from jitnorm.kernels.numerics import round_up

__all__ = [
    "mxfp4_quantize_cute_dsl",
    "mxfp8_quantize_cute_dsl",
    "nvfp4_quantize_cute_dsl",
    "nvfp4_quantize_per_token_cute_dsl",
]

_BLOCK = 16


def mxfp8_quantize_cute_dsl(
    input: torch.Tensor,
    is_sf_swizzled_layout: bool = True,
    alignment: int = 32,
    enable_pdl: bool | None = None,
    is_sf_8x4_layout: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """MXFP8: codes and flat scales; `is_sf_8x4_layout` says which swizzled layout it is."""
    layout = SfLayout.layout_8x4 if is_sf_swizzled_layout and is_sf_8x4_layout else None
    return jitnorm.mxfp8_quantize(
        _matrix(input), is_sf_swizzled_layout, alignment, as_hint(enable_pdl), sf_swizzle_layout=layout
    )


def mxfp4_quantize_cute_dsl(
    input: torch.Tensor, sf_layout: int = SfLayout.layout_128x4, enable_pdl: bool | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """MXFP4: codes and scales."""
    return jitnorm.mxfp4_quantize(_matrix(input), enable_pdl=as_hint(enable_pdl), sfLayout=_layout(sf_layout))


def nvfp4_quantize_cute_dsl(
    input: torch.Tensor,
    global_scale: float | torch.Tensor,
    sf_layout: int = SfLayout.layout_128x4,
    enable_pdl: bool | None = None,
    nvfp4_4over6: Any = UNSET,
    out: tuple[torch.Tensor, torch.Tensor] | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """NVFP4 with an encode scale for the tensor: codes and scales.

    `out`, if given, has the codes, uint8 (M, K / 2), and a uint8 buffer that begins with the scales.
    """
    matrix, layout, recipe = _matrix(input), _layout(sf_layout), resolve_nvfp4_4over6(nvfp4_4over6)
    scale = as_scale(global_scale, input).reshape(1)
    if out is None:
        return jitnorm.nvfp4_quantize(matrix, scale, layout, enable_pdl=as_hint(enable_pdl), nvfp4_4over6=recipe)
    spec = fp4_spec(_BLOCK, "e4m3", layout_name("sf_layout", layout), "given", recipe_of(recipe))
    (rows, columns), (codes, buffer) = matrix.shape, out
    shape = round_up(rows, spec.row_multiple), round_up(columns // _BLOCK, 4 if spec.is_swizzled else 1)
    if buffer.dtype != torch.uint8 or not buffer.is_contiguous() or buffer.numel() < shape[0] * shape[1]:
        raise ValueError(
            f"out: its scales are {buffer.dtype} of {buffer.numel()} elements; expected contiguous uint8 of "
            f"{shape[0] * shape[1]} or more"
        )
    scales = buffer.view(-1)[: shape[0] * shape[1]].view(shape)
    jitnorm.quantize(
        matrix, spec=spec, global_scale=scale, out=codes, out_scale=scales, enable_pdl=as_hint(enable_pdl)
    )  # fmt: skip
    return codes, scales


def nvfp4_quantize_per_token_cute_dsl(
    input: torch.Tensor,
    global_scale_inv: torch.Tensor,
    sf_layout: int = SfLayout.layout_128x4,
    enable_pdl: bool | None = None,
    out_scale: torch.Tensor | None = None,
    nvfp4_4over6: Any = UNSET,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """NVFP4 with a computed scale for each row: codes, scales, and the rows' scales, times `out_scale` if given.

    `global_scale_inv` is as `a_global_sf` of `jitnorm.nvfp4_quantize`; torch multiplies by `out_scale`.
    """
    codes, scales, of_rows = jitnorm.nvfp4_quantize(
        input, global_scale_inv, _layout(sf_layout), enable_pdl=as_hint(enable_pdl), per_token_activation=True,
        nvfp4_4over6=resolve_nvfp4_4over6(nvfp4_4over6),
    )  # fmt: skip
    return codes, scales, of_rows if out_scale is None else of_rows * as_scale(out_scale, of_rows).reshape(1)


def _matrix(input: torch.Tensor) -> torch.Tensor:
    return input.reshape(-1, input.shape[-1]) if input.ndim > 2 else input


def _layout(sf_layout: int) -> SfLayout:
    layout_name("sf_layout", sf_layout)
    return SfLayout(sf_layout)
