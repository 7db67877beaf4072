"""The functions of `flashinfer.quantization`. `enable_pdl` and `backend` are hints; scales may be of any dtype."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

import jitnorm
from jitnorm import (
    SfLayout,
    block_scale_interleave,
    mxfp8_dequantize_host,
    mxfp8_grouped_quantize,
    scaled_fp4_grouped_quantize,
    shuffle_matrix_a,
    shuffle_matrix_sf_a,
)
from jitnorm.catalogue.decoders import E2M1_AND_UFP8SF_SCALE_TO_FLOAT, MXFP4_DEQUANTIZE
from jitnorm.catalogue.encodings import fp4_spec
from jitnorm.catalogue.four_over_six import recipe_of
from jitnorm.catalogue.sf_layout import layout_name
from jitnorm.compat.arguments import as_hint, as_scale, on_host
from jitnorm.compat.flashinfer.cute_dsl import (
    mxfp4_quantize_cute_dsl,
    mxfp8_quantize_cute_dsl,
    nvfp4_quantize_cute_dsl,
    nvfp4_quantize_per_token_cute_dsl,
)
from jitnorm.compat.flashinfer.four_over_six import (
    UNSET,
    NVFP44Over6Config,
    NVFP44Over6ErrMode,
    nvfp4_4over6_code,
    nvfp4_4over6_from_code,
    nvfp4_e4m3_max,
    resolve_nvfp4_4over6,
)
from jitnorm.compat.groups import quantize_groups
from jitnorm.kernels.numerics import round_up
from jitnorm.kernels.quant_spec import QuantSpec
from jitnorm.ops.dequantize import to_float
from jitnorm.ops.pairs import fp4_quantize_pair, nvfp4_quantize_pair, silu_and_mul_nvfp4_quantize_pair
from jitnorm.ops.quantize_fp4 import largest_scale

__all__ = [
    "NVFP44Over6Config",
    "NVFP44Over6ErrMode",
    "SfLayout",
    "block_scale_interleave",
    "e2m1_and_ufp8sf_scale_to_float",
    "fp4_quantize",
    "get_shuffle_matrix_a_row_indices",
    "make_nvfp4_global_scale",
    "mxfp4_dequantize",
    "mxfp4_dequantize_host",
    "mxfp4_quantize",
    "mxfp4_quantize_cute_dsl",
    "mxfp8_dequantize_host",
    "mxfp8_grouped_quantize",
    "mxfp8_quantize",
    "mxfp8_quantize_cute_dsl",
    "nvfp4_4over6_code",
    "nvfp4_4over6_from_code",
    "nvfp4_batched_quantize",
    "nvfp4_block_scale_interleave",
    "nvfp4_e4m3_max",
    "nvfp4_quantize",
    "nvfp4_quantize_cute_dsl",
    "nvfp4_quantize_per_token_cute_dsl",
    "per_token_group_quant_8bit",
    "reorder_rows_for_gated_act_gemm",
    "resolve_nvfp4_4over6",
    "scaled_fp4_grouped_quantize",
    "shuffle_matrix_a",
    "shuffle_matrix_sf_a",
    "silu_and_mul_nvfp4_quantize",
]

nvfp4_block_scale_interleave = block_scale_interleave


def fp4_quantize(
    input: torch.Tensor,
    global_scale: Any = None,
    sf_vec_size: int = 16,
    sf_use_ue8m0: bool = False,
    is_sf_swizzled_layout: bool = True,
    is_sf_8x4_layout: bool = False,
    is_global_scale_inversed: bool = False,
    enable_pdl: bool | None = None,
    backend: str = "cuda",
    nvfp4_4over6: Any = UNSET,
) -> tuple[torch.Tensor, torch.Tensor]:
    """NVFP4 or MXFP4: codes and scales. UE8M0 scales ignore `global_scale`; a column-major input stays so."""
    recipe = resolve_nvfp4_4over6(nvfp4_4over6)
    # Most inputs are contiguous, which is one question instead of two.
    if not input.is_contiguous() and input.ndim >= 2 and input.stride(-1) != 1 and input.stride(-2) == 1:
        codes, scales = fp4_quantize(
            input.transpose(-2, -1), global_scale, sf_vec_size, sf_use_ue8m0, is_sf_swizzled_layout, is_sf_8x4_layout,
            is_global_scale_inversed, enable_pdl, backend, recipe,
        )  # fmt: skip
        return codes.transpose(-2, -1), scales.transpose(-2, -1)
    return fp4_quantize_pair(
        input, None if sf_use_ue8m0 else global_scale, sf_vec_size, sf_use_ue8m0, is_sf_swizzled_layout,
        is_sf_8x4_layout, is_global_scale_inversed, enable_pdl, backend, recipe,
    )  # fmt: skip


def nvfp4_quantize(
    a: torch.Tensor,
    a_global_sf: Any,
    sfLayout: SfLayout = SfLayout.layout_128x4,  # noqa: N803 - FlashInfer's name
    do_shuffle: bool = False,
    sf_vec_size: int = 16,
    enable_pdl: bool | None = None,
    backend: str = "cuda",
    per_token_activation: bool = False,
    expanded_idx_to_permuted_idx: torch.Tensor | None = None,
    out_scale: torch.Tensor | None = None,
    nvfp4_4over6: Any = UNSET,
) -> tuple[torch.Tensor, ...]:
    """NVFP4: codes and scales, and with `per_token_activation` the global scale of each row, times any `out_scale`.

    With `expanded_idx_to_permuted_idx`, int32 (n,), only the rows with these indices are quantized, in their places;
    for other rows, scales are zero, and codes and global scales are uninitialized.
    """
    recipe = resolve_nvfp4_4over6(nvfp4_4over6)
    if expanded_idx_to_permuted_idx is not None:
        if not per_token_activation or do_shuffle or sf_vec_size != 16 or out_scale is not None:
            raise ValueError(
                "expanded_idx_to_permuted_idx: is given, which needs per_token_activation and blocks of 16"
            )
        spec = fp4_spec(16, "e4m3", layout_name("sfLayout", sfLayout), "row", recipe_of(recipe))
        spec = replace(spec, e4m3_max=largest_scale(a_global_sf) or spec.e4m3_max)
        return _of_rows(a, expanded_idx_to_permuted_idx, spec, as_hint(enable_pdl))
    if out_scale is not None and not per_token_activation:
        raise ValueError("out_scale: is given, which needs per_token_activation; pass None")
    if not per_token_activation and not do_shuffle:
        return nvfp4_quantize_pair(a, a_global_sf, sfLayout, sf_vec_size, enable_pdl, backend, recipe)
    made = jitnorm.nvfp4_quantize(
        a, None if a_global_sf is None else as_scale(a_global_sf, a), sfLayout, do_shuffle, sf_vec_size,
        as_hint(enable_pdl), backend, per_token_activation, nvfp4_4over6=recipe,
    )  # fmt: skip
    return made if out_scale is None else (*made[:2], made[2] * as_scale(out_scale, made[2]).reshape(1))


def _of_rows(
    a: torch.Tensor, numbers: torch.Tensor, spec: QuantSpec, enable_pdl: bool | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """NVFP4 with a global scale for each row, of the rows with these indices; negative ones are skipped."""
    rows, columns = a.shape
    kept = torch.full((rows + 1,), -1, dtype=torch.int32, device=a.device)
    first = numbers[:rows].clamp(-1, rows)  # as many as FlashInfer reads
    kept[first.long()] = first  # indices of no row go to an extra place after the last row
    padded = spec.row_multiple, 4 if spec.is_swizzled else 1
    scales = a.new_zeros((round_up(rows, padded[0]), round_up(columns // 16, padded[1])), dtype=torch.uint8)
    codes = a.new_empty((rows, columns // 2), dtype=torch.uint8)
    q = jitnorm.quantize(
        a, spec=spec, global_scale="row", input_rows=kept[:rows], enable_pdl=enable_pdl, out=codes, out_scale=scales
    )
    return codes, scales, q.row_scale


def mxfp4_quantize(
    a: torch.Tensor,
    backend: str = "cuda",
    enable_pdl: bool | None = None,
    sfLayout: SfLayout = SfLayout.layout_128x4,  # noqa: N803 - FlashInfer's name
) -> tuple[torch.Tensor, torch.Tensor]:
    """MXFP4: codes and scales."""
    return jitnorm.mxfp4_quantize(a, backend, as_hint(enable_pdl), sfLayout)


def mxfp8_quantize(
    input: torch.Tensor,
    is_sf_swizzled_layout: bool = True,
    alignment: int = 32,
    enable_pdl: bool | None = None,
    backend: str = "cuda",
    sf_swizzle_layout: SfLayout | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """MXFP8: codes and scales."""
    return jitnorm.mxfp8_quantize(
        input, is_sf_swizzled_layout, alignment, as_hint(enable_pdl), backend, sf_swizzle_layout
    )


def silu_and_mul_nvfp4_quantize(
    input: torch.Tensor,
    global_scale: Any,
    sf_vec_size: int = 16,
    is_sf_swizzled_layout: bool = True,
    is_sf_8x4_layout: bool = False,
    enable_pdl: bool | None = None,
    nvfp4_4over6: Any = UNSET,
) -> tuple[torch.Tensor, torch.Tensor]:
    """SwiGLU, then NVFP4: codes and scales."""
    return silu_and_mul_nvfp4_quantize_pair(
        input, global_scale, sf_vec_size, is_sf_swizzled_layout, is_sf_8x4_layout, as_hint(enable_pdl),
        resolve_nvfp4_4over6(nvfp4_4over6),
    )  # fmt: skip


def nvfp4_batched_quantize(
    a: torch.Tensor, a_global_sf: Any, sf_vec_size: int = 16, nvfp4_4over6: Any = UNSET
) -> tuple[torch.Tensor, torch.Tensor]:
    """NVFP4 of a batch of matrices, each padded separately."""
    return jitnorm.nvfp4_batched_quantize(a, as_scale(a_global_sf, a), sf_vec_size, resolve_nvfp4_4over6(nvfp4_4over6))


def per_token_group_quant_8bit(
    x: torch.Tensor,
    group_size: int,
    eps: float = 1e-10,
    dst_dtype: torch.dtype | None = None,
    column_major_scales: bool = False,
    scale_tma_aligned: bool = False,
    scale_ue8m0: bool = False,
    backend: str = "cutile",
) -> tuple[torch.Tensor, torch.Tensor]:
    """FP8 or INT8 with a scale for each group of a row, with an amax of at least `eps`."""
    dtype = dst_dtype or torch.float8_e4m3fn
    return quantize_groups(x, dtype, group_size, eps, scale_ue8m0, column_major_scales, scale_tma_aligned)


def make_nvfp4_global_scale(
    input_tensor: torch.Tensor,
    per_token_activation: bool,
    global_scale: float | None = None,
    nvfp4_4over6_config: NVFP44Over6Config | None = None,
) -> torch.Tensor:
    """The global scale of NVFP4: ``448 * 6 / amax``, or ``1 / (448 * 6)`` for rows with their own scales.

    A recipe may replace 448 by 256.
    """
    e4m3_max = nvfp4_e4m3_max(nvfp4_4over6_config)
    if per_token_activation:
        return as_scale(1 / (e4m3_max * 6), input_tensor)
    if global_scale is not None:
        return as_scale(global_scale, input_tensor)
    amax = jitnorm.compute_amax(input_tensor).view(1)
    return torch.where(amax == 0, torch.finfo(torch.float32).max, e4m3_max * 6 / amax)


def e2m1_and_ufp8sf_scale_to_float(
    e2m1_tensor: torch.Tensor,
    ufp8_scale_tensor: torch.Tensor,
    global_scale_tensor: torch.Tensor | None = None,
    sf_vec_size: int = 16,
    ufp8_type: int = 1,
    is_sf_swizzled_layout: bool = True,
    is_sf_8x4_layout: bool = False,
) -> torch.Tensor:
    """Decode FP4 to float32 where the codes are, and copy the values to the host."""
    factor = global_scale_tensor if ufp8_type == 1 else None
    decoded = to_float(
        E2M1_AND_UFP8SF_SCALE_TO_FLOAT, e2m1_tensor, ufp8_scale_tensor, factor, sf_vec_size, ufp8_type,
        is_sf_swizzled_layout, is_sf_8x4_layout,
    )  # fmt: skip
    return on_host(decoded)


def mxfp4_dequantize(
    a_fp4: torch.Tensor,
    a_sf: torch.Tensor,
    sfLayout: SfLayout = SfLayout.layout_128x4,  # noqa: N803 - FlashInfer's name
) -> torch.Tensor:
    """Decode MXFP4 to float32 where the codes are, and copy the values to the host."""
    return on_host(to_float(MXFP4_DEQUANTIZE, a_fp4, a_sf, None, sfLayout))


def mxfp4_dequantize_host(weight: torch.Tensor, scale: torch.Tensor, group_size: int = 32) -> torch.Tensor:
    """Decode MXFP4 with linear scales, on the host, to float32."""
    shape = (*weight.shape[:-1], weight.shape[-1] * 2)
    spec = jitnorm.QuantSpec("e2m1", group_size, "ue8m0")
    scale = scale.cpu().view(torch.uint8).reshape(*shape[:-1], -1)
    q = jitnorm.QuantizedTensor(weight.cpu(), scale, None, None, None, spec, shape)
    return q.dequantize(dtype="float32")


def get_shuffle_matrix_a_row_indices(input_tensor: torch.Tensor, epilogue_tile_m: int) -> torch.Tensor:
    """The input row for each row of `shuffle_matrix_a`, int64 on the host."""
    rows = torch.arange(input_tensor.shape[0], dtype=torch.int32).view(-1, 1).view(torch.uint8)
    return shuffle_matrix_a(rows, epilogue_tile_m).view(torch.int32).view(-1).long()


def reorder_rows_for_gated_act_gemm(x: torch.Tensor) -> torch.Tensor:
    """Interleave the rows of the two halves of a weight: 0, M / 2, 1, M / 2 + 1, and so on."""
    if x.shape[0] % 2:
        raise ValueError(f"x: has {x.shape[0]} rows; allowed are even numbers")
    halves = x.reshape(2, x.shape[0] // 2, *x.shape[1:])
    return halves.transpose(0, 1).reshape(x.shape)
