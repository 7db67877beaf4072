"""Other ways to call jitnorm, to be compared with its ops as they are usually measured."""

from __future__ import annotations

from typing import Any

import jitnorm
from jitnorm.bench.calls import Call
from jitnorm.bench.cases import chain
from jitnorm.bench.measured import Maker
from jitnorm.bench.tensors import Tensors
from jitnorm.call_config import config_of_call
from jitnorm.dispatch import cuda_target
from jitnorm.kernels.row_classes import class_of

_TOKEN, _GROUP, _NVFP4 = jitnorm.FP8_TOKEN, jitnorm.FP8_GROUP, jitnorm.NVFP4


def _unfused(spec: jitnorm.QuantSpec) -> Maker:
    def make(new: Tensors, m: int, h: int) -> Call:
        x, w, y = new.bfloat16(m, h), new.bfloat16(h), new.empty(m, h)

        def call() -> jitnorm.QuantizedTensor:
            jitnorm.rmsnorm(x, w, out=y)
            return jitnorm.quantize(y, spec=spec)

        return call

    return make


def _add_unfused(spec: jitnorm.QuantSpec) -> Maker:
    def make(new: Tensors, m: int, h: int) -> Call:
        x, r, w = new.bfloat16(m, h), new.bfloat16(m, h), new.bfloat16(h)

        def call() -> jitnorm.QuantizedTensor:
            jitnorm.fused_add_rmsnorm(x, r, w)
            return jitnorm.quantize(x, spec=spec)

        return call

    return make


def _without_pdl(new: Tensors, m: int, h: int) -> Call:
    x, r, w = new.bfloat16(m, h), new.bfloat16(m, h), new.bfloat16(h)
    codes, scales = jitnorm.add_rmsnorm_fp4quant(x, r, w)
    return lambda: jitnorm.add_rmsnorm_fp4quant(x, r, w, codes, scales, enable_pdl=False)


def _allocating(name: str) -> Maker:
    def make(new: Tensors, m: int, h: int) -> Call:
        x, r, w = new.bfloat16(m, h), new.bfloat16(m, h), new.bfloat16(h)
        calls: dict[str, Call] = {
            "rmsnorm": lambda: jitnorm.rmsnorm(x, w),
            "rmsnorm nvfp4": lambda: jitnorm.rmsnorm_fp4quant(x, w),
            "add nvfp4": lambda: jitnorm.add_rmsnorm_fp4quant(x, r, w),
        }
        return calls[name]

    return make


def _handle(name: str) -> Maker:
    """The kernel itself, as `jitnorm.get_kernel` returns it."""

    def make(new: Tensors, m: int, h: int) -> Call:
        kernel = _kernel(_HANDLES[name], new.device, m, h)
        x, r, w, out = new.bfloat16(m, h), new.bfloat16(m, h), new.bfloat16(h), new.empty(m, h)
        codes, scales = jitnorm.fp4_quantize(x, is_sf_swizzled_layout=False)
        calls: dict[str, Call] = {
            "rmsnorm": lambda: kernel(x, w, out, 1e-6),
            "add_rmsnorm": lambda: kernel(x, r, w, x, r, 1e-6),
            "rmsnorm nvfp4": lambda: kernel(x, w, codes, scales, 1e-6),
            "add nvfp4": lambda: kernel(x, r, w, codes, scales, r, 1e-6),
        }
        return calls[name]

    return make


def _kernel(options: dict[str, Any], device: str, m: int, h: int) -> Any:
    target = cuda_target(0) if device == "cuda" else jitnorm.Target("cpu")
    facts: dict[str, Any] = {"hidden_size": h, "input": "bfloat16", "row_class": class_of(m, h)}
    return jitnorm.get_kernel(config_of_call({"op": "rmsnorm", **options}, target, **facts), target)


_HANDLES: dict[str, dict[str, Any]] = {
    "rmsnorm": {},
    "add_rmsnorm": {"residual": True},
    "rmsnorm nvfp4": {"quant": _NVFP4},
    "add nvfp4": {"residual": True, "quant": _NVFP4},
}

VARIANTS: dict[str, dict[str, Maker]] = {
    "unfused": {
        "fp8 token": _unfused(_TOKEN),
        "rmsnorm fp8 128": _unfused(_GROUP),
        "rmsnorm nvfp4": _unfused(_NVFP4),
        "rmsnorm mxfp4": _unfused(jitnorm.MXFP4),
        "rmsnorm mxfp8": _unfused(jitnorm.MXFP8),
        "add fp8 token": _add_unfused(_TOKEN),
        "add fp8 128": _add_unfused(_GROUP),
        "add nvfp4": _add_unfused(_NVFP4),
        "add mxfp4": _add_unfused(jitnorm.MXFP4),
        "add mxfp8": _add_unfused(jitnorm.MXFP8),
    },
    "no-pdl": {"add nvfp4": _without_pdl, "chain of 20": chain(enable_pdl=False)},
    "allocating": {name: _allocating(name) for name in ("rmsnorm", "rmsnorm nvfp4", "add nvfp4")},
    "handle": {name: _handle(name) for name in _HANDLES},
}
"""Makers by the name of the variant and of the op.

``unfused``: the norm, then the quantization alone; ``no-pdl``: without programmatic dependent launch; ``allocating``:
no outputs given; ``handle``: what `jitnorm.get_kernel` returns.
"""
