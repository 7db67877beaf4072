"""Other libraries that have some of the ops, on GPUs: how these are called there."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from jitnorm.bench.cases import Call, Maker, Op
from jitnorm.bench.results import JITNORM
from jitnorm.bench.tensors import Tensors


def _flashinfer(name: str) -> Maker:
    def make(new: Tensors, m: int, h: int) -> Call:
        from flashinfer import norm

        x, r, w, scale = new.bfloat16(m, h), new.bfloat16(m, h), new.bfloat16(h), new.one()
        out, out8 = new.empty(m, h), new.fp8(m, h)
        calls: dict[str, Call] = {
            "rmsnorm": lambda: norm.rmsnorm(x, w, out=out),
            "add_rmsnorm": lambda: norm.fused_add_rmsnorm(x, r, w),
            "rmsnorm fp8": lambda: norm.rmsnorm_quant(out8, x, w, scale),
            "add fp8": lambda: norm.fused_add_rmsnorm_quant(out8, x, r, w, scale),
        }
        return calls[name]

    return make


def _quack(name: str) -> Maker:
    def make(new: Tensors, m: int, h: int) -> Call:
        from quack.rmsnorm import rmsnorm_fwd

        x, r, w = new.bfloat16(m, h), new.bfloat16(m, h), new.bfloat16(h)
        return (lambda: rmsnorm_fwd(x, w)) if name == "rmsnorm" else (lambda: rmsnorm_fwd(x, w, residual=r))

    return make


_OPS = {
    "flashinfer": {op: _flashinfer(op) for op in ("rmsnorm", "add_rmsnorm", "rmsnorm fp8", "add fp8")},
    "quack": {op: _quack(op) for op in ("rmsnorm", "add_rmsnorm")},
}
PACKAGES = {"flashinfer": "flashinfer-python", "quack": "quack-kernels"}


def installed() -> list[str]:
    """The modules of those that are here."""
    return [name for name in PACKAGES if find_spec(name) is not None]


def chosen(names: Sequence[str], device: str) -> list[str]:
    """Who is measured: `names`, without any jitnorm and on GPUs the peers that are installed.

    Raises:
        ValueError: a name is not known, not installed, or not for this device.
    """
    if not names:
        return [JITNORM, *(installed() if device == "cuda" else [])]
    for name in names:
        if name not in (JITNORM, *PACKAGES):
            raise ValueError(f"by: is {name!r}; allowed are {', '.join((JITNORM, *PACKAGES))}")
        if name != JITNORM and device != "cuda":
            raise ValueError(f"by: {name} runs on GPUs only, not on {device}; leave it out")
        if name in PACKAGES and name not in installed():
            raise ValueError(f"by: {name} is not installed; pip install {PACKAGES[name]}, or leave it out")
    return list(dict.fromkeys(names))


def makers(op: Op, names: Sequence[str]) -> dict[str, Maker]:
    """The calls of an op, by who offers it."""
    found = {JITNORM: op.make, **{peer: calls[op.name] for peer, calls in _OPS.items() if op.name in calls}}
    return {name: found[name] for name in names if name in found}
