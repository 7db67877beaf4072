"""The catalogue of ops: one record per op, which everything else reads."""

from __future__ import annotations

from jitnorm.catalogue import (
    activations,
    branches,
    decoders,
    encoding_norms,
    experts,
    gradients,
    mhc,
    moves,
    norms,
    quantizers,
    rotations,
)
from jitnorm.catalogue.op import Op
from jitnorm.kernels.spelling import did_you_mean

# In the order of docs/ops.md.
_MODULES = (
    norms, rotations, gradients, encoding_norms, branches, mhc, activations, quantizers, experts, decoders, moves,
)  # fmt: skip
OPS: dict[str, Op] = {op.name: op for module in _MODULES for op in module.OPS}


def op_of(name: str) -> Op:
    """Look up an op by name; ValueError if there is none."""
    if name not in OPS:
        raise ValueError(f"op: is {name!r}; allowed are {', '.join(OPS)}{did_you_mean(name, OPS)}")
    return OPS[name]
