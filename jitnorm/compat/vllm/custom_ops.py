"""vLLM's functions that allocate their results, from `_custom_ops`, `fp8_utils`, `int8_utils`, `fused_qk_rmsnorm`."""

from __future__ import annotations

from collections.abc import Sequence

import torch

import jitnorm
from jitnorm.compat.arguments import element_of, given_spec, spec_of
from jitnorm.compat.groups import column_layout, quantize_groups, transposed_scales
from jitnorm.compat.vllm.deep_gemm import takes_powers_of_two
from jitnorm.compat.vllm.experts import MXFP4, NVFP4, check_experts
from jitnorm.compat.vllm.floors import group_spec, row_spec
from jitnorm.compat.vllm.fp4 import create_fp4_output_tensors
from jitnorm.compat.vllm.fp4 import scaled_fp4_quant as fill_fp4
from jitnorm.compat.vllm.given_scales import block_size_of
from jitnorm.compat.vllm.outputs_first import refuse_azp
from jitnorm.ops.pairs import (
    experts_quantize_pair,
    fp4_quantize_pair,
    norm_quantize_pair,
    quantize_pair,
    silu_and_mul_quantize_pair,
)


def fused_q_kv_rmsnorm(
    qr: torch.Tensor, kv: torch.Tensor, q_weight: torch.Tensor, kv_weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """RMSNorm of the latents of MLA, rows of two lengths, in one launch."""
    return jitnorm.q_kv_rmsnorm(qr, kv, q_weight, kv_weight, eps)


def rms_norm_dynamic_per_token_quant(
    input: torch.Tensor,
    weight: torch.Tensor,
    epsilon: float,
    quant_dtype: torch.dtype,
    scale_ub: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """RMSNorm, then FP8 or INT8 with a scale for each row: codes, and float32 scales (M, 1)."""
    spec = row_spec(element_of(quant_dtype, "quant_dtype"))
    return norm_quantize_pair(input, weight, epsilon, spec, "vllm", None, None, scale_ub, residual, True)


def rms_norm_per_block_quant(
    input: torch.Tensor,
    weight: torch.Tensor,
    epsilon: float,
    quant_dtype: torch.dtype,
    group_size: Sequence[int],
    scale_ub: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    is_scale_transposed: bool = False,
    tma_alignment: int = 0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """RMSNorm, then FP8 or INT8 with a scale for each group of a row.

    Args:
        input: float16, bfloat16 or float32, shape (..., hidden_size).
        weight: shape (hidden_size,).
        epsilon: added to the mean of squares.
        quant_dtype: torch.float8_e4m3fn or torch.int8.
        group_size: ``[1, n]``, with 16, 32, 48, 64, 96, 128 or 256 for n.
        scale_ub: float32 tensor of one element that limits amax; None for no limit.
        residual: like the input, or None; added first, and becomes the sum.
        is_scale_transposed: whether the scales are stored column by column.
        tma_alignment: 4 to round each of these columns up to a multiple of 4 rows, 0 for no rounding.

    Returns:
        the codes, and float32 scales (M, hidden_size / n); with `tma_alignment` and a 3-D input, scales are 3-D, and
        each matrix is rounded up separately.

    Raises:
        ValueError: an argument that is not allowed.
    """
    if len(group_size) != 2 or group_size[0] != 1:
        raise ValueError(f"group_size: is {list(group_size)!r}; allowed are [1, 16], [1, 32] up to [1, 256]")
    if tma_alignment not in (0, 4):
        raise ValueError(f"tma_alignment: is {tma_alignment!r}; allowed are 0 and 4")
    layout = column_layout(is_scale_transposed, tma_alignment == 4)
    spec = group_spec(element_of(quant_dtype, "quant_dtype"), group_size[1], layout)
    if layout == "column4" and input.ndim == 3:
        q = jitnorm.norm_quantize(
            input, weight, spec=spec, residual=residual, eps=epsilon, scale_ub=scale_ub, rounding="vllm", batched=True
        )
        return q.data, transposed_scales(q)
    codes, scales = norm_quantize_pair(input, weight, epsilon, spec, "vllm", None, None, scale_ub, residual, True)
    return codes, scales if scales.ndim == 2 else scales.view(-1, scales.shape[-1])


def silu_and_mul_per_block_quant(
    input: torch.Tensor,
    group_size: int,
    quant_dtype: torch.dtype,
    scale_ub: torch.Tensor | None = None,
    is_scale_transposed: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """SwiGLU, then FP8 or INT8 with a scale for each group of a row: codes, and float32 scales (M, groups)."""
    layout = column_layout(is_scale_transposed, is_tma_aligned=False)
    spec = group_spec(element_of(quant_dtype, "quant_dtype"), group_size, layout)
    return silu_and_mul_quantize_pair(input, spec, "once", scale_ub=scale_ub, is_column=is_scale_transposed)


def scaled_fp8_quant(
    input: torch.Tensor,
    scale: torch.Tensor | None = None,
    num_token_padding: int | None = None,
    scale_ub: torch.Tensor | None = None,
    use_per_token_if_dynamic: bool = False,
    output: torch.Tensor | None = None,
    group_shape: tuple[int, int] | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """FP8 (E4M3) with given scales, or with one computed for the tensor or for each row.

    Args:
        input: float16, bfloat16 or float32, shape (M, hidden_size).
        scale: float32, the divisors: one element, or (M / r, hidden_size / c) for groups of r rows and c columns, flat
            if these are rows or columns; None to compute it.
        num_token_padding: minimum number of rows to allocate; those from M on are uninitialized.
        scale_ub: float32 tensor of one element that bounds the amax of rows; None: no bound.
        use_per_token_if_dynamic: whether each row has its own scale.
        output: where to write the codes; None allocates.
        group_shape: r and c, -1 for all; implied by a 2-D `scale`.

    Returns:
        the codes, and the scale: the given one, (1,) or (rows, 1).

    Raises:
        ValueError: an argument that is not allowed.
    """
    shape = input.shape
    if len(shape) != 2:
        raise ValueError(f"input: has {len(shape)} dimensions; allowed are 2")
    rows, columns = shape
    if num_token_padding is not None:
        if output is not None:
            raise ValueError("num_token_padding: is given, but output is, too; pass one of them")
        if num_token_padding > rows:
            output = input.new_empty((num_token_padding, columns), dtype=torch.float8_e4m3fn)
    # A view takes 1 us, so avoid it without padding.
    is_padded = output is not None and output.shape[0] != rows
    out = output[:rows] if output is not None and is_padded else output
    if scale is not None:
        element = "e4m3" if output is None else element_of(output.dtype, "output")
        block_size = block_size_of(input, scale, group_shape)
        given = scale if block_size == "tensor" else scale.contiguous()
        codes, _ = quantize_pair(input, given_spec(element, block_size), out, None, given)
    elif not use_per_token_if_dynamic:
        codes, scale = quantize_pair(input, spec_of("e4m3", "tensor"), out, None, "tensor")
    elif output is not None and is_padded:
        codes, scale = output, input.new_empty((output.shape[0], 1), dtype=torch.float32)
        jitnorm.quantize(input, spec=row_spec("e4m3"), scale_ub=scale_ub, out=out, out_scale=scale[:rows])
    else:
        codes, scale = quantize_pair(input, row_spec("e4m3"), out, None, None, scale_ub, None, True)
    return codes if output is None else output, scale


def scaled_int8_quant(
    input: torch.Tensor,
    scale: torch.Tensor | None = None,
    azp: torch.Tensor | None = None,
    symmetric: bool = True,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Symmetric INT8, with a given scale for the tensor or one computed for each row.

    Returns:
        the codes; the scale, the given one or (M, 1); and None, for the zero point.

    Raises:
        ValueError: a zero point is requested.
    """
    refuse_azp(azp is not None, "azp", "is given")
    refuse_azp(not symmetric, "symmetric", "is False")
    if scale is not None:
        return quantize_pair(input, spec_of("int8", "tensor"), None, None, scale)[0], scale, None
    return *quantize_pair(input, spec_of("int8", "row"), is_column=True), None


def scaled_fp4_quant(
    input: torch.Tensor,
    input_global_scale: torch.Tensor,
    is_sf_swizzled_layout: bool = True,
    backend: str = "none",
    padded_n: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """NVFP4 with a given global scale.

    Args:
        input: float16 or bfloat16, shape (..., n), n divisible by 16.
        input_global_scale: float32 tensor of one element, ``448 * 6 / amax``.
        is_sf_swizzled_layout: whether the scales have the 128x4 layout.
        backend: with ``"trtllm"`` in it, up to 32 rows have the 8x4 layout.
        padded_n: number of columns of codes and scales, with zeros from n on; None: n.

    Returns:
        the codes, two per byte, and the scales, float8_e4m3fn, of shape (rows, columns), padded if swizzled.

    Raises:
        ValueError: an argument that is not allowed.
    """
    columns = input.shape[-1]
    is_8x4 = "trtllm" in backend and input.numel() <= 32 * columns
    if padded_n is None or padded_n == columns:
        matrix = input if input.ndim == 2 else input.reshape(-1, columns)
        is_swizzled = is_sf_swizzled_layout or is_8x4
        return fp4_quantize_pair(matrix, input_global_scale, 16, False, is_swizzled, is_8x4, is_e4m3=True)
    if padded_n < columns or padded_n % 16 or is_8x4:
        raise ValueError(f"padded_n: is {padded_n!r}; allowed are multiples of 16 from {columns} on, not in 8x4")
    codes, scales = create_fp4_output_tensors(
        input.numel() // columns, columns, input.device, is_sf_swizzled_layout, padded_n
    )
    fill_fp4.out(input, input_global_scale, is_sf_swizzled_layout, output=codes, output_scale=scales)
    return codes, scales.view(torch.float8_e4m3fn)


def scaled_fp4_experts_quant(
    input_tensor: torch.Tensor,
    input_global_scale: torch.Tensor,
    expert_offsets: torch.Tensor,
    blockscale_offsets: torch.Tensor,
    topk: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """NVFP4 of the consecutive rows of experts, with one global scale each.

    Args:
        input_tensor: float16 or bfloat16, shape (rows, n), n divisible by 16.
        input_global_scale: float32, shape (experts,).
        expert_offsets: int32, shape (experts + 1,), the first row of each expert.
        blockscale_offsets: int32, shape (experts + 1,), the first row, a multiple of 128, of each expert's scales.
        topk: ignored; limits vLLM's memory.

    Returns:
        the codes, two per byte, and the scales, float8_e4m3fn, swizzled, with as many rows as offsets can need, which
        is fewer than in vLLM.
    """
    _check_matrix(input_tensor)
    return experts_quantize_pair(input_tensor, expert_offsets, blockscale_offsets, NVFP4, False, input_global_scale)


def silu_and_mul_scaled_fp4_experts_quant(
    input_tensor: torch.Tensor,
    input_global_scale: torch.Tensor,
    expert_offsets: torch.Tensor,
    blockscale_offsets: torch.Tensor,
    topk: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """SwiGLU of gates and values, (rows, 2 * n), then `scaled_fp4_experts_quant`."""
    _check_matrix(input_tensor)
    return experts_quantize_pair(input_tensor, expert_offsets, blockscale_offsets, NVFP4, True, input_global_scale)


def mxfp4_experts_quant(
    input_tensor: torch.Tensor,
    expert_offsets: torch.Tensor,
    blockscale_offsets: torch.Tensor,
    n_experts: int,
    topk: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """MXFP4 of the rows of experts, as `scaled_fp4_experts_quant`; n is divisible by 32, and scales are uint8."""
    _check_matrix(input_tensor)
    check_experts(n_experts, expert_offsets)
    return experts_quantize_pair(input_tensor, expert_offsets, blockscale_offsets, MXFP4, False)


def silu_and_mul_mxfp4_experts_quant(
    input_tensor: torch.Tensor,
    expert_offsets: torch.Tensor,
    blockscale_offsets: torch.Tensor,
    n_experts: int,
    topk: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """SwiGLU of gates and values, (rows, 2 * n), then `mxfp4_experts_quant`."""
    _check_matrix(input_tensor)
    check_experts(n_experts, expert_offsets)
    return experts_quantize_pair(input_tensor, expert_offsets, blockscale_offsets, MXFP4, True)


def _check_matrix(input: torch.Tensor) -> None:
    if input.ndim != 2:
        raise ValueError(f"input_tensor: has {input.ndim} dimensions; allowed are 2")


def per_token_group_quant_fp8(
    x: torch.Tensor,
    group_size: int,
    eps: float = 1e-10,
    dtype: torch.dtype | None = None,
    column_major_scales: bool = False,
    tma_aligned_scales: bool = False,
    out_q: torch.Tensor | None = None,
    use_ue8m0: bool | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """FP8 with a scale for each group of a row, with an amax of at least `eps`.

    Scales are powers of two if `use_ue8m0`, or if it is None and vLLM would multiply by DeepGEMM.
    """
    dtype = dtype or torch.float8_e4m3fn
    is_ue8m0 = takes_powers_of_two(x.device) if use_ue8m0 is None else use_ue8m0
    return quantize_groups(x, dtype, group_size, eps, is_ue8m0, column_major_scales, tma_aligned_scales, out_q)


def per_token_group_quant_fp8_packed_for_deepgemm(
    x: torch.Tensor,
    group_size: int,
    eps: float = 1e-10,
    use_ue8m0: bool | None = None,
    out_q: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """FP8 for DeepGEMM: scales are powers of two, four groups per int32, column-major and TMA-aligned."""
    if use_ue8m0 is False:
        raise ValueError("use_ue8m0: is False, but packed scales are powers of two; pass True or None")
    return quantize_groups(x, torch.float8_e4m3fn, group_size, eps, True, True, True, out_q, is_packed=True)


def per_token_group_quant_int8(
    x: torch.Tensor, group_size: int, eps: float = 1e-10, dtype: torch.dtype = torch.int8
) -> tuple[torch.Tensor, torch.Tensor]:
    """INT8 with a scale for each group of a row, with an amax of at least `eps`."""
    return quantize_groups(x, dtype, group_size, eps)
