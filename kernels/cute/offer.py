"""The kernels that exist in CuTe-DSL; imports no cutlass."""

from __future__ import annotations

from dataclasses import fields

from ..config import KernelConfig
from ..generator import require_pdl
from ..target import Target

# The fields of KernelConfig that kernels in CuTe-DSL know; others have to be left at their defaults.
_KNOWN = (
    "op", "hidden_size", "input", "weight", "unit_bias", "residual", "quant", "keep_norm", "row_dims", "vector_bytes",
    "pdl", "many_rows", "keep_rstd", "scale_ub", "inverse_global_scale", "schedule",
)  # fmt: skip


def why_not(config: KernelConfig) -> str:
    """Why a configuration has no kernel in CuTe-DSL, as the end of a sentence; empty if it has one."""
    if not config.is_row_wise:
        return f"the op is {config.op}, not a norm or a quantization of rows"
    found = [f.name for f in fields(config) if f.name not in _KNOWN and getattr(config, f.name) != f.default]
    if config.normalizes and not config.has_weight:
        found.append("no weight")
    if config.rescales_input:
        found.append("an FP8 input with a given global scale")
    if config.quant is not None and config.quant.four_over_six:
        found.append("four_over_six")
    if config.quant is not None and config.quant.scale_rounding == "even":
        found.append("scale_rounding even")
    if config.quant is not None and config.quant.is_packed:
        found.append("packed scales")
    if config.quant is not None and config.quant.e4m3_max != 448:
        found.append("e4m3_max")
    if config.quant is not None and config.quant.element == "int8":
        found.append("codes in INT8")
    if config.quant is not None and config.quant.crosses_warps:
        found.append(f"groups of {config.quant.block_size}")
    if config.quant is not None and config.quant.has_given_scales:
        found.append("scales that are given")
    return f"it has {', '.join(found)}" if found else ""


def check(config: KernelConfig, target: Target) -> None:
    """Raise ValueError if there is no kernel in CuTe-DSL for this configuration and target."""
    if target.is_cpu:
        raise ValueError("target: cute builds for CUDA targets, not for cpu")
    reason = why_not(config)
    if reason:
        raise ValueError(f"backend: 'cute' has no kernel for {config}: {reason}; use 'auto', 'nvrtc' or 'nvcc'")
    require_pdl(config, target)
