"""Calls of the functions in `jitnorm.compat`, for `host_table.py`, on 1 x 256 elements or slightly more."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from jitnorm.compat import flashinfer, sglang, vllm

Calls = dict[str, Callable[[], Any]]
_SIZE, _GROUP, _EPS, _FP8 = 256, 128, 1e-6, torch.float8_e4m3fn


class _Tensors:
    """The tensors of all calls, on one device."""

    def __init__(self, device: str) -> None:
        def bf16(*shape: int) -> torch.Tensor:
            return torch.randn(shape, dtype=torch.bfloat16, device=device)

        def new(dtype: torch.dtype, *shape: int) -> torch.Tensor:
            return torch.ones(shape, device=device).to(dtype)

        self.new, self.bf16 = new, bf16
        self.x, self.residual, self.out, self.gates = bf16(1, _SIZE), bf16(1, _SIZE), bf16(1, _SIZE), bf16(1, 2 * _SIZE)
        self.weight, self.w64 = bf16(_SIZE), bf16(64)
        self.fp8, self.int8 = new(_FP8, 1, _SIZE), new(torch.int8, 1, _SIZE)
        self.one, self.row, self.groups = (new(torch.float32, *shape) for shape in ((1,), (1, 1), (1, 2)))
        self.codes, self.scales = new(torch.uint8, 1, _SIZE // 2), new(torch.uint8, 256, 16)
        self.offsets, self.scale_offsets = (
            torch.tensor([0, rows], dtype=torch.int32, device=device) for rows in (1, 4)
        )
        self.qkv, self.positions = bf16(1, 8 * 64), torch.zeros(1, dtype=torch.int64, device=device)
        self.angles, self.caches = bf16(8, 64), [bf16(2, 4, 2, 64) for _ in range(2)]
        self.batch, self.mask = bf16(2, 128, _SIZE), torch.full((2,), 128, dtype=torch.int32, device=device)
        self.gate_batch = bf16(2, 128, 2 * _SIZE)


def compat_calls(device: str) -> Calls:
    """The calls by name of module and function, with given outputs where the function accepts them."""
    t = _Tensors(device)
    return {
        **{f"vllm.{name}": call for name, call in _vllm(t).items()},
        **{f"vllm._C.{name}": call for name, call in _vllm_operators(t).items()},
        **{f"sglang.{name}": call for name, call in _sglang(t).items()},
        **{f"flashinfer.{name}": call for name, call in _flashinfer(t).items()},
    }


def _vllm(t: _Tensors) -> Calls:
    ops, heads = vllm, (t.qkv, 4, 2, 2, 64, _EPS, t.w64, t.w64, t.angles, True, t.positions)
    experts = t.offsets, t.scale_offsets
    cache = t.qkv, t.w64, t.w64, t.angles, t.positions, t.positions, *t.caches, 4, 2, 64, 64, _EPS
    return {
        "rms_norm": partial(ops.rms_norm, t.out, t.x, t.weight, _EPS),
        "fused_add_rms_norm": partial(ops.fused_add_rms_norm, t.x, t.residual, t.weight, _EPS),
        "rms_norm_gated": partial(ops.rms_norm_gated, t.x, t.weight, None, t.residual),
        "fla_rms_norm_gated": partial(ops.fla_rms_norm_gated, t.x, t.residual, t.weight, _EPS, None, True, "swish"),
        "fused_q_kv_rmsnorm": partial(ops.fused_q_kv_rmsnorm, t.x, t.residual, t.weight, t.weight, _EPS),
        "fused_qk_norm_rope": partial(ops.fused_qk_norm_rope, *heads),
        "fused_qknorm_rope_cache": partial(ops.fused_qknorm_rope_cache, *cache),
        "rms_norm_dynamic_per_token_quant": partial(ops.rms_norm_dynamic_per_token_quant, t.x, t.weight, _EPS, _FP8),
        "rms_norm_per_block_quant": partial(ops.rms_norm_per_block_quant, t.x, t.weight, _EPS, _FP8, [1, _GROUP]),
        "rms_norm_per_block_quant, transposed": partial(
            ops.rms_norm_per_block_quant, t.x, t.weight, _EPS, _FP8, [1, _GROUP], None, None, True, 4
        ),
        "silu_and_mul_per_block_quant": partial(ops.silu_and_mul_per_block_quant, t.gates, _GROUP, _FP8),
        "silu_and_mul_per_block_quant, transposed": partial(
            ops.silu_and_mul_per_block_quant, t.gates, _GROUP, _FP8, None, True
        ),
        "scaled_fp8_quant, given": partial(ops.scaled_fp8_quant, t.x, t.one),
        "scaled_fp8_quant, given, output": partial(ops.scaled_fp8_quant, t.x, t.one, output=t.fp8),
        "scaled_fp8_quant, rows": partial(ops.scaled_fp8_quant, t.x, use_per_token_if_dynamic=True),
        "scaled_fp8_quant, tensor": partial(ops.scaled_fp8_quant, t.x),
        "scaled_int8_quant, given": partial(ops.scaled_int8_quant, t.x, t.one),
        "scaled_int8_quant, rows": partial(ops.scaled_int8_quant, t.x),
        "scaled_fp4_quant": partial(ops.scaled_fp4_quant, t.x, t.one),
        "scaled_fp4_experts_quant": partial(ops.scaled_fp4_experts_quant, t.x, t.one, *experts, 1),
        "silu_and_mul_scaled_fp4_experts_quant": partial(
            ops.silu_and_mul_scaled_fp4_experts_quant, t.gates, t.one, *experts, 1
        ),
        "mxfp4_experts_quant": partial(ops.mxfp4_experts_quant, t.x, *experts, 1, 1),
        "silu_and_mul_mxfp4_experts_quant": partial(ops.silu_and_mul_mxfp4_experts_quant, t.gates, *experts, 1, 1),
        "per_token_group_quant_fp8": partial(ops.per_token_group_quant_fp8, t.x, _GROUP, use_ue8m0=False),
        "per_token_group_quant_fp8_packed_for_deepgemm": partial(
            ops.per_token_group_quant_fp8_packed_for_deepgemm, t.x, _GROUP
        ),
        "per_token_group_quant_int8": partial(ops.per_token_group_quant_int8, t.x, _GROUP),
    }


def _vllm_operators(t: _Tensors) -> Calls:
    ops, norm, experts = vllm._C, (t.x, t.weight), (t.offsets, t.scale_offsets)
    packed = t.new(torch.int32, 1, 4).t()[:1]  # a row of a whole column
    fp4 = t.codes, t.scales[:128]
    return {
        "rms_norm": partial(ops.rms_norm, t.out, *norm, _EPS),
        "fused_add_rms_norm": partial(ops.fused_add_rms_norm, t.x, t.residual, t.weight, _EPS),
        "rms_norm_static_fp8_quant": partial(ops.rms_norm_static_fp8_quant, t.fp8, *norm, t.one, _EPS),
        "fused_add_rms_norm_static_fp8_quant": partial(
            ops.fused_add_rms_norm_static_fp8_quant, t.fp8, t.x, t.residual, t.weight, t.one, _EPS
        ),
        "rms_norm_dynamic_per_token_quant": partial(ops.rms_norm_dynamic_per_token_quant, t.fp8, *norm, t.row, _EPS),
        "rms_norm_per_block_quant": partial(
            ops.rms_norm_per_block_quant, t.fp8, *norm, t.groups, _EPS, None, None, _GROUP, False
        ),
        **{
            name: partial(getattr(ops, name), t.out, t.gates)
            for name in ("silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul", "swigluoai_and_mul", "mul_and_silu")
        },
        "silu_and_mul_with_clamp": partial(ops.silu_and_mul_with_clamp, t.out, t.gates, 7.0),
        "fatrelu_and_mul": partial(ops.fatrelu_and_mul, t.out, t.gates, 0.5),
        **{
            name: partial(getattr(ops, name), t.out, t.x)
            for name in ("relu_squared", "gelu_new", "gelu_fast", "gelu_quick")
        },
        "silu_and_mul_quant": partial(ops.silu_and_mul_quant, t.fp8, t.gates, t.one),
        "silu_and_mul_per_block_quant": partial(ops.silu_and_mul_per_block_quant, t.fp8, t.gates, t.groups, _GROUP),
        "silu_and_mul_nvfp4_quant": partial(ops.silu_and_mul_nvfp4_quant, *fp4, t.gates, t.one),
        "static_scaled_fp8_quant": partial(ops.static_scaled_fp8_quant, t.fp8, t.x, t.one),
        "dynamic_scaled_fp8_quant": partial(ops.dynamic_scaled_fp8_quant, t.fp8, t.x, t.one),
        "dynamic_per_token_scaled_fp8_quant": partial(ops.dynamic_per_token_scaled_fp8_quant, t.fp8, t.x, t.row),
        "static_scaled_int8_quant": partial(ops.static_scaled_int8_quant, t.int8, t.x, t.one),
        "dynamic_scaled_int8_quant": partial(ops.dynamic_scaled_int8_quant, t.int8, t.x, t.row),
        "scaled_fp4_quant.out": partial(ops.scaled_fp4_quant.out, t.x, t.one, True, output=fp4[0], output_scale=fp4[1]),
        "scaled_fp4_experts_quant": partial(ops.scaled_fp4_experts_quant, t.codes, t.scales, t.x, t.one, *experts),
        "mxfp4_experts_quant": partial(
            ops.mxfp4_experts_quant, t.codes, t.scales[:, :8].contiguous(), t.x, *experts, 1
        ),
        "per_token_group_fp8_quant": partial(
            ops.per_token_group_fp8_quant, t.x, t.fp8, t.groups, _GROUP, 1e-10, -448.0, 448.0, False
        ),
        "per_token_group_fp8_quant_packed": partial(
            ops.per_token_group_fp8_quant_packed, t.x, t.fp8, packed, _GROUP, 1e-10, -448.0, 448.0
        ),
        "per_token_group_quant_int8": partial(
            ops.per_token_group_quant_int8, t.x, t.int8, t.groups, _GROUP, 1e-10, -128.0, 127.0
        ),
    }


def _sglang(t: _Tensors) -> Calls:
    ops = sglang
    eight = t.x, t.fp8, t.groups, _GROUP, 1e-10, -448.0, 448.0
    batch_fp8 = t.new(_FP8, 2, 128, _SIZE)
    return {
        **{name: partial(getattr(ops, name), t.x, t.weight, out=t.out) for name in ("rmsnorm", "gemma_rmsnorm")},
        **{
            name: partial(getattr(ops, name), t.x, t.residual, t.weight)
            for name in ("fused_add_rmsnorm", "gemma_fused_add_rmsnorm")
        },
        "rms_norm_gated": partial(
            ops.rms_norm_gated, x=t.x, weight=t.weight, bias=None, z=t.residual, is_rms_norm=True
        ),
        **{
            name: partial(getattr(ops, name), t.gates, t.out)
            for name in ("silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul")
        },
        "fused_qk_norm_rope": partial(
            ops.fused_qk_norm_rope, t.qkv, 4, 2, 2, 64, _EPS, t.w64, t.w64, 1e4, True, t.positions, 1.0, 1.0, 1.0, 1.0
        ),
        "sgl_per_token_quant_fp8": partial(ops.sgl_per_token_quant_fp8, t.x, t.fp8, t.row),
        "sgl_per_tensor_quant_fp8, static": partial(ops.sgl_per_tensor_quant_fp8, t.x, t.fp8, t.one, True),
        "sgl_per_tensor_quant_fp8": partial(ops.sgl_per_tensor_quant_fp8, t.x, t.fp8, t.one),
        "sgl_per_token_group_quant_8bit": partial(ops.sgl_per_token_group_quant_8bit, *eight),
        "sglang_per_token_quant_fp8": partial(ops.sglang_per_token_quant_fp8, t.x),
        "sglang_per_token_group_quant_fp8": partial(ops.sglang_per_token_group_quant_fp8, t.x, _GROUP),
        "per_token_quant_int8": partial(ops.per_token_quant_int8, t.x),
        "per_token_group_quant_int8": partial(ops.per_token_group_quant_int8, t.x, _GROUP),
        "scaled_fp4_quant": partial(ops.scaled_fp4_quant, t.x, t.one),
        "silu_and_mul_masked_post_quant_fwd": partial(
            ops.silu_and_mul_masked_post_quant_fwd, t.gate_batch, batch_fp8, t.new(torch.float32, 2, 128, 2), _GROUP,
            t.mask,
        ),
        "silu_and_mul_masked_post_per_tensor_quant_fwd": partial(
            ops.silu_and_mul_masked_post_per_tensor_quant_fwd, t.gate_batch, batch_fp8, t.mask, t.one
        ),
    }  # fmt: skip


def _flashinfer(t: _Tensors) -> Calls:
    ops = flashinfer
    streams, f32 = t.bf16(1, 4, _SIZE), partial(t.new, torch.float32)
    mixes = f32(1, 24), f32(1), streams, f32(3), f32(24)
    row, swizzled = t.bf16(1, 1, _SIZE), t.new(torch.uint8, 128, 16)
    fp4, linear = t.new(torch.uint8, 1, _SIZE // 2), t.new(torch.uint8, 1, _SIZE // 16)
    return {
        **{name: partial(getattr(ops, name), t.x, t.weight, out=t.out) for name in ("rmsnorm", "gemma_rmsnorm")},
        **{
            name: partial(getattr(ops, name), t.x, t.residual, t.weight)
            for name in ("fused_add_rmsnorm", "gemma_fused_add_rmsnorm")
        },
        "rmsnorm_quant": partial(ops.rmsnorm_quant, t.fp8, t.x, t.weight, t.one),
        "fused_add_rmsnorm_quant": partial(ops.fused_add_rmsnorm_quant, t.fp8, t.x, t.residual, t.weight, t.one),
        "fused_add_rmsnorm_fp8_block_quant": partial(
            ops.fused_add_rmsnorm_fp8_block_quant, t.fp8, f32(2, 4), None, t.x, t.residual, t.weight
        ),
        "fused_rmsnorm_silu": partial(ops.fused_rmsnorm_silu, t.x, t.weight, out=t.out),
        "layernorm": partial(ops.layernorm, t.x, f32(_SIZE), f32(_SIZE)),
        "layernorm_quant": partial(ops.layernorm_quant, t.fp8, t.x, f32(_SIZE), f32(_SIZE), t.one),
        "rmsnorm_fp4quant": partial(ops.rmsnorm_fp4quant, t.x, t.weight, global_scale=t.one),
        "add_rmsnorm_fp4quant": partial(ops.add_rmsnorm_fp4quant, t.x, t.residual, t.weight, global_scale=t.one),
        **{
            name: partial(getattr(ops, name), t.gates, t.out)
            for name in ("silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul")
        },
        "fp4_quantize": partial(ops.fp4_quantize, t.x, t.one),
        "nvfp4_quantize": partial(ops.nvfp4_quantize, t.x, t.one),
        "mxfp4_quantize": partial(ops.mxfp4_quantize, t.x),
        "mxfp8_quantize": partial(ops.mxfp8_quantize, t.x),
        "nvfp4_batched_quantize": partial(ops.nvfp4_batched_quantize, t.batch, t.one),
        "scaled_fp4_grouped_quantize": partial(ops.scaled_fp4_grouped_quantize, t.batch, t.mask, t.one),
        "mxfp8_grouped_quantize": partial(ops.mxfp8_grouped_quantize, t.batch, t.mask),
        "silu_and_mul_nvfp4_quantize": partial(ops.silu_and_mul_nvfp4_quantize, t.gates, t.one),
        "silu_and_mul_scaled_nvfp4_experts_quantize": partial(
            ops.silu_and_mul_scaled_nvfp4_experts_quantize, t.gate_batch, t.mask, t.one
        ),
        "per_token_group_quant_8bit": partial(ops.per_token_group_quant_8bit, t.x, _GROUP),
        "e2m1_and_ufp8sf_scale_to_float": partial(
            ops.e2m1_and_ufp8sf_scale_to_float, fp4, swizzled.view(-1), t.one
        ),
        "mxfp4_dequantize": partial(ops.mxfp4_dequantize, fp4, t.new(torch.uint8, 128, 8).view(-1)),
        "nvfp4_kv_quantize": partial(ops.nvfp4_kv_quantize, t.x, t.one),
        "nvfp4_kv_dequantize": partial(ops.nvfp4_kv_dequantize, fp4, linear, t.one),
        "mhc_pre_big_fuse": partial(ops.mhc_pre_big_fuse, *mixes, 4 * _SIZE),
        "mhc_pre_big_fuse_with_prenorm": partial(ops.mhc_pre_big_fuse_with_prenorm, mixes[0], *mixes[2:]),
        "mhc_post": partial(ops.mhc_post, t.x, streams, f32(1, 4), f32(1, 4, 4)),
        "fused_dit_gate_residual_layernorm_gamma_beta": partial(
            ops.fused_dit_gate_residual_layernorm_gamma_beta, row, row, row, f32(_SIZE), f32(_SIZE)
        ),
        "fused_dit_gate_residual_layernorm_scale_shift": partial(
            ops.fused_dit_gate_residual_layernorm_scale_shift, row, row, row, row, row
        ),
        "fused_dit_residual_layernorm_scale_shift": partial(
            ops.fused_dit_residual_layernorm_scale_shift, row, row, row
        ),
        "fused_qk_rmsnorm_rope": partial(
            ops.fused_qk_rmsnorm_rope, t.qkv[None], t.weight, t.bf16(128), ppf=1, pph=1, ppw=1, num_frame_channels=24,
            num_height_channels=20, num_width_channels=20, num_heads_q=4, num_heads_k=2, num_heads_v=2, head_dim=64,
        ),
    }  # fmt: skip
