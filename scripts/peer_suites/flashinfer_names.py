"""FlashInfer's modules: `jitnorm.compat.flashinfer`, and what its tests ask of the GPU."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import torch

from jitnorm.compat import flashinfer
from jitnorm.compat.flashinfer import four_over_six

FILES = (
    "tests/utils/test_norm.py",
    "tests/utils/test_activation.py",
    "tests/mhc/test_mhc_post.py",
    "tests/mhc/test_mhc_pre_big_fuse.py",
    "tests/norm/test_rmsnorm_fp4_quant_cute_dsl.py",
    "tests/norm/test_add_rmsnorm_fp4_quant_cute_dsl.py",
    "tests/norm/test_fused_rmsnorm_silu.py",
    "tests/norm/test_fused_qk_rmsnorm_rope.py",
    "tests/norm/test_fused_dit_layernorm.py",
    "tests/utils/test_fp4_quantize.py",
    "tests/utils/test_fp4_quantize_padding.py",
    "tests/utils/test_nvfp4_per_token_quantize_large_m.py",
    "tests/utils/test_fp8_quantize.py",
    "tests/utils/test_fp4_kv_quantization.py",
    "tests/attention/test_rope.py",
    "tests/attention/test_page.py",
)


def _yes(*args: Any, **keywords: Any) -> bool:
    return True


def _no(*args: Any, **keywords: Any) -> bool:
    return False


# Capabilities: those of a GPU that has everything in this field.
_UTILS = {
    "get_compute_capability": lambda device=None: (10, 0),
    "device_support_pdl": lambda device=None: torch.cuda.get_device_capability()[0] >= 9,
    "is_sm100a_supported": _yes,
    "is_sm110a_supported": _no,
    "is_sm12x_supported": _no,
    "has_flashinfer_jit_cache": _yes,
}


def _default_check(
    expected: Sequence[torch.Tensor], found: Sequence[torch.Tensor], *, max_mismatch_pct: float, min_cos_sim: None
) -> bool:
    """Whether but few FP8 values are further apart than 0.1 and a tenth."""

    def mismatches(wanted: torch.Tensor, given: torch.Tensor) -> float:
        is_close = torch.isclose(given.float(), wanted.float(), rtol=0.1, atol=0.1)
        return 100 - 100 * is_close.float().mean().item()

    return all(mismatches(*pair) <= max_mismatch_pct for pair in zip(expected, found, strict=True))


def _seq_lens(kv_indptr: torch.Tensor, kv_last_page_len: torch.Tensor, page_size: int) -> torch.Tensor:
    """The tokens of each request, of its pages and of the last one."""
    return (kv_indptr.diff() - 1).clamp(min=0) * page_size + kv_last_page_len


def _batch_indices_positions(
    append_indptr: torch.Tensor, seq_lens: torch.Tensor, nnz: int, *outputs: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The request of each appended token, and its position there: appended tokens are a request's last."""
    counts = append_indptr.diff().tolist()
    requests, positions = outputs or torch.empty((2, nnz), dtype=torch.int32, device=append_indptr.device)
    requests.fill_(-1)
    positions.fill_(0)
    for i, (first, count, length) in enumerate(zip(append_indptr.tolist(), counts, seq_lens.tolist(), strict=False)):
        requests[first : first + count] = i
        positions[first : first + count] = torch.arange(length - count, length)
    return requests, positions


# What tests prepare tokens in pages with.
_PAGES = {"get_seq_lens": _seq_lens, "get_batch_indices_positions": _batch_indices_positions}
_CUTE_DSL = {"is_cute_dsl_available": _yes, "is_cute_dsl_arch_supported": _yes}


def names(module: str) -> dict[str, Any]:
    """The names of a module."""
    public = {name: getattr(flashinfer, name) for name in flashinfer.__all__}
    if module == "flashinfer.utils":
        return _UTILS
    if module.startswith("flashinfer.cutile"):
        return {"is_cuda_tile_available": _yes}
    if module == "flashinfer.trace":
        return {"default_check": _default_check}
    if module == "flashinfer.cute_dsl":
        # Modules and functions share these names; what is imported first is hidden by what follows.
        for name in ("rmsnorm_fp4quant", "add_rmsnorm_fp4quant"):
            import_module(f"{module}.{name}")
    if module.startswith("flashinfer.cute_dsl"):
        return public | _CUTE_DSL
    if module in ("flashinfer.norm", "flashinfer.activation", "flashinfer.quantization"):
        return vars(getattr(flashinfer, module.rpartition(".")[2])) | {"__name__": module}
    if module.startswith(("flashinfer.quantization", "flashinfer.fp4_quantization")):
        variables = {"NVFP4_QUANT_ENV_VARS": four_over_six.NVFP4_QUANT_ENV_VARS}
        return public | variables
    if module == "flashinfer":
        return public | _PAGES
    return public if module == "flashinfer.diffusion_ops" else {}
