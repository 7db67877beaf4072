"""Peers: other libraries and torch.compile on GPUs, and jitnorm called in other ways."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from jitnorm.bench.calls import Call
from jitnorm.bench.measured import Maker, Measured
from jitnorm.bench.results import JITNORM
from jitnorm.bench.tensors import Tensors
from jitnorm.bench.variants import VARIANTS
from jitnorm.kernels.spelling import did_you_mean


def _flashinfer(name: str) -> Maker:
    def make(new: Tensors, m: int, h: int) -> Call:
        from flashinfer import norm

        x, w, scale = new.bfloat16(m, h), new.bfloat16(h), new.one()
        r = new.bfloat16(m, h) if name.startswith("add") else None
        out = new.fp8(m, h) if "fp8" in name else new.empty(m, h)
        groups = new.float32(h // 128, m + -m % 4) if name.endswith("128") else None
        calls: dict[str, Call] = {
            "rmsnorm": lambda: norm.rmsnorm(x, w, out=out),
            "gemma": lambda: norm.gemma_rmsnorm(x, w, out=out),
            "add_rmsnorm": lambda: norm.fused_add_rmsnorm(x, r, w),
            "add gemma": lambda: norm.gemma_fused_add_rmsnorm(x, r, w),
            "rmsnorm fp8": lambda: norm.rmsnorm_quant(out, x, w, scale),
            "add fp8": lambda: norm.fused_add_rmsnorm_quant(out, x, r, w, scale),
            "add fp8 128": lambda: norm.fused_add_rmsnorm_fp8_block_quant(out, groups, None, x, r, w),
        }
        return calls[name]

    return make


def _quack(name: str) -> Maker:
    def make(new: Tensors, m: int, h: int) -> Call:
        from quack.rmsnorm import rmsnorm_fwd

        x, w = new.bfloat16(m, h), new.bfloat16(h)
        r = None if name == "rmsnorm" else new.bfloat16(m, h)
        return lambda: rmsnorm_fwd(x, w, residual=r)

    return make


def _quack_backward(name: str) -> Maker:
    def make(new: Tensors, m: int, h: int) -> Call:
        from quack.rmsnorm import rmsnorm_bwd

        x, grad, w, rstd = new.bfloat16(m, h), new.bfloat16(m, h), new.bfloat16(h), new.float32(m)
        r = new.bfloat16(m, h) if name.startswith("add") else None
        return lambda: rmsnorm_bwd(x, w, grad, rstd, r)

    return make


def _liger_backward(new: Tensors, m: int, h: int) -> Call:
    from liger_kernel.ops.rms_norm import rms_norm_backward, rms_norm_forward

    x, grad, w = new.bfloat16(m, h), new.bfloat16(m, h), new.bfloat16(h)
    _, _, rstd, block_size, warps, mode = rms_norm_forward(x, w, 1e-6, 0.0, "llama", None)
    return lambda: rms_norm_backward(grad, x, w, rstd, 0.0, mode, block_size, warps, False, None)


def _torch_compile(name: str) -> Maker:
    def make(new: Tensors, m: int, h: int) -> Call:
        from jitnorm.bench.torch_programs import compiled_call

        return compiled_call(name, new, m, h)

    return make


_FLASHINFER = ("rmsnorm", "gemma", "add_rmsnorm", "add gemma", "rmsnorm fp8", "add fp8", "add fp8 128")
TORCH_COMPILE = "torch.compile"
COMPILED = (
    "rmsnorm", "add_rmsnorm", "fp8 token", "add fp8 token", "rmsnorm fp8 128", "add fp8 128", "rmsnorm nvfp4",
    "rmsnorm mxfp4", "rmsnorm mxfp8", "add nvfp4", "add mxfp4", "add mxfp8", "nvfp4 alone", "mxfp4 alone",
    "mxfp8 alone",
)  # fmt: skip
OPS_OF: dict[str, dict[str, Maker]] = {
    "flashinfer": {op: _flashinfer(op) for op in _FLASHINFER},
    "quack": {
        **{op: _quack(op) for op in ("rmsnorm", "add_rmsnorm")},
        **{op: _quack_backward(op) for op in ("rmsnorm backward", "add backward")},
    },
    "liger": {"rmsnorm backward": _liger_backward},
    TORCH_COMPILE: {op: _torch_compile(op) for op in COMPILED},
    **VARIANTS,
}
# Each peer's package, and the module that shows whether it is installed.
PACKAGES = {"flashinfer": "flashinfer-python", "quack": "quack-kernels", "liger": "liger-kernel"}
_MODULES = {"liger": "liger_kernel"}
NAMES = (JITNORM, *OPS_OF)


def installed() -> list[str]:
    """The libraries that are installed."""
    return [name for name in PACKAGES if find_spec(_MODULES.get(name, name)) is not None]


def chosen(names: Sequence[str], device: str) -> list[str]:
    """Select what to measure: `names`, by default jitnorm and, on GPUs, the installed libraries.

    Raises:
        ValueError: a name is not known, not installed, or not for this device.
    """
    if not names:
        return [JITNORM, *(installed() if device == "cuda" else [])]
    for name in names:
        if name not in NAMES:
            raise ValueError(f"by: is {name!r}; allowed are {', '.join(NAMES)}{did_you_mean(name, NAMES)}")
        if name not in (JITNORM, *VARIANTS) and device != "cuda":
            raise ValueError(f"by: {name} runs on GPUs only, not on {device}; leave it out")
        if name in PACKAGES and name not in installed():
            raise ValueError(f"by: {name} is not installed; pip install {PACKAGES[name]}, or leave it out")
        if name == TORCH_COMPILE and find_spec("triton") is None:
            raise ValueError(f"by: {name} needs triton, which is not installed; pip install triton, or leave it out")
    return list(dict.fromkeys(names))


def makers(op: Measured, names: Sequence[str]) -> dict[str, Maker]:
    """The calls of an op, by implementation."""
    found = {JITNORM: op.make, **{peer: calls[op.name] for peer, calls in OPS_OF.items() if op.name in calls}}
    return {name: found[name] for name in names if name in found}
