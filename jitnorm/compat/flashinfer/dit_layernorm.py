"""The layer norms of `flashinfer.diffusion_ops`, for rows of any length, with gates and modulations at any stride."""

from __future__ import annotations

from typing import Any

import torch

import jitnorm
from jitnorm.kernels.quant_spec import MXFP8, NVFP4
from jitnorm.ops.norm_branch import adaptive_layernorm_reshaped, gated_add_layernorm_reshaped
from jitnorm.quantized import QuantizedTensor

__all__ = [
    "fused_dit_gate_residual_layernorm_gamma_beta",
    "fused_dit_gate_residual_layernorm_scale_shift",
    "fused_dit_residual_layernorm_scale_shift",
]
_TILES = "128x4"


def fused_dit_gate_residual_layernorm_gamma_beta(
    input: torch.Tensor,
    residual: torch.Tensor,
    gate: torch.Tensor,
    gamma: torch.Tensor,
    beta: torch.Tensor,
    *,
    gate_bias: torch.Tensor | None = None,
    epsilon: float = 1e-6,
    use_nvfp4: bool = False,
    use_mxfp8: bool = False,
    global_scaling_factor: torch.Tensor | None = None,
    input_global_scaling_factor: torch.Tensor | None = None,
    residual_out: torch.Tensor | None = None,
    norm_out: torch.Tensor | None = None,
    sf_out: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """``residual + input * (gate + gate_bias)``, and its layer normalization, rounded, then perhaps encoded.

    Returns:
        ``(residual_out, norm_out)``; codes are packed in int32, and their swizzled scales are in `sf_out`, if given.
    """
    encoding = _encoding(input, use_nvfp4, use_mxfp8, global_scaling_factor)
    gate_bias = _column(gate_bias)
    if norm_out is not None:
        _check_output(input, norm_out, encoding)
    if encoding is None:
        norm, total = gated_add_layernorm_reshaped(
            input, residual, gate, gamma, beta, epsilon, gate_bias, input_global_scaling_factor, norm_out, residual_out
        )
        return total, norm
    q, total = jitnorm.gated_add_layernorm_quantize(
        input, residual, _like(gate, input.shape), gamma, beta, eps=epsilon, gate_bias=gate_bias,
        input_scale=input_global_scaling_factor, residual_out=residual_out, **encoding,
        **_outputs(input, norm_out, sf_out),
    )  # fmt: skip
    return total, _packed(q, norm_out)


def fused_dit_gate_residual_layernorm_scale_shift(
    input: torch.Tensor,
    residual: torch.Tensor,
    gate: torch.Tensor,
    scale: torch.Tensor,
    shift: torch.Tensor,
    *,
    gate_bias: torch.Tensor | None = None,
    scale_bias: torch.Tensor | None = None,
    shift_bias: torch.Tensor | None = None,
    epsilon: float = 1e-6,
    use_nvfp4: bool = False,
    use_mxfp8: bool = False,
    global_scaling_factor: torch.Tensor | None = None,
    input_global_scaling_factor: torch.Tensor | None = None,
    residual_out: torch.Tensor | None = None,
    norm_out: torch.Tensor | None = None,
    sf_out: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same sum, normalized, times ``1 + scale + scale_bias``, plus ``shift + shift_bias``."""
    return _modulated(
        input, residual, scale, shift, scale_bias, shift_bias, epsilon, use_nvfp4, use_mxfp8, global_scaling_factor,
        input_global_scaling_factor, residual_out, norm_out, sf_out, gate, _column(gate_bias),
    )  # fmt: skip


def fused_dit_residual_layernorm_scale_shift(
    input: torch.Tensor,
    scale: torch.Tensor,
    shift: torch.Tensor,
    *,
    residual: torch.Tensor | None = None,
    scale_bias: torch.Tensor | None = None,
    shift_bias: torch.Tensor | None = None,
    epsilon: float = 1e-6,
    use_nvfp4: bool = False,
    use_mxfp8: bool = False,
    global_scaling_factor: torch.Tensor | None = None,
    input_global_scaling_factor: torch.Tensor | None = None,
    residual_out: torch.Tensor | None = None,
    norm_out: torch.Tensor | None = None,
    sf_out: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same without a gate; without a residual, `residual_out` is a copy of the input."""
    if residual is None and input_global_scaling_factor is not None:
        residual = torch.zeros_like(input)  # the product is stored, too
    return _modulated(
        input, residual, scale, shift, scale_bias, shift_bias, epsilon, use_nvfp4, use_mxfp8, global_scaling_factor,
        input_global_scaling_factor, residual_out, norm_out, sf_out, None, None,
    )  # fmt: skip


def _modulated(
    input: torch.Tensor, residual: torch.Tensor | None, scale: torch.Tensor, shift: torch.Tensor,
    scale_bias: torch.Tensor | None, shift_bias: torch.Tensor | None, epsilon: float, use_nvfp4: bool, use_mxfp8: bool,
    global_scale: torch.Tensor | None, input_scale: torch.Tensor | None, residual_out: torch.Tensor | None,
    norm_out: torch.Tensor | None, sf_out: torch.Tensor | None, gate: torch.Tensor | None,
    gate_bias: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    scale_bias, shift_bias = _both(scale_bias, shift_bias)
    kept = None if residual is None else residual_out
    encoding = _encoding(input, use_nvfp4, use_mxfp8, global_scale)
    if norm_out is not None:
        _check_output(input, norm_out, encoding)
    if encoding is None:
        norm, total = adaptive_layernorm_reshaped(
            input, scale, shift, epsilon, residual, gate, scale_bias, shift_bias, gate_bias, input_scale, norm_out, kept
        )
    else:
        shape = input.shape
        q, total = jitnorm.adaptive_layernorm_quantize(
            input, _like(scale, shape), _like(shift, shape), eps=epsilon, residual=residual,
            gate=None if gate is None else _like(gate, shape), scale_bias=scale_bias, shift_bias=shift_bias,
            gate_bias=gate_bias, input_scale=input_scale, residual_out=kept, **encoding,
            **_outputs(input, norm_out, sf_out),
        )  # fmt: skip
        norm = _packed(q, norm_out)
    if total is None:
        total = input.clone() if residual_out is None else residual_out.copy_(input)
    return total, norm


def _encoding(
    input: torch.Tensor, use_nvfp4: bool, use_mxfp8: bool, global_scale: torch.Tensor | None
) -> dict[str, Any] | None:
    """The options of an encoding, separately for each matrix; None for none."""
    if input.ndim != 3:
        raise ValueError(f"input: shape is {tuple(input.shape)}; expected (batch, rows, hidden_size)")
    if not (use_nvfp4 or use_mxfp8):
        return None
    if use_nvfp4 and use_mxfp8:
        raise ValueError("use_nvfp4, use_mxfp8: are both True, but there is one output; choose one")
    if use_nvfp4 and global_scale is None:
        raise ValueError("global_scaling_factor: is None, but NVFP4 takes one, 448 * 6 / amax; pass it")
    spec = (NVFP4 if use_nvfp4 else MXFP8).with_layout(_TILES)
    given = {"global_scale": global_scale} if use_nvfp4 else {}
    return {"spec": spec, "batched": True, "rounding": "output", **given}


def _outputs(input: torch.Tensor, norm_out: torch.Tensor | None, sf_out: torch.Tensor | None) -> dict[str, Any]:
    """The outputs for codes and their scales; the call allocates those that are None."""
    codes = None if norm_out is None else norm_out.view(torch.uint8)
    return {"out": codes, "out_scale": None if sf_out is None else sf_out.view(len(input), -1)}


def _check_output(input: torch.Tensor, norm_out: torch.Tensor, encoding: dict[str, Any] | None) -> None:
    if encoding is None:
        shape, dtype = tuple(input.shape), input.dtype
    else:
        shape = (*input.shape[:-1], input.shape[-1] // (8 if encoding["spec"].element == "e2m1" else 4))
        dtype = torch.int32
    if tuple(norm_out.shape) != shape or norm_out.dtype != dtype:
        raise ValueError(f"norm_out: is {norm_out.dtype} of {tuple(norm_out.shape)}; expected {dtype} of {shape}")


def _packed(q: QuantizedTensor, norm_out: torch.Tensor | None) -> torch.Tensor:
    """The codes packed in int32, in the output if it is given."""
    return q.data.view(torch.int32) if norm_out is None else norm_out


def _like(tensor: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """Gates or modulations expanded to the shape of the input, at their own strides."""
    return tensor if tensor.shape == shape else tensor.reshape(shape)


def _both(one: torch.Tensor | None, other: torch.Tensor | None) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Two biases; if only one is given, the other is zero."""
    if one is None and other is not None:
        one = torch.zeros_like(other)
    elif other is None and one is not None:
        other = torch.zeros_like(one)
    return _column(one), _column(other)


def _column(bias: torch.Tensor | None) -> torch.Tensor | None:
    return None if bias is None else bias.reshape(-1)
