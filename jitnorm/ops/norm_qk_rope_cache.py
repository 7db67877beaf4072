"""RMSNorm of queries and keys, their rotary position embedding, and the insertion of keys and values, in one launch."""

from __future__ import annotations

from typing import Any

from jitnorm.catalogue.norms import QK_RMSNORM_ROPE_CACHE, QK_RMSNORM_ROPE_CACHE_QUANT
from jitnorm.catalogue.op import Op
from jitnorm.dispatch import Dispatcher, rounded_dispatcher
from jitnorm.ops.forms import Form, Kind, Known, Shape
from jitnorm.ops.heads import check_caches, check_kept, rotary_size_of, with_scales
from jitnorm.ops.run import Tensor

_FORM = Form(
    "q k v q_weight k_weight cos_sin_cache positions slot_mapping key_cache value_cache k_scale v_scale "
    "q_out k_out v_out eps",
    "({q_out}, {k_out}, {v_out})",
)


def qk_rmsnorm_rope_cache(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_weight: Any,
    k_weight: Any,
    cos_sin_cache: Any,
    positions: Any,
    slot_mapping: Any,
    key_cache: Tensor,
    value_cache: Tensor,
    eps: float = 1e-06,
    is_neox: bool = True,
    q_out: Tensor | None = None,
    enable_pdl: bool | None = None,
    *,
    keep_heads: bool = False,
    k_out: Tensor | None = None,
    v_out: Tensor | None = None,
    unit_bias: bool = False,
    rounding: str = "once",
    stream: Any = None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """`qk_rmsnorm_rope`, which also inserts the keys and the values into paged caches, in one launch.

    The three may be views of one packed QKV tensor. In the caches, only the slots of tokens are written.

    Args:
        q: as in `qk_rmsnorm_rope`, like all arguments not described here.
        k: likewise.
        v: like `k`, but neither normalized nor rotated.
        q_weight: as in `qk_rmsnorm_rope`.
        k_weight: likewise.
        cos_sin_cache: likewise.
        positions: likewise.
        slot_mapping: int32 or int64, (tokens,): token ``slot % page size`` of page ``slot // page size``. For a slot
            below 0 or past the last page, nothing is inserted. There may be fewer slots than tokens; the last tokens
            then have none.
        key_cache: (pages, page size, k_heads, head_size), the dtype of `k`; heads at any stride, so that a cache of
            (pages, k_heads, page size, head_size) may be passed transposed.
        value_cache: likewise. It may be a view of the same tensor as `key_cache`.
        eps: added to the mean of squares.
        is_neox: as in `qk_rmsnorm_rope`.
        q_out: where to write queries, like `q`; None allocates. It may be `q` itself.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        keep_heads: whether the inserted keys and values are also written to `k_out` and `v_out`.
        k_out: where to write keys, like `k`; None allocates. It may be `k` itself.
        v_out: likewise for `v`.
        unit_bias: whether 1 is added to the weights.
        rounding: as in `qk_rmsnorm_rope`.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        ``(q_out, k_out, v_out)``, the last two None without `keep_heads`.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework, or a JAX array, which cannot be written.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> q, v = np.ones((2, 1, 2), np.float16), np.array([[[3.0, 4.0]], [[5.0, 6.0]]], np.float16)
        >>> weight, quarter, positions = np.ones(2, np.float16), np.array([[0.0, 1.0]], np.float16), np.zeros(2, int)
        >>> keys, values = np.zeros((2, 2, 1, 2), np.float16), np.zeros((2, 2, 1, 2), np.float16)
        >>> slots = np.array([3, -1])
        >>> call = q, q, v, weight, weight, quarter, positions, slots, keys, values
        >>> qk_rmsnorm_rope_cache(*call, eps=0.0)[0].tolist()
        [[[-1.0, 1.0]], [[-1.0, 1.0]]]
        >>> keys.reshape(4, 2).tolist(), values[1, 1].tolist()
        ([[0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [-1.0, 1.0]], [[3.0, 4.0]])
    """
    made: tuple[Any, Any, Any] = _CALLS.call(
        q, k, v, q_weight, k_weight, cos_sin_cache, positions, slot_mapping, key_cache, value_cache, None, None, q_out,
        k_out, v_out, eps, stream, QK_RMSNORM_ROPE_CACHE, enable_pdl, rounding, is_neox, unit_bias, keep_heads,
    )  # fmt: skip
    return made


def qk_rmsnorm_rope_cache_quant(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_weight: Any,
    k_weight: Any,
    cos_sin_cache: Any,
    positions: Any,
    slot_mapping: Any,
    key_cache: Tensor,
    value_cache: Tensor,
    k_scale: Any,
    v_scale: Any,
    eps: float = 1e-06,
    is_neox: bool = True,
    q_out: Tensor | None = None,
    enable_pdl: bool | None = None,
    *,
    keep_heads: bool = False,
    k_out: Tensor | None = None,
    v_out: Tensor | None = None,
    unit_bias: bool = False,
    rounding: str = "once",
    stream: Any = None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """`qk_rmsnorm_rope_cache` with caches in FP8: ``fp8(x * (1 / scale))`` of each element x, to nearest, saturating.

    Queries, and the heads that `keep_heads` keeps, are in the dtype of the inputs.

    Args:
        q: as in `qk_rmsnorm_rope_cache`, like all arguments not described here.
        k: likewise.
        v: likewise.
        q_weight: likewise.
        k_weight: likewise.
        cos_sin_cache: likewise.
        positions: likewise.
        slot_mapping: likewise.
        key_cache: (pages, page size, k_heads, head_size), float8_e4m3fn (or uint8); heads at any stride.
        value_cache: likewise.
        k_scale: the divisor of keys, a float32 tensor of one element, or of one per head, (k_heads,).
        v_scale: the divisor of values, likewise.
        eps: added to the mean of squares.
        is_neox: as in `qk_rmsnorm_rope`.
        q_out: as in `qk_rmsnorm_rope_cache`.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        keep_heads: as in `qk_rmsnorm_rope_cache`.
        k_out: likewise.
        v_out: likewise.
        unit_bias: whether 1 is added to the weights.
        rounding: as in `qk_rmsnorm_rope_quant`.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        ``(q_out, k_out, v_out)``, the last two None without `keep_heads`.

    Example:
        >>> import numpy as np
        >>> x, weight, scale = np.ones((1, 1, 2), np.float16), np.ones(2, np.float16), np.full(1, 0.25, np.float32)
        >>> quarter, zero = np.array([[0.0, 1.0]], np.float16), np.zeros(1, np.int64)
        >>> keys, values = np.zeros((1, 2, 1, 2), np.uint8), np.zeros((1, 2, 1, 2), np.uint8)
        >>> _ = qk_rmsnorm_rope_cache_quant(
        ...     x, x, x, weight, weight, quarter, zero, zero, keys, values, scale, 2 * scale, eps=0.0
        ... )
        >>> (keys[0, 0].tolist(), values[0, 0].tolist())  # the codes of -4, 4 and 2, 2
        ([[200, 72]], [[64, 64]])
    """
    made: tuple[Any, Any, Any] = _CALLS.call(
        q, k, v, q_weight, k_weight, cos_sin_cache, positions, slot_mapping, key_cache, value_cache, k_scale, v_scale,
        q_out, k_out, v_out, eps, stream, QK_RMSNORM_ROPE_CACHE_QUANT, enable_pdl, rounding, is_neox, unit_bias,
        keep_heads,
    )  # fmt: skip
    return made


def _calls(
    k: Shape, table: Shape, key_cache: Shape, value_cache: Shape, k_scale: Kind, v_scale: Kind,
    has_k: bool, has_v: bool, op: Op, enable_pdl: bool | None, rounding: str, is_neox: bool, unit_bias: bool,
    keep_heads: bool,
) -> tuple[Dispatcher, Form]:  # fmt: skip
    check_caches(k, key_cache, value_cache)
    check_kept(keep_heads, has_k, has_v)
    form = with_scales(_FORM, k, k_scale, v_scale)
    options = is_neox, rotary_size_of(table), unit_bias, keep_heads
    return rounded_dispatcher(op, enable_pdl, rounding, *options), form


_CALLS = Known(
    _calls,
    "q k@2 v q_weight k_weight cos_sin_cache@2 positions slot_mapping key_cache@4 value_cache@4 k_scale?@1 v_scale?@1 "
    "q_out k_out? v_out? eps",
)
