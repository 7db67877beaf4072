"""The operators of `torch.ops._C` for norms, activations and quantization; outputs are the first arguments.

Roundings are those of vLLM's kernels: plain norms round once, norms with a given scale before they encode, and norms
with computed scales at each step.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

import jitnorm
from jitnorm.compat.arguments import as_bytes, element_of, given_spec, spec_of, spec_of_codes
from jitnorm.compat.groups import quantize_groups_into, quantize_packed_into, spec_of_eps, spec_of_groups, write_groups
from jitnorm.compat.vllm.activations import fatrelu_and_mul as fatrelu_and_mul
from jitnorm.compat.vllm.activations import gelu_and_mul as gelu_and_mul
from jitnorm.compat.vllm.activations import gelu_fast as gelu_fast
from jitnorm.compat.vllm.activations import gelu_new as gelu_new
from jitnorm.compat.vllm.activations import gelu_quick as gelu_quick
from jitnorm.compat.vllm.activations import gelu_tanh_and_mul as gelu_tanh_and_mul
from jitnorm.compat.vllm.activations import masked_moe_activation as masked_moe_activation
from jitnorm.compat.vllm.activations import mul_and_silu as mul_and_silu
from jitnorm.compat.vllm.activations import relu_squared as relu_squared
from jitnorm.compat.vllm.activations import silu_and_mul as silu_and_mul
from jitnorm.compat.vllm.activations import silu_and_mul_with_clamp as silu_and_mul_with_clamp
from jitnorm.compat.vllm.activations import swigluoai_and_mul as swigluoai_and_mul
from jitnorm.compat.vllm.experts import mxfp4_experts_quant as mxfp4_experts_quant
from jitnorm.compat.vllm.experts import persistent_masked_m_silu_mul_quant as persistent_masked_m_silu_mul_quant
from jitnorm.compat.vllm.experts import scaled_fp4_experts_quant as scaled_fp4_experts_quant
from jitnorm.compat.vllm.experts import silu_and_mul_mxfp4_experts_quant as silu_and_mul_mxfp4_experts_quant
from jitnorm.compat.vllm.experts import silu_and_mul_scaled_fp4_experts_quant as silu_and_mul_scaled_fp4_experts_quant
from jitnorm.compat.vllm.floors import group_spec, row_spec
from jitnorm.compat.vllm.fp4 import scaled_fp4_quant as scaled_fp4_quant
from jitnorm.compat.vllm.given_scales import block_size_of
from jitnorm.compat.vllm.kv_cache import angles_of
from jitnorm.compat.vllm.rotary import rotary_embedding as rotary_embedding
from jitnorm.kernels.numerics import round_up
from jitnorm.ops.norm_qk_packed import qk_rmsnorm_rope_cache_packed, qk_rmsnorm_rope_packed
from jitnorm.ops.pairs import norm_quantize_pair, quantize_pair, silu_and_mul_quantize_pair

_NVFP4 = spec_of("e2m1", 16, "e4m3", "128x4")
_INT8, _INT8_ROWS = spec_of("int8", "tensor"), spec_of("int8", "row")


def rms_norm(result: torch.Tensor, input: torch.Tensor, weight: torch.Tensor | None, epsilon: float) -> None:
    """RMSNorm into `result`; the weight may be None, or one for each index of the first dimension."""
    jitnorm.rmsnorm(input, weight, epsilon, out=result, batched=_is_per_matrix(weight))


def fused_add_rms_norm(
    input: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor | None, epsilon: float
) -> None:
    """Add the input to the residual, and write the sum's RMSNorm to the input; the weight is as in `rms_norm`."""
    jitnorm.fused_add_rmsnorm(input, residual, weight, epsilon, batched=_is_per_matrix(weight))


def _is_per_matrix(weight: torch.Tensor | None) -> bool:
    return weight is not None and weight.ndim == 2


def fused_qk_norm_rope(
    qkv: torch.Tensor,
    num_heads_q: int,
    num_heads_k: int,
    num_heads_v: int,
    head_dim: int,
    eps: float,
    q_weight: torch.Tensor,
    k_weight: torch.Tensor,
    cos_sin_cache: torch.Tensor,
    is_neox: bool,
    position_ids: torch.Tensor,
    forced_token_heads_per_warp: int = -1,
) -> None:
    """RMSNorm of queries and keys and their rotation, in place; the last argument is ignored."""
    qk_rmsnorm_rope_packed(
        qkv, q_weight, k_weight, cos_sin_cache, position_ids, eps, is_neox, num_heads_q, num_heads_k, num_heads_v,
        head_dim,
    )  # fmt: skip


