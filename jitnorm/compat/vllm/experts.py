"""Operators of `torch.ops._C` on the consecutive rows of experts; outputs are the first arguments."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch

import jitnorm
from jitnorm.compat.arguments import as_bytes, spec_of
from jitnorm.compat.groups import spec_of_eps, write_groups
from jitnorm.kernels.quant_spec import QuantSpec
from jitnorm.ops.pairs import experts_quantize_into

NVFP4 = spec_of("e2m1", 16, "e4m3", "128x4")
MXFP4 = replace(spec_of("e2m1", 32, "ue8m0", "128x4"), scale_rounding="even")


def scaled_fp4_experts_quant(
    output: torch.Tensor,
    output_scale: torch.Tensor,
    input: torch.Tensor,
    input_global_scale: torch.Tensor,
    input_offset_by_experts: torch.Tensor,
    output_scale_offset_by_experts: torch.Tensor,
) -> None:
    """NVFP4 with one global scale per expert."""
    _fill(
        NVFP4, False, output, output_scale, input, input_offset_by_experts, output_scale_offset_by_experts,
        input_global_scale,
    )  # fmt: skip


def silu_and_mul_scaled_fp4_experts_quant(
    output: torch.Tensor,
    output_scale: torch.Tensor,
    input: torch.Tensor,
    input_global_scale: torch.Tensor,
    input_offset_by_experts: torch.Tensor,
    output_scale_offset_by_experts: torch.Tensor,
) -> None:
    """SwiGLU, rounded to the input's dtype, then NVFP4 with one global scale per expert."""
    _fill(
        NVFP4, True, output, output_scale, input, input_offset_by_experts, output_scale_offset_by_experts,
        input_global_scale,
    )  # fmt: skip


def mxfp4_experts_quant(
    output: torch.Tensor,
    output_scale: torch.Tensor,
    input: torch.Tensor,
    input_offset_by_experts: torch.Tensor,
    output_scale_offset_by_experts: torch.Tensor,
    n_experts: int,
) -> None:
    """MXFP4."""
    check_experts(n_experts, input_offset_by_experts)
    _fill(MXFP4, False, output, output_scale, input, input_offset_by_experts, output_scale_offset_by_experts)


def silu_and_mul_mxfp4_experts_quant(
    output: torch.Tensor,
    output_scale: torch.Tensor,
    input: torch.Tensor,
    input_offset_by_experts: torch.Tensor,
    output_scale_offset_by_experts: torch.Tensor,
    n_experts: int,
) -> None:
    """SwiGLU, rounded to the input's dtype, then MXFP4."""
    check_experts(n_experts, input_offset_by_experts)
    _fill(MXFP4, True, output, output_scale, input, input_offset_by_experts, output_scale_offset_by_experts)


def check_experts(n_experts: int, offsets: torch.Tensor) -> None:
    """Raise ValueError if there are not as many offsets as so many experts have."""
    if offsets.numel() != n_experts + 1:
        raise ValueError(f"n_experts: is {n_experts}, but there are {offsets.numel()} offsets; expected one more")


def _fill(
    spec: QuantSpec, is_gated: bool, output: torch.Tensor, output_scale: torch.Tensor, input: torch.Tensor,
    offsets: torch.Tensor, scale_offsets: torch.Tensor, global_scale: torch.Tensor | None = None,
) -> None:  # fmt: skip
    """Quantize into scales with any number of rows; those that belong to no expert are not written."""
    scales = experts_quantize_into(input, offsets, scale_offsets, spec, is_gated, global_scale, output, output_scale)
    if scales is not output_scale:
        given = as_bytes(output_scale)
        given[: scales.shape[0]].copy_(scales[: given.shape[0]])


def persistent_masked_m_silu_mul_quant(
    input: torch.Tensor, counts: torch.Tensor, y_q: torch.Tensor, y_s: torch.Tensor, use_ue8m0: bool
) -> None:
    """SwiGLU of the first ``counts[e]`` rows of each expert, rounded at each step, then FP8 of groups of 128.

    Args:
        input: (experts, rows, 2 * hidden_size), gates and then values.
        counts: int32 (experts,).
        y_q: where to write the codes, float8_e4m3fn (experts, rows, hidden_size).
        y_s: where to write the scales, column-major: float32 (experts, rows, groups), or int32 with the exponents of
            four groups in each element.
        use_ue8m0: whether scales are powers of two.
    """
    spec = spec_of_eps("e4m3", 128, 1e-10, use_ue8m0)
    encode = partial(jitnorm.silu_and_mul_quantize, input, batched=True, mask=counts, rounding="hf")
    if y_s.dtype == torch.int32:
        write_groups(encode, spec, y_q, y_s)
    else:
        encode(spec=spec.with_layout("column"), out=y_q, out_scale=y_s.transpose(-1, -2))


def mxfp4_experts_quant_supported(cuda_device_capability: int) -> bool:
    """Whether `mxfp4_experts_quant` runs on GPUs of that capability: on those from Ampere on."""
    return cuda_device_capability >= 80
