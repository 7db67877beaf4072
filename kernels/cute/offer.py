"""Which kernels there are in CuTe-DSL; imports no cutlass."""

from __future__ import annotations

from ..config import KernelConfig
from ..generator import require_pdl
from ..target import Target


def why_not(config: KernelConfig) -> str:
    """Why a configuration has no kernel in CuTe-DSL, as the end of a sentence; empty if it has one."""
    if not config.is_row_wise:
        return f"the op is {config.op}, not a norm or a quantization of rows"
    unoffered = {
        "any hidden size": config.takes_any_size,
        "gate_columns": config.gate_columns,
        "streams": config.streams,
        "pair": config.pair,
        "batched": config.batched,
        "alignment": config.alignment > 1,
        "an FP8 input with a given global scale": config.rescales_input,
        "four_over_six": config.quant is not None and config.quant.four_over_six,
    }
    found = [name for name, is_wanted in unoffered.items() if is_wanted]
    return f"it has {', '.join(found)}" if found else ""


def check(config: KernelConfig, target: Target) -> None:
    """Raise ValueError if there is no kernel in CuTe-DSL for this configuration and target."""
    if target.is_cpu:
        raise ValueError("target: cute builds for CUDA targets, not for cpu")
    reason = why_not(config)
    if reason:
        raise ValueError(f"backend: 'cute' has no kernel for {config}: {reason}; use 'auto', 'nvrtc' or 'nvcc'")
    require_pdl(config, target)
