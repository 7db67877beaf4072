"""vLLM's modules: `jitnorm.compat.vllm`, layers to compare it with, and what its tests ask of the platform."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
import vllm_layers
from not_here import not_here

from jitnorm.compat import vllm

FILES = tuple(
    f"tests/kernels/{name}"
    for name in (
        "core/test_layernorm.py",
        "core/test_batched_weight_rms_norm.py",
        "core/test_fused_q_kv_rmsnorm.py",
        "core/test_activation.py",
        "core/test_fused_qk_norm_rope.py",
        "core/test_rotary_embedding.py",
        "core/test_pos_encoding.py::test_rotary_embedding",
        "core/test_rotary_embedding_mla_cache_fused.py",
        "test_fused_qknorm_rope_cache.py",
        "test_cache_kernels.py",
        "test_cp_gather_fp8.py",
        "attention/test_cache.py::test_fp8_e4m3_conversion",
        "attention/test_cache.py::test_gather_and_maybe_dequant_cache_mla",
        "attention/test_cache.py::test_gather_and_maybe_dequant_cache_mla_with_seq_starts",
        "attention/test_cache.py::test_gather_and_maybe_dequant_cache_mla_large_uneven_sequences",
        "test_fused_quant_activation.py::test_silu_and_mul",
        "core/test_fused_quant_layernorm.py",
        "core/test_fused_silu_mul_block_quant.py",
        "quantization/test_fp8_quant.py",
        "quantization/test_int8_quant.py",
        "quantization/test_nvfp4_quant.py",
        "quantization/test_silu_mul_nvfp4_quant.py",
        "quantization/test_per_token_group_quant.py",
        "moe/test_mxfp4_moe.py",
        "moe/test_silu_mul_per_token_group_quant_fp8_colmajor.py",
    )
)


class _Platform(SimpleNamespace):
    """A GPU that has everything in this field; what is not named, it is not."""

    def __getattr__(self, name: str) -> Callable[..., bool]:
        if not name.startswith(("is_", "has_")):
            raise AttributeError(name)
        return lambda *args, **keywords: False


class GroupShape(NamedTuple):
    """Rows and columns that share a scale; -1 stands for all."""

    row: int
    col: int


_TOLERANCES = {torch.float32: 1e-4, torch.float16: 1e-3, torch.bfloat16: 1e-2}
_PLATFORM = _Platform(
    is_cuda=lambda: True,
    is_cuda_alike=lambda: True,
    has_device_capability=lambda *args: True,
    is_device_capability_family=lambda *args: True,
    fp8_dtype=lambda: torch.float8_e4m3fn,
    device_type="cuda",
)
_RMS_NORM = SimpleNamespace(get_tolerance=lambda dtype: dict.fromkeys(("atol", "rtol"), _TOLERANCES[dtype]))
_LAYERS = "vllm.model_executor.layers."
_QUANTIZATION = _LAYERS + "quantization.utils"
_NAMES: dict[str, dict[str, Any]] = {
    "vllm": {"ir": SimpleNamespace(ops=SimpleNamespace(rms_norm=_RMS_NORM))},
    "vllm.platforms": {"current_platform": _PLATFORM},
    "vllm.platforms.current_platform": vars(_PLATFORM),
    "vllm.scalar_type": {"scalar_types": SimpleNamespace(float4_e2m1f=SimpleNamespace(max=lambda: 6.0))},
    "vllm.config": {
        "VllmConfig": SimpleNamespace,
        "CompilationConfig": SimpleNamespace,
        "set_current_vllm_config": nullcontext,
    },
    "vllm._aiter_ops": {"rocm_aiter_ops": SimpleNamespace(refresh_env_variables=lambda: None)},
    "vllm.triton_utils": {"triton": SimpleNamespace(next_power_of_2=lambda n: n, cdiv=lambda a, b: -(-a // b))},
    "vllm.utils.deep_gemm": {"is_deep_gemm_e8m0_used": lambda: False},
    "vllm.utils.torch_utils": {"set_random_seed": torch.manual_seed},
    "vllm.utils.math_utils": {"round_up": lambda n, multiple: -(-n // multiple) * multiple},
    _LAYERS + "layernorm": {"RMSNorm": vllm_layers.RMSNorm},
    _LAYERS + "rotary_embedding": {"RotaryEmbedding": vllm_layers.RotaryEmbedding, "get_rope": vllm_layers.get_rope},
    _LAYERS + "activation": {
        name: getattr(vllm_layers, name)
        for name in (
            "SiluAndMul",
            "SiluAndMulWithClamp",
            "MulAndSilu",
            "FatreluAndMul",
            "GeluAndMul",
            "NewGELU",
            "FastGELU",
            "QuickGELU",
            "SwigluOAIAndMul",
            "ReLUSquaredActivation",
        )
    },
    _LAYERS + "fused_moe.activation": {"ApplyMoEActivationConfig": SimpleNamespace},
    f"{_QUANTIZATION}.quant_utils": {
        "get_fp8_min_max": lambda: (-vllm_layers.FP8_MAX, vllm_layers.FP8_MAX),
        "scaled_quantize": vllm_layers.scaled_quantize,
        "GroupShape": GroupShape,
    },
}
# Modules that tests import from others, as names.
_SUBMODULES = {"vllm": ("_custom_ops",), _QUANTIZATION: ("fp8_utils", "int8_utils")}
# Modules that have the functions of `vllm._custom_ops`.
_PUBLIC = (
    "vllm._custom_ops",
    "vllm.models.common.ops.fused_qk_rmsnorm",
    f"{_QUANTIZATION}.fp8_utils",
    f"{_QUANTIZATION}.int8_utils",
)


def names(module: str) -> dict[str, Any]:
    """The names of a module."""
    submodules = {name: import_module(f"{module}.{name}") for name in _SUBMODULES.get(module, ())}
    if module in _PUBLIC:
        others = {
            "reshape_and_cache_flash": vllm_layers.reshape_and_cache_flash,
            "_per_token_group_quant_fp8_colmajor": vllm_layers.GroupQuantKernel(),
        }
        return others | {name: getattr(vllm, name) for name in vllm.__all__}
    return submodules | _NAMES.get(module, {})


def _opcheck(function: Callable[..., Any], args: tuple[Any, ...], keywords: Any = None, **options: Any) -> None:
    """A call, of copies: compat's functions are Python, of which torch has no operator to check."""
    function(*(each.clone() if isinstance(each, torch.Tensor) else each for each in args), **(keywords or {}))


