"""Golden cases of heads that are rotated after their norm and inserted into pages."""

from __future__ import annotations

import numpy as np
from golden_data import Array, Make, OpCase, Outputs, heads, weight, x

import jitnorm
from jitnorm import reference

SLOTS = np.array([15, 3, -1, 8, 0, 16, 7, 4, 12, 1])  # of the first tokens; 16 is past the last page


def turned_heads() -> Array:
    """Rotate the first 96 elements of each head; the last token has no position."""
    y = reference.rmsnorm_f32(heads().reshape(-1, 128), weight()[:128])
    angles, positions = weight()[:384].reshape(4, 96), np.repeat(np.arange(12) % 4, 3)
    positions[-3:] = 4
    return reference.rotate_f32(y, angles, positions).reshape(heads().shape)


def turn_heads(make: Make) -> Outputs:
    positions = np.arange(12) % 4
    positions[-1] = 4
    q, k, factor = make(heads()[:, :2]), make(heads()[:, 2:]), make(weight()[:128])
    angles, scale = make(weight()[:384].reshape(4, 96)), make(np.array([0.5], np.float32))
    call = (q, k, factor, factor, angles, make(positions))
    return *jitnorm.qk_rmsnorm_rope(*call), *jitnorm.qk_rmsnorm_rope_quant(*call, scale, scale)


def turn_heads_of_rows(make: Make) -> Outputs:
    q, factor, angles = make(x()[:, None]), make(weight()), make(weight()[:384].reshape(4, 96))
    call = (q, q, factor, factor, angles, make(np.arange(12) % 4))
    return jitnorm.qk_rmsnorm_rope(*call, is_neox=False, head_size=128)[:1]


def insert_heads(make: Make) -> Outputs:
    """Insert heads into pages of four tokens: one of three serves as queries, one as keys and one as values."""
    q, k, v = (make(heads()[:, i : i + 1]) for i in range(3))
    factor, angles = make(weight()[:128]), make(weight()[:384].reshape(4, 96))
    scale, slots = make(np.array([0.5], np.float32)), make(SLOTS)
    call = (q, k, v, factor, factor, angles, make(np.arange(12) % 4), slots)
    plain = [make(np.ones((4, 4, 1, 128), x().dtype)) for _ in range(2)]
    codes = [make(np.ones((4, 4, 1, 128), np.uint8)) for _ in range(2)]
    jitnorm.qk_rmsnorm_rope_cache(*call, *plain)
    q_out, *_ = jitnorm.qk_rmsnorm_rope_cache_quant(*call, *codes, scale, scale)
    return q_out, *plain, *codes


def inserted_heads() -> Outputs:
    y = reference.rmsnorm_f32(heads().reshape(-1, 128), weight()[:128])
    turned = reference.rotate_f32(y, weight()[:384].reshape(4, 96), np.repeat(np.arange(12) % 4, 3))
    q, k, _ = np.split(turned.reshape(heads().shape), 3, axis=1)
    v = heads()[:, 2:]
    plain = [
        reference.insert_heads(np.ones((4, 4, 1, 128), x().dtype), reference.round_to(each, x().dtype), SLOTS)
        for each in (k, v)
    ]
    codes = [reference.quantize_fp8_static(each[:, 0].astype(np.float32), 0.5)[:, None] for each in (k, v)]
    encoded = [reference.insert_heads(np.ones((4, 4, 1, 128), np.uint8), each, SLOTS) for each in codes]
    return reference.round_to(q, x().dtype), *plain, *encoded


def turned_heads_of_rows() -> Outputs:
    y = reference.rmsnorm_f32(x(), weight()).reshape(-1, 128)
    turned = reference.rotate_f32(y, weight()[:384].reshape(4, 96), np.repeat(np.arange(12) % 4, 3), is_neox=False)
    return (reference.round_to(turned, x().dtype).reshape(x().shape),)


def turn_heads_alone(make: Make) -> Outputs:
    """Rotate the first 96 elements of each head, without a norm; then insert them into pages, in FP8."""
    positions, slots = np.arange(12) % 4, make(SLOTS)
    positions[-1] = 4
    q, k, v = (make(heads()[:, i : i + 1]) for i in range(3))
    angles, at, scale = make(weight()[:384].reshape(4, 96)), make(positions), make(np.array([0.5], np.float32))
    codes = [make(np.ones((4, 4, 1, 128), np.uint8)) for _ in range(2)]
    jitnorm.rope_cache_quant(q, k, v, angles, at, slots, *codes, scale, scale)
    return *jitnorm.rope(q, k, angles, at), *jitnorm.rope_quant(q, k, angles, at, scale, scale), *codes


def heads_turned_alone() -> Outputs:
    positions = np.repeat(np.arange(12) % 4, 3)
    positions[-3:] = 4
    rows = heads().reshape(-1, 128).astype(np.float32)
    turned = reference.rotate_f32(rows, weight()[:384].reshape(4, 96), positions).reshape(heads().shape)
    q, k, _ = np.split(turned, 3, axis=1)
    codes = [reference.quantize_fp8_static(each[:, 0], 0.5)[:, None] for each in (q, k, heads()[:, 2:].astype("f4"))]
    pages = [reference.insert_heads(np.ones((4, 4, 1, 128), np.uint8), each, SLOTS) for each in codes[1:]]
    return *(reference.round_to(each, x().dtype) for each in (q, k)), *codes[:2], *pages


def encoded_heads() -> Outputs:
    y = turned_heads()
    codes = reference.quantize_fp8_static(y.reshape(-1, 128), 0.5).reshape(y.shape)
    rounded = reference.round_to(y, x().dtype)
    return rounded[:, :2], rounded[:, 2:], codes[:, :2], codes[:, 2:]


HEADS = [
    OpCase("qk_rmsnorm_rope", turn_heads, encoded_heads),
    OpCase("qk_rmsnorm_rope_cache", insert_heads, inserted_heads),
    OpCase("rope", turn_heads_alone, heads_turned_alone),
    OpCase("qk_rmsnorm_rope-head_size", turn_heads_of_rows, turned_heads_of_rows),
]
