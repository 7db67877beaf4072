"""Plugin of SGLang, which finds it by the entry point ``sglang.srt.plugins`` and calls `register` in every process.

Its hooks replace functions of `sgl_kernel` by jitnorm's, even where SGLang has already imported them. Nothing changes
until the environment asks for it, as docs/sglang.md shows.
"""

from __future__ import annotations

import os
from importlib import import_module

from jitnorm.compat import sglang as functions
from jitnorm.integrations.chosen import chosen

VARIABLE = "JITNORM_SGLANG_FUNCTIONS"
FUNCTIONS = (
    "rmsnorm", "fused_add_rmsnorm", "gemma_rmsnorm", "gemma_fused_add_rmsnorm",
    "silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul",
    "sgl_per_tensor_quant_fp8", "sgl_per_token_quant_fp8",
    "sgl_per_token_group_quant_8bit", "sgl_per_token_group_quant_fp8", "sgl_per_token_group_quant_int8",
)  # fmt: skip


def register() -> None:
    """Hook the functions that ``JITNORM_SGLANG_FUNCTIONS`` names; those that `sgl_kernel` lacks are skipped.

    Raises:
        ValueError: the variable names a function that is not in `FUNCTIONS`.
    """
    names = chosen(VARIABLE, os.environ.get(VARIABLE, ""), FUNCTIONS)
    if not names:
        return
    kernels = import_module("sgl_kernel")
    hooks = import_module("sglang.srt.plugins.hook_registry")
    for name in names:
        if hasattr(kernels, name):
            hooks.HookRegistry.register(f"sgl_kernel.{name}", getattr(functions, name), hooks.HookType.REPLACE)