def fused_qknorm_rope_cache(
    q_out: torch.Tensor,
    k_out: torch.Tensor,
    v_out: torch.Tensor,
    qkv: torch.Tensor,
    q_weight: torch.Tensor,
    k_weight: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    positions: torch.Tensor,
    slot_mapping: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    head_dim: int,
    num_q_heads: int,
    num_kv_heads: int,
    rotary_pairs: int,
    epsilon: float,
    norm_weight_bias: float,
    kv_cache_dtype: str = "auto",
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
) -> None:
    """RMSNorm of queries and keys, rotation of halves, and keys and values into pages, rounded before FP8."""
    table, positions = angles_of(cos, sin, rotary_pairs, positions)
    qk_rmsnorm_rope_cache_packed(
        qkv, q_out, k_out, v_out, q_weight, k_weight, table, positions, slot_mapping, k_cache, v_cache, k_scale,
        v_scale, epsilon, num_q_heads, num_kv_heads, head_dim, norm_weight_bias, kv_cache_dtype,
    )  # fmt: skip


def rms_norm_static_fp8_quant(
    result: torch.Tensor, input: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor, epsilon: float
) -> None:
    """RMSNorm, rounded to the input's dtype, then FP8 with a given scale: the bits of `rms_norm` followed by FP8."""
    jitnorm.rms_norm_static_fp8_quant(result, input, weight, scale, epsilon, rounding="output")


def fused_add_rms_norm_static_fp8_quant(
    result: torch.Tensor,
    input: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    scale: torch.Tensor,
    epsilon: float,
) -> None:
    """`rms_norm_static_fp8_quant` of the sum with the residual, which becomes the sum."""
    jitnorm.fused_add_rms_norm_static_fp8_quant(result, input, residual, weight, scale, epsilon, rounding="output")


def rms_norm_dynamic_per_token_quant(
    result: torch.Tensor,
    input: torch.Tensor,
    weight: torch.Tensor,
    scale: torch.Tensor,
    epsilon: float,
    scale_ub: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
) -> None:
    """RMSNorm, then FP8 or INT8 with a scale for each row."""
    spec = row_spec(element_of(result.dtype, "result"))
    norm_quantize_pair(input, weight, epsilon, spec, "vllm", result, scale, scale_ub, residual)


def rms_norm_per_block_quant(
    result: torch.Tensor,
    input: torch.Tensor,
    weight: torch.Tensor,
    scale: torch.Tensor,
    epsilon: float,
    scale_ub: torch.Tensor | None,
    residual: torch.Tensor | None,
    group_size: int,
    is_scale_transposed: bool,
) -> None:
    """RMSNorm, then FP8 or INT8 with a scale for each group of a row; `scale` may be row-major or column-major."""
    spec = group_spec(element_of(result.dtype, "result"), group_size)
    if scale.is_contiguous() and scale.dtype is torch.float32:
        norm_quantize_pair(input, weight, epsilon, spec, "vllm", result, scale, scale_ub, residual)
        return
    norm = partial(
        jitnorm.norm_quantize, input, weight, residual=residual, eps=epsilon, scale_ub=scale_ub, rounding="vllm"
    )
    write_groups(norm, spec, result, scale)


def silu_and_mul_quant(result: torch.Tensor, input: torch.Tensor, scale: torch.Tensor) -> None:
    """SwiGLU, then FP8 with a given scale."""
    spec = spec_of_codes(result.dtype, "result", "tensor")
    silu_and_mul_quantize_pair(input, spec, "hf", result, None, scale)


def silu_and_mul_per_block_quant(
    out: torch.Tensor,
    input: torch.Tensor,
    scales: torch.Tensor,
    group_size: int,
    scale_ub: torch.Tensor | None = None,
    is_scale_transposed: bool = False,
) -> None:
    """SwiGLU, then FP8 or INT8 with a scale for each group of a row; `scales` may be row-major or column-major."""
    spec = group_spec(element_of(out.dtype, "out"), group_size)
    if scales.is_contiguous() and scales.dtype is torch.float32:
        silu_and_mul_quantize_pair(input, spec, "once", out, scales, None, scale_ub)
    else:
        write_groups(partial(jitnorm.silu_and_mul_quantize, input, scale_ub=scale_ub), spec, out, scales)


def silu_and_mul_nvfp4_quant(
    result: torch.Tensor, result_block_scale: torch.Tensor, input: torch.Tensor, input_global_scale: torch.Tensor
) -> None:
    """SwiGLU, then NVFP4 with swizzled scales."""
    scales = as_bytes(result_block_scale)
    silu_and_mul_quantize_pair(input, _NVFP4, "output", result, scales, global_scale=input_global_scale)


