"""8-bit codes with scales of groups, in the layouts in which engines keep such scales."""

from __future__ import annotations

from collections.abc import Callable

import torch

import jitnorm
from jitnorm.compat.arguments import element_of, spec_of
from jitnorm.kernels.quant_spec import MAX_CODE, QuantSpec
from jitnorm.quantized import QuantizedTensor

_LEAST_FLOOR = 2.0**-126  # the least that a spec may have


def spec_of_eps(element: str, group_size: int, eps: float, is_ue8m0: bool = False, layout: str = "linear") -> QuantSpec:
    """One scale a group, of an amax that is at least `eps`; a power of two if `is_ue8m0`."""
    floor = max(eps / MAX_CODE[element], _LEAST_FLOOR)
    return spec_of(element, group_size, "f32_ue8m0" if is_ue8m0 else "f32", layout, floor)


def column_layout(is_transposed: bool, is_tma_aligned: bool) -> str:
    """The layout that the flags of engines ask for."""
    return "linear" if not is_transposed else "column4" if is_tma_aligned else "column"


def transposed_scales(q: QuantizedTensor) -> torch.Tensor:
    """Column-major scales as engines have them: a view (M, groups), or (B, M, groups) of a batch."""
    shape = q.data.shape
    scales: torch.Tensor = q.scale.transpose(-1, -2)
    return scales[..., : shape[-2] if q.batched else q.data[..., 0].numel(), :]


def write_groups(
    encode: Callable[..., QuantizedTensor], spec: QuantSpec, out: torch.Tensor, scales: torch.Tensor
) -> None:
    """Encode into tensors of the caller: scales (..., groups), in rows or, of a matrix, column by column."""
    if scales.is_contiguous():
        encode(spec=spec, out=out, out_scale=scales)
    elif scales.ndim == 2 and scales.t().is_contiguous():
        encode(spec=spec.with_layout("column"), out=out, out_scale=scales.t())
    else:  # columns with rows between them
        scales.copy_(encode(spec=spec, out=out).scale.view(scales.shape))


def quantize_groups(
    x: torch.Tensor, dtype: torch.dtype, group_size: int, eps: float, is_ue8m0: bool = False,
    is_transposed: bool = False, is_tma_aligned: bool = False, out: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Codes and scales of the groups of rows, of an amax that is at least `eps`."""
    layout = column_layout(is_transposed, is_tma_aligned)
    spec = spec_of_eps(element_of(dtype, "dtype"), group_size, eps, is_ue8m0, layout)
    q = jitnorm.quantize(x, spec=spec, batched=is_transposed and x.ndim == 3, out=out)
    return q.data, transposed_scales(q) if is_transposed else q.scale
