"""The norms, activations and quantization of `sgl_kernel` and of SGLang's kernels for FP8, INT8 and experts.

Instead of ``import sgl_kernel``, write ``from jitnorm.compat import sglang as sgl_kernel``.
"""

from __future__ import annotations

from functools import partial

import torch

import jitnorm
from jitnorm.compat.arguments import element_of, spec_of, spec_of_codes
from jitnorm.compat.flashinfer.norm import fused_add_rmsnorm, gemma_fused_add_rmsnorm, gemma_rmsnorm, rmsnorm
from jitnorm.compat.groups import quantize_groups, spec_of_eps, write_groups
from jitnorm.compat.rope import turn, yarn_angles, yarn_frequencies
from jitnorm.compat.sglang_kernels.groups import empty_scales, write_rows
from jitnorm.compat.vllm.custom_ops import scaled_fp4_quant as _scaled_fp4_quant
from jitnorm.compat.vllm.gated import rms_norm_gated as _rms_norm_gated
from jitnorm.kernels.activations import with_numbers
from jitnorm.kernels.quant_spec import MAX_CODE
from jitnorm.ops.norm_qk_packed import qk_rmsnorm_rope_packed
from jitnorm.ops.pairs import quantize_pair, silu_and_mul_quantize_into

_E4M3, _E4M3_ROWS = spec_of("e4m3", "tensor"), spec_of("e4m3", "row")

__all__ = [
    "fused_add_rmsnorm",
    "fused_qk_norm_rope",
    "gelu_and_mul",
    "gelu_tanh_and_mul",
    "gemma_fused_add_rmsnorm",
    "gemma_rmsnorm",
    "per_tensor_quant_fp8",
    "per_token_group_quant_int8",
    "per_token_quant_int8",
    "rms_norm_gated",
    "rmsnorm",
    "rotary_embedding",
    "scaled_fp4_quant",
    "sgl_per_tensor_quant_fp8",
    "sgl_per_token_group_quant_8bit",
    "sgl_per_token_group_quant_fp8",
    "sgl_per_token_group_quant_int8",
    "sgl_per_token_quant_fp8",
    "sglang_per_token_group_quant_fp8",
    "sglang_per_token_quant_fp8",
    "silu_and_mul",
    "silu_and_mul_masked_post_per_tensor_quant_fwd",
    "silu_and_mul_masked_post_quant_fwd",
]


def rms_norm_gated(
    *,
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    z: torch.Tensor | None = None,
    eps: float = 1e-6,
    group_size: int | None = None,
    norm_before_gate: bool = True,
    is_rms_norm: bool = False,
    activation: str = "swish",
) -> torch.Tensor:
    """RMSNorm times the activation of the gates `z`, or RMSNorm of that product; `is_rms_norm` must be True."""
    if not is_rms_norm:
        raise ValueError("is_rms_norm: is False, but gates need RMSNorm; pass True")
    return _rms_norm_gated(x, weight, bias, z, eps, group_size, norm_before_gate, activation)


