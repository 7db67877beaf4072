"""8-bit codes with group scales, in the layouts that engines use for such scales."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import torch
from torch.compiler import is_compiling

import jitnorm
from jitnorm.compat.arguments import element_of, spec_of
from jitnorm.interop.taken import columns_behind
from jitnorm.kernels.quant_spec import MAX_CODE, QuantSpec
from jitnorm.ops.pairs import quantize_columns, quantize_pair
from jitnorm.quantized import QuantizedTensor

_LEAST_FLOOR = 2.0**-126  # the smallest value that a spec allows
_LEAST_POWER = 1e-10  # the lower bound of engines' scales, before they become powers of two


@cache
def spec_of_eps(
    element: str,
    group_size: int,
    eps: float,
    is_ue8m0: bool = False,
    layout: str = "linear",
    least_power: float = _LEAST_POWER,
) -> QuantSpec:
    """One scale a group, with an amax of at least `eps`; if `is_ue8m0`, a power of two not below `least_power`."""
    floor = max(eps / MAX_CODE[element], _LEAST_FLOOR, least_power if is_ue8m0 else 0.0)
    return spec_of(element, group_size, "f32_ue8m0" if is_ue8m0 else "f32", layout, floor)


# Cached, too, because finding the element first would take 0.1 us.
@cache
def spec_of_groups(
    dtype: torch.dtype, name: str, group_size: int, eps: float, is_ue8m0: bool, layout: str = "linear"
) -> QuantSpec:
    """`spec_of_eps` for the codes of an argument of this name."""
    return spec_of_eps(element_of(dtype, name), group_size, eps, is_ue8m0, layout)


@cache
def _spec_of_scales(
    dtype: torch.dtype, group_size: int, eps: float, is_ue8m0: bool, is_transposed: bool, is_tma_aligned: bool,
    is_packed: bool, least_power: float,
) -> QuantSpec:  # fmt: skip
    """`spec_of_groups` for scales in the layout that the engines' flags select."""
    layout = column_layout(is_transposed, is_tma_aligned, is_packed)
    return spec_of_eps(element_of(dtype, "dtype"), group_size, eps, is_ue8m0, layout, least_power)


# Cached, because constructing a spec takes 35 us.
_with_layout = cache(QuantSpec.with_layout)


def column_layout(is_transposed: bool, is_tma_aligned: bool, is_packed: bool = False) -> str:
    """The layout that the engines' flags select."""
    if is_packed:
        return "packed"
    return "linear" if not is_transposed else "column4" if is_tma_aligned else "column"


def transposed_scales(q: QuantizedTensor) -> torch.Tensor:
    """Column-major scales of a matrix or a batch in the engines' form: a view (..., M, groups)."""
    scales: torch.Tensor = q.scale.transpose(-1, -2)
    return scales[..., : q.data.shape[-2], :]


def write_groups(
    encode: Callable[..., QuantizedTensor],
    spec: QuantSpec,
    out: torch.Tensor,
    scales: torch.Tensor,
    is_batch: bool = False,
) -> None:
    """Encode into the caller's tensors.

    Scales are float32 (..., groups), row-major or, for a matrix or a batch that is encoded as one, column-major; or
    int32 (..., M, ceil(groups / 4)), column-major and TMA-aligned, with the exponents of four groups in each element.
    In other layouts, or if their memory ends with the last row, they are copied.
    """
    if scales.dtype == torch.int32:
        columns = columns_behind(scales)
        q = encode(spec=_with_layout(spec, "packed"), out=out, out_scale=columns)
        if columns is None:
            _copy_columns(q.scale, scales)
    elif scales.is_contiguous():
        encode(spec=spec, out=out, out_scale=scales)
    elif (scales.ndim == 2 or is_batch) and (columns := columns_behind(scales)) is not None:
        encode(spec=_with_layout(spec, "column4"), out=out, out_scale=columns)
    elif scales.ndim == 2 and scales.t().is_contiguous():
        encode(spec=_with_layout(spec, "column"), out=out, out_scale=scales.t())
    else:  # columns with rows between them
        scales.copy_(encode(spec=spec, out=out).scale.view(scales.shape))


def quantize_groups_into(input: torch.Tensor, spec: QuantSpec, out: torch.Tensor, scales: torch.Tensor) -> None:
    """`write_groups` for quantization alone."""
    dtype = scales.dtype
    if dtype is torch.float32 and scales.is_contiguous():
        quantize_pair(input, spec, out, scales)
    elif dtype is torch.int32 and scales.ndim == 2:
        quantize_packed_into(input, _with_layout(spec, "packed"), out, scales)
    else:
        write_groups(partial(jitnorm.quantize, input), spec, out, scales)


def quantize_packed_into(input: torch.Tensor, spec: QuantSpec, out: torch.Tensor, scales: torch.Tensor) -> None:
    """`write_groups` for quantization alone, of a matrix, with int32 scales: `spec` has their layout."""
    columns = quantize_columns(input, spec, out, scales)
    if columns is not scales:
        _copy_columns(columns, scales)


def _copy_columns(columns: torch.Tensor, to: torch.Tensor) -> None:
    """Copy whole columns to a view of their rows whose memory ends with the view's last row."""
    rows, count = to.shape[-2:]
    length = columns.shape[-1]
    # Compiled programs may not write to memory past that of a view.
    if to.ndim == 2 and to.stride() == (1, length) and not is_compiling():
        all_of = to.as_strided(((count - 1) * length + rows,), (1,))
        all_of.copy_(columns.view(-1)[: all_of.numel()])
    else:
        to.copy_(columns.transpose(-1, -2)[..., :rows, :])


def quantize_groups(
    x: torch.Tensor, dtype: torch.dtype, group_size: int, eps: float, is_ue8m0: bool = False,
    is_transposed: bool = False, is_tma_aligned: bool = False, out: torch.Tensor | None = None,
    is_packed: bool = False, least_power: float = _LEAST_POWER,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Codes and scales of the groups of rows, with an amax of at least `eps`."""
    spec = _spec_of_scales(dtype, group_size, eps, is_ue8m0, is_transposed, is_tma_aligned, is_packed, least_power)
    if is_transposed and x.ndim == 3:
        q = jitnorm.quantize(x, spec=spec, batched=True, out=out)
        return q.data, transposed_scales(q)
    return quantize_pair(x, spec, out, is_column=is_transposed)
