"""Rotary position embedding without a norm."""

from __future__ import annotations

from typing import Any

from jitnorm.catalogue.encodings import ROUNDING
from jitnorm.catalogue.op import Choices, Fields, Op
from jitnorm.kernels.quant_spec import FP8_TENSOR


def _fields(is_neox: bool, rotary_size: int) -> Fields:
    return {"rope": "neox" if is_neox else "interleaved", "rotary_size": rotary_size}


def _options(_: Choices, fields: Fields) -> dict[str, Any]:
    return {"is_neox": fields["rope"] == "neox"}


_CHOICES: dict[str, Any] = {
    **ROUNDING, "row_dims": (1, 2), "rope": "neox", "rotary_size": 0, "angles": "float32", "positions": "int64",
}  # fmt: skip
_TURNED: Fields = {"op": "quantize", "pair": True}
ROPE = Op(
    "rope", "the rotary position embedding of queries and keys, also in place", _TURNED, _fields, choices=_CHOICES,
    options=_options,
)  # fmt: skip
ROPE_QUANT = Op(
    "rope_quant", "the same in FP8, with given scales", {**_TURNED, "quant": FP8_TENSOR}, _fields, choices=_CHOICES,
    options=_options,
)  # fmt: skip


def _cache_fields(is_neox: bool, rotary_size: int, keep_heads: bool) -> Fields:
    return {**_fields(is_neox, rotary_size), "keep_heads": keep_heads}


def _cache_options(choices: Choices, fields: Fields) -> dict[str, Any]:
    return {**_options(choices, fields), "keep_heads": fields["keep_heads"]}


_CACHE = {**_CHOICES, "keep_heads": False, "slots": "int64"}
ROPE_CACHE = Op(
    "rope_cache", "`rope`, which also inserts keys and values into paged caches", {**_TURNED, "paged": True},
    _cache_fields, choices=_CACHE, options=_cache_options,
)  # fmt: skip
ROPE_CACHE_QUANT = Op(
    "rope_cache_quant", "the same with caches in FP8, with given scales", {**ROPE_CACHE.fixed, "quant": FP8_TENSOR},
    _cache_fields, choices=_CACHE, options=_cache_options,
)  # fmt: skip

OPS = (ROPE, ROPE_QUANT, ROPE_CACHE, ROPE_CACHE_QUANT)
