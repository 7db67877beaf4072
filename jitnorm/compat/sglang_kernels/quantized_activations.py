"""SGLang's kernels of gated activations followed by quantization."""

from __future__ import annotations

from functools import partial

import torch

import jitnorm
from jitnorm.compat.arguments import as_scale, element_of, spec_of_codes
from jitnorm.compat.groups import spec_of_eps, transposed_scales, write_groups
from jitnorm.compat.sglang_kernels.activations import limit_of
from jitnorm.compat.sglang_kernels.mxfp8 import MXFP8_SWIZZLED, can_use_mxfp8_swizzled
from jitnorm.kernels.activations import with_numbers

_GROUP = 32


def silu_and_mul_contig_post_quant(
    input: torch.Tensor,
    output: torch.Tensor,
    output_scale: torch.Tensor,
    quant_group_size: int,
    scale_ue8m0: bool = False,
    transposed: bool = False,
    swiglu_limit: float | None = None,
    swizzle: bool = False,
) -> None:
    """SwiGLU, then FP8 with a scale for each group of a row.

    Args:
        input: (rows, 2 * hidden_size).
        output: where to write the codes, float8_e4m3fn (rows, hidden_size).
        output_scale: where to write the scales: float32 (rows, groups); or int32 (rows, groups / 4), column-major, with
            the exponents of four groups in each element.
        quant_group_size: 16, 32, 48, 64, 96, 128 or 256.
        scale_ue8m0: whether scales are powers of two.
        transposed: whether they are stored as exponents.
        swiglu_limit: of gates, and of values in magnitude; None for none.
        swizzle: whether 8 gates alternate with 8 values; otherwise all gates come first.

    Raises:
        ValueError: an argument that is not allowed.
    """
    if transposed != (output_scale.dtype == torch.int32):
        raise ValueError(
            f"transposed: is {transposed}, but output_scale is {output_scale.dtype}; pass True with int32, and False "
            "with float32"
        )
    if transposed and not scale_ue8m0:
        raise ValueError("scale_ue8m0: is False, but transposed scales are exponents; pass True")
    encode = partial(
        jitnorm.silu_and_mul_quantize, input, granularity=8 if swizzle else None,
        activation="silu" if swiglu_limit is None else _clamped("swiglu_limit", swiglu_limit),
    )  # fmt: skip
    spec = spec_of_eps(element_of(output.dtype, "output"), quant_group_size, 1e-10, scale_ue8m0, least_power=0.0)
    write_groups(encode, spec, output, output_scale)


def swiglu_oai_mxfp8_quant(
    gate_up: torch.Tensor, alpha: float, beta: float, limit: float | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """`swiglu_oai_split`, unrounded, in MXFP8: codes (..., hidden_size), and scales, uint8 (..., hidden_size / 32)."""
    q = jitnorm.silu_and_mul_quantize(gate_up, spec=jitnorm.MXFP8, activation=_clamped("limit", limit, alpha, beta))
    return q.data, q.scale


def can_use_silu_mul_mxfp8(hidden: torch.Tensor) -> bool:
    """Whether `silu_mul_mxfp8` and `swiglu_oai_mxfp8` have such rows."""
    return can_use_mxfp8_swizzled(hidden) and hidden.shape[-1] // 2 % _GROUP == 0


def silu_mul_mxfp8(hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """SwiGLU, rounded at each step, in MXFP8: codes (rows, hidden_size), and swizzled scales, uint8, flat."""
    _check(hidden)
    q = jitnorm.silu_and_mul_quantize(hidden, spec=MXFP8_SWIZZLED, rounding="hf")
    return q.data, q.scale


def swiglu_oai_mxfp8(hidden: torch.Tensor, alpha: float, limit: float) -> tuple[torch.Tensor, torch.Tensor]:
    """`swiglu_oai_split` with a `beta` of 1, rounded, in MXFP8: codes, and swizzled scales, uint8, flat."""
    _check(hidden)
    activation = _clamped("limit", limit, alpha, 1.0)
    q = jitnorm.silu_and_mul_quantize(hidden, spec=MXFP8_SWIZZLED, activation=activation, rounding="output")
    return q.data, q.scale


def swiglu_oai_mxfp8_deepgemm(hidden: torch.Tensor, alpha: float, limit: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The codes of `swiglu_oai_mxfp8`, and scales for DeepGEMM.

    Scales are int32 (rows, hidden_size / 128), column-major and TMA-aligned, with the exponents of four blocks in each
    element.
    """
    _check(hidden, 128)
    spec = spec_of_eps("e4m3", _GROUP, 1e-10, True, "packed", 0.0)
    activation = _clamped("limit", limit, alpha, 1.0)
    q = jitnorm.silu_and_mul_quantize(hidden, spec=spec, activation=activation, rounding="output")
    return q.data, transposed_scales(q)


def silu_mul_static_tensorwise_quant_for_cutlass_moe(
    input: torch.Tensor,
    output: torch.Tensor,
    scale: torch.Tensor,
    num_tokens_tensor: torch.Tensor,
    expected_num_tokens: int,
    intermediate_size: int,
) -> None:
    """SwiGLU of the first rows, then FP8 with a given scale.

    Args:
        input: (rows, 2 * intermediate_size), gates and then values.
        output: where to write the codes, float8_e4m3fn (rows, intermediate_size).
        scale: float32, one element.
        num_tokens_tensor: int32, one element: how many rows; the others are not written.
        expected_num_tokens: ignored; affects only SGLang's grid.
        intermediate_size: half the columns of the input.

    Raises:
        ValueError: an argument that is not allowed.
    """
    if input.shape[-1] != 2 * intermediate_size:
        raise ValueError(
            f"intermediate_size: is {intermediate_size}, but the input has {input.shape[-1]} columns; pass half of them"
        )
    jitnorm.silu_and_mul_quantize(
        input.unsqueeze(0), spec=spec_of_codes(output.dtype, "output", "tensor"), scale=as_scale(scale, input),
        batched=True, mask=num_tokens_tensor.view(1), out=output.unsqueeze(0),
    )  # fmt: skip


def _check(hidden: torch.Tensor, multiple: int = _GROUP) -> None:
    if not can_use_mxfp8_swizzled(hidden) or hidden.shape[-1] % (2 * multiple):
        raise ValueError(
            f"hidden: is {hidden.dtype} {tuple(hidden.shape)}; expected (rows, 2 * n) in 16 or 32 bits, with n "
            f"divisible by {multiple}"
        )


def _clamped(name: str, limit: float | None, alpha: float = 1.0, beta: float = 0.0) -> str:
    return with_numbers("swiglu", limit=limit_of(name, limit), alpha=alpha, beta=beta)