def silu_and_mul(input: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """SwiGLU: SiLU of the first half of each row times the second."""
    return jitnorm.silu_and_mul(input, out)


def gelu_and_mul(input: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """GELU, by erf, of the first half of each row times the second."""
    return jitnorm.gelu_and_mul(input, out)


def gelu_tanh_and_mul(input: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """GELU, by tanh, of the first half of each row times the second."""
    return jitnorm.gelu_tanh_and_mul(input, out)


def fused_qk_norm_rope(
    qkv: torch.Tensor,
    num_heads_q: int,
    num_heads_k: int,
    num_heads_v: int,
    head_dim: int,
    eps: float,
    q_weight: torch.Tensor,
    k_weight: torch.Tensor,
    base: float,
    is_neox: bool,
    position_ids: torch.Tensor,
    factor: float,
    low: float,
    high: float,
    attention_factor: float,
    rotary_dim: int | None = None,
) -> None:
    """RMSNorm of queries and keys and their rotation, in place, by angles that the kernel computes.

    With an `attention_factor`, torch computes them in earlier launches.
    """
    size = head_dim if rotary_dim is None else rotary_dim
    if attention_factor == 1:
        table, rows = yarn_frequencies(qkv.device, size, base, factor, low, high), position_ids
    else:
        table = yarn_angles(position_ids.reshape(-1), size, base, factor, low, high, attention_factor)
        rows = torch.arange(table.shape[0], device=table.device)
    qk_rmsnorm_rope_packed(
        qkv, q_weight, k_weight, table, rows, eps, is_neox, num_heads_q, num_heads_k, num_heads_v, head_dim
    )


def rotary_embedding(
    positions: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor | None,
    head_size: int,
    cos_sin_cache: torch.Tensor,
    is_neox: bool = True,
) -> None:
    """Rotate queries, and keys if given, in place, by cosines and sines at their positions."""
    turn(query, key, head_size, cos_sin_cache, is_neox, positions, (query, key))


def sgl_per_token_quant_fp8(input: torch.Tensor, output_q: torch.Tensor, output_s: torch.Tensor) -> None:
    """FP8 with a scale for each row."""
    quantize_pair(input, _E4M3_ROWS, output_q, output_s)


def sgl_per_tensor_quant_fp8(
    input: torch.Tensor, output_q: torch.Tensor, output_s: torch.Tensor, is_static: bool = False
) -> None:
    """FP8 with one scale, `output_s`, which is given if `is_static` and otherwise computed, in two launches."""
    if is_static:
        quantize_pair(input, _E4M3, output_q, None, output_s)
    else:
        quantize_pair(input, _E4M3, output_q, output_s, "tensor")


per_tensor_quant_fp8 = sgl_per_tensor_quant_fp8


def sgl_per_token_group_quant_8bit(
    input: torch.Tensor,
    output_q: torch.Tensor,
    output_s: torch.Tensor,
    group_size: int,
    eps: float,
    fp8_min: float,
    fp8_max: float,
    scale_ue8m0: bool = False,
    fuse_silu_and_mul: bool = False,
    masked_m: torch.Tensor | None = None,
    enable_v2: bool | None = None,
) -> None:
    """FP8 or INT8 with a scale for each group of a row, with an amax of at least `eps`.

    Args:
        input: float16, bfloat16 or float32, shape (..., hidden_size), or twice as wide if `fuse_silu_and_mul`.
        output_q: where to write the codes, float8_e4m3fn or int8.
        output_s: where to write the scales, float32 (..., hidden_size / group_size), row-major or column-major; or
            int32 with the exponents of four groups in each element, column-major and TMA-aligned.
        group_size: 16, 32, 48, 64, 96, 128 or 256.
        eps: a lower bound for the largest magnitude of a group.
        fp8_min: the smallest code; must be the dtype's.
        fp8_max: the largest code; must be the dtype's.
        scale_ue8m0: whether scales are powers of two.
        fuse_silu_and_mul: whether the input has gates and values, of which SwiGLU, rounded at each step, is quantized.
        masked_m: int32 (B,), how many rows each matrix of a batch has; None: all.
        enable_v2: ignored; selects SGLang's kernel.

    Raises:
        ValueError: an argument that is not allowed.
    """
    element = element_of(output_q.dtype, "output_q")
    if fp8_max != MAX_CODE[element]:
        raise ValueError(f"fp8_max: is {fp8_max!r}; allowed is {MAX_CODE[element]}, that of {output_q.dtype}")
    rounding = "hf" if fuse_silu_and_mul else None
    write_rows(input, output_q, output_s, group_size, scale_ue8m0, rounding, masked_m, eps)


sgl_per_token_group_quant_fp8 = sgl_per_token_group_quant_8bit
sgl_per_token_group_quant_int8 = sgl_per_token_group_quant_8bit


def silu_and_mul_masked_post_quant_fwd(
    input: torch.Tensor,
    output: torch.Tensor,
    output_scale: torch.Tensor,
    quant_group_size: int,
    masked_m: torch.Tensor,
    scale_ue8m0: bool = False,
    gemm1_alpha: float | None = 0.0,
    gemm1_clamp_limit: float | None = 0.0,
    num_real_tokens: int | None = None,
    topk: int | None = None,
) -> None:
    """SwiGLU of the rows counted by a mask, rounded at each step, then FP8 with a scale for each group of a row.

    Args:
        input: (experts, rows, 2 * hidden_size), gates and then values.
        output: where to write the codes, float8_e4m3fn (experts, rows, hidden_size).
        output_scale: where to write the scales: float32 (experts, rows, groups), or int32 (experts, groups / 4, rows)
            with the exponents of four groups in each element.
        quant_group_size: 16, 32, 48, 64, 96, 128 or 256.
        masked_m: int32 (experts,), how many rows each expert has.
        scale_ue8m0: whether scales are powers of two.
        gemm1_alpha: 0, or the factor of gates within the sigmoid of clamped SwiGLU, which is not rounded: 1.702 for
            gpt-oss.
        gemm1_clamp_limit: the limit of its gates, and of its values in magnitude.
        num_real_tokens: ignored; affects only SGLang's grid.
        topk: ignored, likewise.

    Raises:
        ValueError: an argument that is not allowed.
    """
    rounding, activation = "hf", "silu"
    if gemm1_alpha:
        if not gemm1_clamp_limit or gemm1_clamp_limit < 0:
            raise ValueError(f"gemm1_clamp_limit: is {gemm1_clamp_limit!r}; allowed are positive numbers")
        rounding, activation = "once", with_numbers("swiglu", limit=gemm1_clamp_limit, alpha=gemm1_alpha, beta=1.0)
    spec = spec_of_eps("e4m3", quant_group_size, 1e-10, scale_ue8m0, "linear", 0.0)
    dtype = output_scale.dtype
    if dtype is torch.float32 and output_scale.is_contiguous():
        silu_and_mul_quantize_into(input, masked_m, spec, rounding, activation, output, output_scale)
        return
    encode = partial(
        jitnorm.silu_and_mul_quantize, input, activation=activation, batched=True, mask=masked_m, rounding=rounding
    )
    write_groups(encode, spec, output, output_scale.transpose(-1, -2) if dtype is torch.int32 else output_scale)


def silu_and_mul_masked_post_per_tensor_quant_fwd(
    input: torch.Tensor, output: torch.Tensor, masked_m: torch.Tensor, scale: torch.Tensor
) -> torch.Tensor:
    """SwiGLU of the rows counted by a mask, rounded at each step, then FP8 with one scale, or one per expert."""
    silu_and_mul_quantize_into(input, masked_m, _E4M3, "hf", "silu", output, None, scale)
    return output


def sglang_per_token_quant_fp8(
    x: torch.Tensor,
    dtype: torch.dtype = torch.float8_e4m3fn,
    *,
    output_q: torch.Tensor | None = None,
    output_s: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """FP8 with a scale for each row: codes, and float32 scales (M, 1)."""
    return quantize_pair(x, spec_of_codes(dtype, "dtype", "row"), output_q, output_s, is_column=True)


def sglang_per_token_group_quant_fp8(
    x: torch.Tensor,
    group_size: int,
    eps: float = 1e-10,
    column_major_scales: bool = False,
    scale_tma_aligned: bool = False,
    scale_ue8m0: bool = False,
    fuse_silu_and_mul: bool = False,
    masked_m: torch.Tensor | None = None,
    *,
    output_q: torch.Tensor | None = None,
    output_s: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """FP8 with a scale for each group of a row, with an amax of at least `eps`.

    Column-major powers of two are stored as exponents, four per int32, as DeepGEMM reads them. The arguments after
    `scale_ue8m0` are those of `sgl_per_token_group_quant_8bit`; outputs that are not given are allocated.
    """
    is_packed = column_major_scales and scale_ue8m0
    if is_packed and not scale_tma_aligned:
        raise ValueError("scale_tma_aligned: is False, but column-major powers of two are aligned; pass True")
    if not fuse_silu_and_mul and masked_m is None and output_q is None and output_s is None:
        return quantize_groups(
            x, torch.float8_e4m3fn, group_size, eps, scale_ue8m0, column_major_scales, scale_tma_aligned,
            is_packed=is_packed, least_power=0.0,
        )  # fmt: skip
    if output_q is None:
        columns = x.shape[-1] // 2 if fuse_silu_and_mul else x.shape[-1]
        output_q = x.new_empty((*x.shape[:-1], columns), dtype=torch.float8_e4m3fn)
    if output_s is None:
        output_s = empty_scales(output_q, group_size, is_packed, column_major_scales, scale_tma_aligned)
    write_rows(x, output_q, output_s, group_size, scale_ue8m0, "hf" if fuse_silu_and_mul else None, masked_m, eps)
    return output_q, output_s


def per_token_quant_int8(
    x: torch.Tensor, scale_dtype: torch.dtype = torch.float32, cal_sum: bool = False
) -> tuple[torch.Tensor, ...]:
    """INT8 with a scale for each row: codes, scales (..., 1), and if `cal_sum` the sums of the rows of `x`, (...).

    Sums are torch's, in float64 and rounded once.
    """
    codes, scales = quantize_pair(x, spec_of("int8", "row"), is_column=True)
    if x.ndim != 2:  # a view takes 0.8 us
        scales = scales.view(*x.shape[:-1], 1)
    made = codes, scales if scale_dtype is torch.float32 else scales.to(scale_dtype)  # which takes 0.3 us if it is
    return (*made, x.sum(-1, dtype=torch.float64).to(x.dtype)) if cal_sum else made


def scaled_fp4_quant(input: torch.Tensor, input_global_scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """NVFP4 with a given global scale: codes, two per byte, and swizzled scales, float8_e4m3fn, both of a matrix."""
    return _scaled_fp4_quant(input, input_global_scale)


def per_token_group_quant_int8(
    x: torch.Tensor, group_size: int, eps: float = 1e-10, dtype: torch.dtype = torch.int8
) -> tuple[torch.Tensor, torch.Tensor]:
    """INT8 with a scale for each group of a row, with an amax of at least `eps`."""
    return quantize_groups(x, dtype, group_size, eps)