class _Kernels:
    """Names of vLLM's in ``torch.ops``: of a module of compat's."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name, None) or not_here(f"_C.{name}")


def prepare() -> None:
    """Have ``torch.ops._C``, ``torch.ops._C_cache_ops`` and torch's check of operators lead here."""
    torch.ops._C, torch.ops._C_cache_ops = _Kernels(vllm._C), _Kernels(vllm)
    torch.library.opcheck = _opcheck
    utils = ModuleType("tests.utils")
    utils.large_gpu_test = lambda *, min_gb: lambda test: test  # type: ignore[attr-defined]
    of_kernels = ModuleType("tests.kernels.utils")
    of_kernels.DEFAULT_OPCHECK_TEST_UTILS = ()  # type: ignore[attr-defined]
    of_kernels.opcheck = _opcheck  # type: ignore[attr-defined]
    of_kernels.fp8_allclose = vllm_layers.fp8_allclose  # type: ignore[attr-defined]
    of_kernels.fp8_ulp_distance = vllm_layers.fp8_ulp_distance  # type: ignore[attr-defined]
    of_kernels.torch_moe_single = not_here("torch_moe_single")  # type: ignore[attr-defined]
    sys.modules |= {"tests.utils": utils, "tests.kernels.utils": of_kernels}


@pytest.fixture
def default_vllm_config() -> SimpleNamespace:
    """vLLM's settings, of which tests change one."""
    return SimpleNamespace(compilation_config=SimpleNamespace(custom_ops=[]))


@pytest.fixture
def dist_init() -> None:
    """vLLM's processes, of which tests here need none."""
