"""SGLang's modules: `jitnorm.compat.sglang`, layers to compare it with, and what its tests ask of the platform.

Its tests also compare with functions of vLLM and FlashInfer, which are jitnorm's then.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import flashinfer_names
import torch
import vllm_layers
import vllm_names

from jitnorm.compat import sglang, sglang_kernels

FILES = tuple(
    f"sgl-kernel/tests/test_{name}.py"
    for name in (
        "norm",
        "activation",
        "fused_qk_norm_rope",
        "per_token_quant_fp8",
        "per_tensor_quant_fp8",
        "fp4_quantize",
    )
) + tuple(
    f"test/registered/jit/test_{name}.py"
    for name in ("activation", "fused_add_rmsnorm", "per_tensor_quant_fp8", "qknorm", "rmsnorm", "rmsnorm_hf")
)


class RotaryEmbedding(vllm_layers.RotaryEmbedding):
    """SGLang's layer, whose table is in float32."""

    def forward(
        self, positions: torch.Tensor, query: torch.Tensor, key: torch.Tensor, **_: Any
    ) -> tuple[torch.Tensor, ...]:
        """Both turned in float32, and rounded."""
        turned = self.forward_native(positions, query.float(), key.float())
        return tuple(each.to(query.dtype) for each in turned)


def get_rope(
    head_size: int, rotary_dim: int, max_position: int, base: float, is_neox_style: bool,
    partial_rotary_factor: float = 1.0, **_: Any,
) -> RotaryEmbedding:  # fmt: skip
    """The layer."""
    size = int(rotary_dim * partial_rotary_factor)
    return RotaryEmbedding(head_size, size, max_position, base, is_neox_style, torch.float32)


_LAYERS, _KERNELS = "sglang.srt.layers.", "sglang.jit_kernel."
_NAMES: dict[str, dict[str, Any]] = {
    "sgl_kernel": {name: getattr(sglang, name) for name in sglang.__all__},
    "sgl_kernel.utils": {"is_arch_support_pdl": lambda: torch.cuda.get_device_capability()[0] >= 9},
    _KERNELS + "norm": {name: getattr(sglang_kernels, name) for name in sglang_kernels.__all__},
    _KERNELS + "rmsnorm_hf": {"rmsnorm_hf": sglang_kernels.rmsnorm_hf},
    _KERNELS + "activation": {
        "SUPPORTED_ACTIVATIONS": ("silu", "gelu", "gelu_tanh"),
        "relu2": sglang_kernels.relu2,
        "run_activation": sglang_kernels.run_activation,
    },
    _KERNELS + "per_tensor_quant_fp8": {"per_tensor_quant_fp8": sglang.per_tensor_quant_fp8},
    _KERNELS + "utils": {"get_ci_test_range": lambda full_range, ci_range: full_range},
    "sglang.test.ci.ci_register": {f"register_{name}_ci": lambda **_: None for name in ("cuda", "amd")},
    _LAYERS + "layernorm": {"RMSNorm": vllm_layers.RMSNorm},
    _LAYERS + "rotary_embedding": {"get_rope": get_rope},
    "sglang.srt.server_args": {
        "ServerArgs": SimpleNamespace,
        "set_global_server_args_for_scheduler": lambda arguments: None,
    },
    "sglang.srt.utils": {
        "is_cuda": lambda: True,
        "cpu_has_amx_support": lambda: False,
        **{f"is_{name}": lambda: False for name in ("hip", "cpu", "npu", "xpu")},
    },
}


def names(module: str) -> dict[str, Any]:
    """The names of a module."""
    if module.partition(".")[0] == "flashinfer":
        return flashinfer_names.names(module)
    return _NAMES.get(module) or vllm_names.names(module)
