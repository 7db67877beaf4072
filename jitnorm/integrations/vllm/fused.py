"""jitnorm's versions of the operators of `torch.ops._C` into which vLLM fuses norms, activations and quantization.

The passes find their patterns and write these operators into the graph, as always; torch then calls what was registered
for the device last.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import torch

from jitnorm.compat.vllm import _C
from jitnorm.integrations.chosen import chosen

VARIABLE = "JITNORM_VLLM_OPERATORS"

# Grouped by the pass that puts them into graphs.
_RMS_NORM_QUANT = (
    _C.rms_norm_static_fp8_quant,
    _C.fused_add_rms_norm_static_fp8_quant,
    _C.rms_norm_dynamic_per_token_quant,
    _C.rms_norm_per_block_quant,
)
_ACTIVATION_QUANT = (_C.silu_and_mul_quant, _C.silu_and_mul_per_block_quant, _C.silu_and_mul_nvfp4_quant)
_QK_NORM_ROPE = (_C.fused_qk_norm_rope,)
OPERATORS: dict[str, Callable[..., None]] = {
    function.__name__: function for function in (*_RMS_NORM_QUANT, *_ACTIVATION_QUANT, *_QK_NORM_ROPE)
}

_registered: dict[str, torch.library.Library] = {}


def register() -> None:
    """Register the operators that ``JITNORM_VLLM_OPERATORS`` names, once, except those that vLLM was built without.

    Raises:
        ValueError: the variable names an operator that is not in `OPERATORS`.
    """
    wanted = chosen(VARIABLE, os.environ.get(VARIABLE, ""), OPERATORS)
    if not wanted or torch.version.hip is not None:
        return
    _load_kernels()
    for name in wanted:
        if name not in _registered and hasattr(torch.ops._C, name):
            library = _registered[name] = torch.library.Library("_C", "IMPL")
            for device in ("CPU", "CUDA"):
                library.impl(name, OPERATORS[name], device)


def _load_kernels() -> None:
    """Make vLLM register its kernels first: of two for the same device, torch calls the later one."""
    try:
        from vllm.platforms import current_platform
    except ImportError:
        return
    current_platform.import_kernels()
