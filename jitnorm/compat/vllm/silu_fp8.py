"""vLLM's SwiGLU in FP8 with group scales as DeepGEMM reads them, also for the aligned rows of experts."""

from __future__ import annotations

import torch

import jitnorm
from jitnorm.compat.arguments import spec_of
from jitnorm.compat.groups import transposed_scales
from jitnorm.compat.vllm.deep_gemm import takes_powers_of_two
from jitnorm.kernels.activations import with_numbers
from jitnorm.kernels.quant_spec import QuantSpec

_LEAST_POWER = 1e-10  # a scale before it becomes a power of two
_LEAST_FLOOR = 2.0**-126  # the smallest value that a spec allows

Made = tuple[torch.Tensor, torch.Tensor]
"""Codes, and scales."""


def silu_mul_quant_fp8_packed_triton(
    input: torch.Tensor, group_size: int = 128, output_q: torch.Tensor | None = None, clamp_limit: float | None = None,
    alpha: float = 1.0, beta: float = 0.0, *, expert_ends: torch.Tensor | None = None, expert_alignment: int = 0,
) -> Made:  # fmt: skip
    """SwiGLU, rounded, then FP8 with scales that are powers of two, four groups per int32, column-major.

    Args:
        input: (M, 2 * hidden_size), gates and then values.
        group_size: 16, 32, 48, 64, 96, 128 or 256.
        output_q: where to write the codes, float8_e4m3fn (M, hidden_size); None allocates.
        clamp_limit: limits gates from above, and values from both sides; None for no limit.
        alpha: factor of gates in the sigmoid.
        beta: what is added to values; other than 0 only with a limit.
        expert_ends: int32, where the rows of each expert end; its first row is the end before it rounded up to
            `expert_alignment`. Other rows of `output_q` are not written: torch copies the rows of experts into it.
        expert_alignment: positive with `expert_ends`, else 0.

    Returns:
        the codes, and the scales, int32 (M, ceil(groups / 4)), whose columns are rounded up to 4 rows.
    """
    spec = spec_of("e4m3", group_size, "f32_ue8m0", "packed", _LEAST_POWER)
    activation = _activation(clamp_limit, alpha, beta)
    return _quantized(input, spec, activation, "output", output_q, expert_ends, expert_alignment)


def silu_mul_per_token_group_quant_fp8_colmajor(
    input: torch.Tensor, output: torch.Tensor | None = None, use_ue8m0: bool | None = None, eps: float = 1e-10,
    clamp_limit: float | None = None, group_size: int = 128, alpha: float = 1.0, beta: float = 0.0, *,
    expert_ends: torch.Tensor | None = None, expert_alignment: int = 0,
) -> Made:  # fmt: skip
    """SwiGLU, rounded at each step, then FP8 with float32 scales, column-major, of an amax of at least `eps`.

    Args:
        input: (M, 2 * hidden_size), gates and then values.
        output: where to write the codes, float8_e4m3fn (M, hidden_size); None allocates.
        use_ue8m0: whether scales are powers of two; None: whether vLLM would multiply by DeepGEMM.
        eps: the smallest amax of a group.
        clamp_limit: as in `silu_mul_quant_fp8_packed_triton`, like all that follow.
        group_size: likewise.
        alpha: likewise.
        beta: likewise; its sum with a value is not rounded.
        expert_ends: likewise.
        expert_alignment: likewise.

    Returns:
        the codes, and the scales, float32 (M, groups).
    """
    is_ue8m0 = takes_powers_of_two(input.device) if use_ue8m0 is None else use_ue8m0
    floor = max(eps / 448, _LEAST_FLOOR)
    spec = spec_of("e4m3", group_size, "f32_ue8m0" if is_ue8m0 else "f32", "column", floor)
    activation = _activation(clamp_limit, alpha, beta)
    return _quantized(input, spec, activation, "hf", output, expert_ends, expert_alignment)


def _activation(clamp_limit: float | None, alpha: float, beta: float) -> str:
    if clamp_limit is not None:
        return with_numbers("swiglu", limit=clamp_limit, alpha=alpha, beta=beta)
    if beta:
        raise ValueError(f"beta: is {beta}, but clamp_limit is None; pass 0, or a limit")
    return "silu" if alpha == 1 else with_numbers("swish", alpha=alpha)


def _quantized(
    input: torch.Tensor, spec: QuantSpec, activation: str, rounding: str, output: torch.Tensor | None,
    expert_ends: torch.Tensor | None, expert_alignment: int,
) -> Made:  # fmt: skip
    if input.ndim != 2:
        raise ValueError(f"input: has {input.ndim} dimensions; allowed are 2")
    if (expert_ends is None) != (expert_alignment == 0) or expert_alignment < 0:
        given = "None" if expert_ends is None else "given"
        raise ValueError(f"expert_alignment: is {expert_alignment}; it is positive with expert_ends, which is {given}")
    is_all = expert_ends is None or output is None
    q = jitnorm.silu_and_mul_quantize(
        input, spec=spec, activation=activation, rounding=rounding, out=output if is_all else None
    )
    if expert_ends is None or output is None:
        return q.data, transposed_scales(q)
    live = _rows_of_experts(len(input), expert_ends, expert_alignment)[:, None]
    kept = output.view(torch.uint8)
    kept.copy_(torch.where(live, q.data.view(torch.uint8), kept))
    return output, transposed_scales(q)


def _rows_of_experts(rows: int, ends: torch.Tensor, alignment: int) -> torch.Tensor:
    """Whether each row belongs to an expert."""
    at = torch.arange(rows, device=ends.device)
    starts = torch.nn.functional.pad((ends.long() + alignment - 1) // alignment * alignment, (1, 0))
    expert = torch.searchsorted(ends.long(), at, right=True)
    return (expert < len(ends)) & (at >= starts[expert])
