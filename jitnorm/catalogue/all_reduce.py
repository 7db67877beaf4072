"""Norms of inputs that are summed over ranks first; not in the table of ops, because a call involves all ranks."""

from __future__ import annotations

from jitnorm.catalogue.encodings import GENERAL_OUTPUTS
from jitnorm.catalogue.op import WITHOUT_WEIGHT, Fields, Op
from jitnorm.kernels.quant_spec import QuantSpec


def _fields(
    method: str, ranks: int, norm: str, quant: QuantSpec | None, residual: bool, unit_bias: bool, bias: bool,
    keep_norm: bool, scale_ub: bool, has_weight: bool, rounds_sum: bool,
) -> Fields:  # fmt: skip
    """Fields of a call. A layer norm has a bias along with every weight, without an option for it."""
    of_rmsnorm = {"unit_bias": unit_bias, "bias": bias} if norm == "rmsnorm" else {}
    if norm == "layernorm" and (unit_bias or bias != has_weight):
        raise ValueError("norm: is 'layernorm', which takes a weight and a bias, or neither, and no unit_bias")
    return {
        "op": norm, "all_reduce": method, "ranks": ranks, "quant": quant, "residual": residual, "keep_norm": keep_norm,
        "scale_ub": scale_ub, "rounds_sum": rounds_sum, **of_rmsnorm, **({} if has_weight else WITHOUT_WEIGHT),
    }  # fmt: skip


ALL_REDUCE_NORM_QUANTIZE = Op(
    "all_reduce_norm_quantize", "", {}, _fields, {**GENERAL_OUTPUTS, "gemma": "weight", "beta": "bias"},
)  # fmt: skip
