"""Norms and rotation of heads that are packed in one tensor of torch, for the names of other libraries.

Views of the heads would take 2 us.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from jitnorm.catalogue.norms import (
    QK_RMSNORM_ROPE,
    QK_RMSNORM_ROPE_CACHE,
    QK_RMSNORM_ROPE_CACHE_QUANT,
    QK_RMSNORM_ROPE_QUANT,
)
from jitnorm.catalogue.rotations import ROPE, ROPE_QUANT
from jitnorm.dispatch import Dispatcher, rounded_dispatcher
from jitnorm.interop import framework_of
from jitnorm.interop.dynamo import replace_in_graphs
from jitnorm.interop.form import Step
from jitnorm.interop.taken import Heads, Joined, Taken
from jitnorm.ops.forms import Form, Kind, Known, Shape, text_of
from jitnorm.ops.heads import check_caches, rotary_size_of, with_scales

_PLAIN, _FP8 = ("auto", "bfloat16", "float16"), ("fp8", "fp8_e4m3")


def qk_rmsnorm_rope_packed(
    qkv: Any, q_weight: Any, k_weight: Any, cos_sin_cache: Any, positions: Any, eps: float, is_neox: bool,
    q_heads: int, k_heads: int, v_heads: int, head_dim: int,
) -> None:  # fmt: skip
    """`jitnorm.qk_rmsnorm_rope` in place: of queries and keys, which values follow, (..., sum of heads * head_dim).

    Positions may have any shape and strides.
    """
    _ROTATED.call(
        qkv, q_weight, k_weight, cos_sin_cache, positions, eps, None, is_neox, q_heads, k_heads, v_heads, head_dim
    )


def _rotated(
    qkv: Shape, table: Shape, is_neox: bool, q_heads: int, k_heads: int, v_heads: int, head_dim: int
) -> tuple[Dispatcher, Form]:
    q, k, _ = _parts(qkv, (q_heads, k_heads, v_heads), head_dim)
    dispatcher = rounded_dispatcher(QK_RMSNORM_ROPE, None, "once", is_neox, rotary_size_of(table), False, None)
    heads = {"q": q, "k": k, "q_out": q, "k_out": k}
    return dispatcher, Form(
        "qkv q_weight k_weight cos_sin_cache positions eps", "None", taken=heads, converted={"positions": _flattened}
    )


def qk_rmsnorm_rope_rows(
    qkv: Any, q_out: Any, k_out: Any, q_weight: Any, k_weight: Any, cos_sin_cache: Any, positions: Any, scale: Any,
    eps: float, is_neox: bool, q_heads: int, k_heads: int, head_dim: int,
) -> tuple[Any, Any]:  # fmt: skip
    """`jitnorm.qk_rmsnorm_rope` of all heads of queries, and of keys, together, in one launch if they are as many.

    Outputs are (..., heads, head_dim), FP8 if a scale is given; None allocates.
    """
    made: tuple[Any, Any] = _ROWS.call(
        qkv, q_out, k_out, q_weight, k_weight, cos_sin_cache, positions, scale, scale, eps, None, is_neox, q_heads,
        k_heads, head_dim,
    )  # fmt: skip
    return made


def _rows(
    table: Shape, has_scale: bool, is_neox: bool, q_heads: int, k_heads: int, head_dim: int
) -> tuple[Dispatcher, Form]:
    op = QK_RMSNORM_ROPE_QUANT if has_scale else QK_RMSNORM_ROPE
    dispatcher = rounded_dispatcher(op, None, "once", is_neox, rotary_size_of(table), False, head_dim)
    q_size, k_size = q_heads * head_dim, k_heads * head_dim
    taken: dict[str, Taken] = {
        "q": Heads("qkv", 0, 1, q_size), "k": Heads("qkv", q_size, 1, k_size), "q_out": Joined("q_out"),
        "k_out": Joined("k_out"),
    }  # fmt: skip
    views = {"q_out": partial(_as_heads, q_heads), "k_out": partial(_as_heads, k_heads)}
    form = Form(_ROWS_ARGUMENTS, "({q_out}, {k_out})", taken=taken, views=views)
    if q_heads == k_heads:
        return dispatcher, form
    # The two launches take no keys, so each writes an output without any.
    no_keys = {"no_keys": Heads("qkv", 0, 0, q_size), "no_other_keys": Heads("qkv", 0, 0, k_size)}
    steps = (
        Step(dispatcher, {"k": "no_keys", "k_weight": "q_weight", "k_out": "no_keys_out"}),
        Step(
            dispatcher,
            {"q": "k", "k": "no_other_keys", "q_weight": "k_weight", "q_out": "k_out", "k_out": "no_other_keys_out"},
        ),
    )
    return dispatcher, replace(form, taken={**taken, **no_keys}, steps=steps)


def rope_packed(
    qkv: Any, q_out: Any, k_out: Any, cos_sin_cache: Any, positions: Any, scale: Any, is_neox: bool, q_heads: int,
    k_heads: int, head_dim: int,
) -> tuple[Any, Any]:  # fmt: skip
    """`jitnorm.rope` of queries and keys, or `jitnorm.rope_quant` if a scale is given; outputs as above."""
    made: tuple[Any, Any] = _TURNED.call(
        qkv, q_out, k_out, cos_sin_cache, positions, scale, scale, None, is_neox, q_heads, k_heads, head_dim
    )
    return made


def _turned(
    table: Shape, has_scale: bool, is_neox: bool, q_heads: int, k_heads: int, head_dim: int
) -> tuple[Dispatcher, Form]:
    dispatcher = rounded_dispatcher(ROPE_QUANT if has_scale else ROPE, None, "once", is_neox, rotary_size_of(table))
    heads = {"q": Heads("qkv", 0, q_heads, head_dim), "k": Heads("qkv", q_heads * head_dim, k_heads, head_dim)}
    return dispatcher, Form(_TURNED_ARGUMENTS, "({q_out}, {k_out})", taken=heads)


def qk_rmsnorm_rope_cache_packed(
    qkv: Any, q_out: Any, k_out: Any, v_out: Any, q_weight: Any, k_weight: Any, cos_sin_cache: Any, positions: Any,
    slot_mapping: Any, key_cache: Any, value_cache: Any, k_scale: Any, v_scale: Any, eps: float, q_heads: int,
    kv_heads: int, head_dim: int, norm_weight_bias: float, kv_cache_dtype: str,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """`jitnorm.qk_rmsnorm_rope_cache` that keeps heads, rounded before FP8: those of a matrix, in vLLM's terms.

    Outputs are (tokens, heads * head_dim). Scales are ignored unless caches are FP8.
    """
    if kv_cache_dtype not in _FP8:
        k_scale = v_scale = None
    made: tuple[Any, Any, Any] = _CACHED.call(
        qkv, q_out, k_out, v_out, q_weight, k_weight, cos_sin_cache, positions, slot_mapping, key_cache, value_cache,
        k_scale, v_scale, eps, None, q_heads, kv_heads, head_dim, norm_weight_bias, kv_cache_dtype,
    )  # fmt: skip
    return made


def _cached(
    qkv: Shape, q_out: Kind, k_out: Kind, v_out: Kind, table: Shape, key_cache: Shape, value_cache: Shape,
    k_scale: Kind, v_scale: Kind, q_heads: int, kv_heads: int, head_dim: int, norm_weight_bias: float,
    kv_cache_dtype: str,
) -> tuple[Dispatcher, Form]:  # fmt: skip
    if len(qkv) != 2:
        raise ValueError(f"qkv: shape is {text_of(qkv)}; expected (tokens, columns)")
    counts = q_heads, kv_heads, kv_heads
    parts = dict(zip("qkv", _parts(qkv, counts, head_dim), strict=True))
    for (name, part), out in zip(parts.copy().items(), (q_out, k_out, v_out), strict=True):
        if isinstance(out, tuple):
            _check_columns(f"{name}_out", out, part.count, head_dim)
        parts[f"{name}_out"] = Heads(f"{name}_out", 0, part.count, head_dim)
    if norm_weight_bias not in (0, 1):
        raise ValueError(f"norm_weight_bias: is {norm_weight_bias!r}; allowed are 0 and 1")
    if kv_cache_dtype not in (*_PLAIN, *_FP8):
        raise ValueError(f"kv_cache_dtype: is {kv_cache_dtype!r}; allowed are {', '.join((*_PLAIN, *_FP8))}")
    op, k = QK_RMSNORM_ROPE_CACHE_QUANT if kv_cache_dtype in _FP8 else QK_RMSNORM_ROPE_CACHE, (kv_heads, head_dim)
    check_caches(k, key_cache, value_cache)
    options = True, rotary_size_of(table), norm_weight_bias == 1, True
    form = Form(
        _CACHED_ARGUMENTS, "({q_out}, {k_out}, {v_out})", taken=parts,
        views=dict.fromkeys(("q_out", "k_out", "v_out"), _as_row),
    )  # fmt: skip
    return rounded_dispatcher(op, None, "output", *options), with_scales(form, k, k_scale, v_scale)


def _parts(qkv: Shape, counts: tuple[int, int, int], head_dim: int) -> tuple[Heads, Heads, Heads]:
    """Queries, keys and values."""
    _check_columns("qkv", qkv, sum(counts), head_dim)
    q, k, v = counts
    return (
        Heads("qkv", 0, q, head_dim), Heads("qkv", q * head_dim, k, head_dim),
        Heads("qkv", (q + k) * head_dim, v, head_dim),
    )  # fmt: skip


def _check_columns(name: str, shape: Shape, count: int, head_dim: int) -> None:
    columns = shape[-1] if shape else 1
    if columns != count * head_dim:
        raise ValueError(f"{name}: has {columns} columns; {count} heads of {head_dim} are {count * head_dim}")


def _as_heads(count: int, row: Any, _: Any) -> Any:
    *lead, _one, size = row.shape
    return framework_of(row, "row").reshaped(row, (*lead, count, size // count))


def _flattened(positions: Any, _: Any) -> Any:
    return positions.reshape(-1).contiguous()


def _as_row(heads: Any, _: Any) -> Any:
    tokens, count, size = heads.shape
    return framework_of(heads, "heads").reshaped(heads, (tokens, count * size))


_ROTATED = Known(_rotated, "qkv@1 q_weight k_weight cos_sin_cache@2 positions eps")
_ROWS_ARGUMENTS = "qkv q_out k_out q_weight k_weight cos_sin_cache positions q_scale k_scale eps"
_ROWS = Known(_rows, "qkv q_out k_out q_weight k_weight cos_sin_cache@2 positions q_scale? k_scale eps")
_TURNED_ARGUMENTS = "qkv q_out k_out cos_sin_cache positions q_scale k_scale"
_TURNED = Known(_turned, "qkv q_out k_out cos_sin_cache@2 positions q_scale? k_scale")
_CACHED_ARGUMENTS = (
    "qkv q_out k_out v_out q_weight k_weight cos_sin_cache positions slot_mapping key_cache value_cache k_scale "
    "v_scale eps"
)
_CACHED = Known(
    _cached,
    "qkv@1 q_out?@1 k_out?@1 v_out?@1 q_weight k_weight cos_sin_cache@2 positions slot_mapping key_cache@4 "
    "value_cache@4 k_scale?@1 v_scale?@1 eps",
)
replace_in_graphs((qk_rmsnorm_rope_packed, qk_rmsnorm_rope_rows, rope_packed, qk_rmsnorm_rope_cache_packed))