def static_scaled_fp8_quant(
    result: torch.Tensor, input: torch.Tensor, scale: torch.Tensor, group_shape: Sequence[int] | None = None
) -> None:
    """FP8 with given scales: for the tensor, rows, columns, or groups of `group_shape`, rows and columns.

    A 2-D `scale` implies the groups; -1 in `group_shape` stands for all. Groups have one or more rows, and all columns
    or a multiple of 16; a group of all rows may have a single column.
    """
    block_size = block_size_of(input, scale, group_shape)
    spec = given_spec(element_of(result.dtype, "result"), block_size)
    quantize_pair(input, spec, result, None, scale if block_size == "tensor" else scale.contiguous())


def dynamic_scaled_fp8_quant(result: torch.Tensor, input: torch.Tensor, scale: torch.Tensor) -> None:
    """FP8 with a scale computed for the tensor, in two launches; it becomes the first element of `scale`."""
    spec = spec_of_codes(result.dtype, "result", "tensor")
    first = scale if scale.numel() == 1 else scale.view(-1)[:1]
    quantize_pair(input, spec, result, first, "tensor")


def dynamic_per_token_scaled_fp8_quant(
    result: torch.Tensor, input: torch.Tensor, scale: torch.Tensor, scale_ub: torch.Tensor | None = None
) -> None:
    """FP8 with a scale for each row."""
    spec = row_spec(element_of(result.dtype, "result"))
    quantize_pair(input, spec, result, scale, None, scale_ub)


def static_scaled_int8_quant(
    result: torch.Tensor, input: torch.Tensor, scale: torch.Tensor, azp: torch.Tensor | None = None
) -> None:
    """Symmetric INT8 with a given scale for the tensor."""
    refuse_azp(azp is not None, "azp", "is given")
    quantize_pair(input, _INT8, result, None, scale)


def dynamic_scaled_int8_quant(
    result: torch.Tensor, input: torch.Tensor, scale: torch.Tensor, azp: torch.Tensor | None = None
) -> None:
    """Symmetric INT8 with a scale for each row."""
    refuse_azp(azp is not None, "azp", "is given")
    quantize_pair(input, _INT8_ROWS, result, scale)


def per_token_group_fp8_quant(
    input: torch.Tensor,
    output_q: torch.Tensor,
    output_s: torch.Tensor,
    group_size: int,
    eps: float,
    fp8_min: float,
    fp8_max: float,
    scale_ue8m0: bool,
    dummy_is_scale_transposed: bool = False,
    dummy_is_tma_aligned: bool = False,
) -> None:
    """FP8 with a scale for each group of a row, with an amax of at least `eps`."""
    _check_range(fp8_min, fp8_max)
    spec = spec_of_groups(output_q.dtype, "output_q", group_size, eps, scale_ue8m0)
    quantize_groups_into(input, spec, output_q, output_s)


def per_token_group_fp8_quant_packed(
    input: torch.Tensor,
    output_q: torch.Tensor,
    output_s_packed: torch.Tensor,
    group_size: int,
    eps: float,
    min_8bit: float,
    max_8bit: float,
) -> None:
    """The same with scales for DeepGEMM: powers of two, four per int32, column-major and TMA-aligned.

    Rows of `output_q` past those of the input become zero.
    """
    _check_range(min_8bit, max_8bit)
    rows = input.shape[0]  # `len` would take 1 us
    of_output = output_q.shape[0]
    if rows < of_output <= round_up(rows, 4) and output_q.ndim == 2 and input.ndim == 2:
        output_q[rows:].view(torch.uint8).zero_()
        output_q = output_q[:rows]
    if output_s_packed.dtype is not torch.int32:
        raise ValueError(f"output_s_packed: dtype is {output_s_packed.dtype}; allowed is torch.int32, four scales each")
    spec = spec_of_groups(output_q.dtype, "output_q", group_size, eps, True, "packed")
    quantize_packed_into(input, spec, output_q, output_s_packed)


def _check_range(least: float, largest: float) -> None:
    if least != -448.0 or largest != 448.0:
        raise ValueError(f"fp8_min, fp8_max: are {least!r}, {largest!r}; allowed are -448.0 and 448.0, E4M3's")


def per_token_group_quant_int8(
    input: torch.Tensor,
    output_q: torch.Tensor,
    output_s: torch.Tensor,
    group_size: int,
    eps: float,
    int8_min: float,
    int8_max: float,
) -> None:
    """INT8 with a scale for each group of a row, with an amax of at least `eps`."""
    if (int8_min, int8_max) != (-128.0, 127.0):
        raise ValueError(f"int8_min, int8_max: are {int8_min!r}, {int8_max!r}; allowed are -128.0 and 127.0")
    spec = spec_of_eps("int8", group_size, eps, is_ue8m0=False)
    quantize_groups_into(input, spec, output_q, output_s)


def refuse_azp(asked: bool, name: str, what: str) -> None:
    """Raise ValueError if a zero point is requested."""
    if asked:
        raise ValueError(f"{name}: {what}, but INT8 is symmetric here; pass azp=None, symmetric=True")
