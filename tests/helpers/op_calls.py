"""Real calls of every op that a specification can name, with contiguous NumPy arrays."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from inspect import signature
from itertools import product
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from jitnorm.kernels.formats import FORMATS

import jitnorm
from jitnorm.bench.calls import call_of, config_of
from jitnorm.catalogue import OPS
from jitnorm.catalogue.launches import choices_of, chosen_of
from jitnorm.catalogue.op import Op

MATRICES = 2


class Call(NamedTuple):
    """The choices of a specification, and the call that they mean."""

    op: str
    choices: dict[str, Any]

    def prepared(self, rows: int) -> partial[object]:
        """The call with that many rows."""
        return call_of(OPS[self.op], self.choices, new, rows, matrices=MATRICES)

    def make(self, rows: int) -> None:
        """Make the call, on separate tensors and on views of a packed one, with several matrices and with one."""
        self.prepared(rows)()
        if OPS[self.op].fixed.get("weight_per_matrix"):
            call_of(OPS[self.op], self.choices, new, rows, matrices=1)()
        if isinstance(OPS[self.op].choices.get("row_dims"), tuple):
            call, dtype = self.prepared(rows), self.choices.get("input", "bfloat16")
            qkv = new((rows, 12, self.choices["hidden_size"]), dtype)
            q, k = qkv[:, :8], qkv[:, 8:10]
            is_encoded, is_paged = ("quant" in OPS[self.op].fixed, "paged" in OPS[self.op].fixed)
            in_place = {} if is_encoded else {"q_out": q} if is_paged else {"q_out": q, "k_out": k}
            call.func(**{**call.keywords, "q": q, "k": k, **in_place})


def new(shape: tuple[int, ...], dtype: str = "bfloat16", is_output: bool = False) -> Any:
    """An array of ones, or of bytes if NumPy lacks the dtype."""
    if hasattr(ml_dtypes, dtype) and dtype != "float8_e8m0fnu":
        return np.ones(shape, getattr(ml_dtypes, dtype))
    return np.ones(shape, dtype if dtype in ("float16", "float32", "int32", "int64", "int8") else np.uint8)


@cache
def calls() -> tuple[Call, ...]:
    """Calls of every op: each encoding in each layout with each global scale, and each other choice separately."""
    found = [Call(op.name, choices) for op in OPS.values() for choices in _choices(op)]
    return tuple(call for i, call in enumerate(found) if call not in found[:i])


# What kernels of an op have and its function does not.
_NOT_OF_THE_FUNCTION = {
    "rmsnorm": set(OPS["rmsnorm"].choices) - {"weight", "rounding"},
    "layernorm": set(OPS["layernorm"].choices),
    "dequantize": {"tensor_scale"},
    "sum_rows": {"bias", "sums_of"},
    "quantize": {"gate_columns", "streams", "inverse_global_scale", "amax_parts", "axis", "alignment"},
}
_LAYOUTS = ("linear", "128x4", "8x4", "linear+128x4", "linear+8x4", "column", "column4")
_GLOBAL_SCALES = ("none", "given", "row", "tensor")
# Of ops that have such choices, beside each that may be true on its own.
_OTHERS: list[dict[str, Any]] = [
    {"pdl": False}, {"input": "float16", "weight": "float32"}, {"input": "float32"}, {"input": "float8_e4m3fn"},
    {"input": "float8_e4m3fn", "global_scale": "given"}, {"input": "uint8"}, {"quant": "fp8_token", "scale_ub": True},
    {"quant": "mxfp4", "scale_rounding": "floor"}, {"residual": True, "keep_norm": True, "unit_bias": True},
    {"rounding": "hf"}, {"weight": "none"}, {"batched": True, "masked": True},
    {"scale_per_matrix": True, "global_scale": "given"},
    {"batched": True, "global_scale": "given", "scale_per_matrix": True}, {"streams": 1}, {"gate_columns": 64},
    {"inverse_global_scale": True, "global_scale": "given"}, {"alignment": 128, "hidden_size": 96},
    {"shuffle_rows": 16}, {"shuffled": True}, {"shuffled": True, "global_scale": "row"},
    {"axis": 0, "layout": "linear"}, {"rope": "interleaved"}, {"angles": "bfloat16", "positions": "int32"},
    {"angles": "int32"}, {"rotary_size": 32}, {"head_size": 128}, {"slots": "int32"},
]  # fmt: skip


def _choices(op: Op) -> Iterator[dict[str, Any]]:
    allowed = choices_of(op).keys() - _NOT_OF_THE_FUNCTION.get(op.name, set())
    if "enable_pdl" not in signature(getattr(jitnorm, op.function or op.name)).parameters:
        allowed -= {"pdl"}
    block = 1
    base: dict[str, Any] = {"hidden_size": 512}
    if "quant" in allowed:
        block = 128
        base["quant"] = op.choices["quant"] or "nvfp4"
        formats = ["/".join(str(each).split("/")[:3]) for each in op.formats] or list(FORMATS)
        for quant, (layout, global_scale) in product(formats, product(_LAYOUTS, _GLOBAL_SCALES)):
            chosen = {"hidden_size": 1024, "quant": quant}
            chosen |= {"layout": layout} if "layout" in allowed else {}
            chosen |= {"global_scale": global_scale} if "global_scale" in allowed else {}
            is_usual = layout == (op.choices.get("layout") or "linear") or global_scale == "none"
            if is_usual and _is_possible(op, chosen):
                yield chosen
    of_heads = isinstance(op.choices.get("row_dims"), tuple)
    for size in (64, 128) if of_heads else (3 * block, 100 * block) if block > 1 else (1, 7, 100, 70001):
        yield {**base, "hidden_size": size}
    flags: list[dict[str, Any]] = [{name: True} for name in sorted(allowed) if op.choices.get(name) is False]
    for other in [*flags, {"four_over_six": True}, *_OTHERS]:
        chosen = {**base, **other}
        if other.keys() <= allowed and _is_possible(op, chosen):
            yield chosen


def _is_possible(op: Op, chosen: dict[str, Any]) -> bool:
    try:
        config_of(*chosen_of(op, chosen))
    except ValueError:
        return False
    return True
