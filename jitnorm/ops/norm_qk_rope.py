"""RMSNorm of the heads of queries and keys, then their rotary position embedding, in one launch."""

from __future__ import annotations

from typing import Any

from jitnorm.catalogue.norms import QK_RMSNORM_ROPE, QK_RMSNORM_ROPE_QUANT
from jitnorm.catalogue.op import Op
from jitnorm.dispatch import Dispatcher, rounded_dispatcher
from jitnorm.ops.forms import Form, Known, Shape
from jitnorm.ops.heads import rotary_size_of
from jitnorm.ops.run import Tensor

_FORM = Form("q k q_weight k_weight cos_sin_cache positions q_scale k_scale q_out k_out eps", "({q_out}, {k_out})")


def qk_rmsnorm_rope(
    q: Tensor,
    k: Tensor,
    q_weight: Any,
    k_weight: Any,
    cos_sin_cache: Any,
    positions: Any,
    eps: float = 1e-06,
    is_neox: bool = True,
    q_out: Tensor | None = None,
    k_out: Tensor | None = None,
    enable_pdl: bool | None = None,
    *,
    unit_bias: bool = False,
    rounding: str = "once",
    head_size: int | None = None,
    stream: Any = None,
) -> tuple[Tensor, Tensor]:
    """RMSNorm of each head of the queries and the keys, then rotary position embedding, as `rope`, in one launch.

    The two may be views cut out of one packed QKV tensor, and may be written in place.

    Args:
        q: float16, bfloat16 or float32, shape (..., q_heads, head_size), such as (tokens, q_heads, head_size); up to
            512 elements per head; heads at any stride. See `head_size`.
        k: of the same dtype, shape (..., k_heads, head_size), of as many tokens; heads at any stride.
        q_weight: shape (head_size,), the dtype of `q` or float32.
        k_weight: like `q_weight`.
        cos_sin_cache: float16, bfloat16 or float32, shape (max_position, rotary_size), half of each row cosines, then
            sines; rows at any stride. The rotary size is even and at most the head size: the first elements of each
            head are rotated, and the others are only normalized. Or int32, shape (1, rotary_size): the frequency of
            each pair in 2^-64 turns per position, half of the row the upper 32 bits of all, then the lower ones; the
            kernel computes cosines and sines, which takes no table and no memory, but more instructions.
        positions: int32 or int64, as many elements as tokens: the row of `cos_sin_cache` for each. One outside of it,
            or a negative one with frequencies, makes the rotated elements NaN.
        eps: added to the mean of squares.
        is_neox: whether the elements of a pair are half a head apart, as in GPT-NeoX and most models, or neighbours, as
            in GPT-J.
        q_out: where to write, like `q`; None allocates. It may be `q` itself.
        k_out: where to write, like `k`; None allocates. It may be `k` itself.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        unit_bias: whether 1 is added to the weights, as in Gemma.
        rounding: what is rounded to the dtype of `q` besides the results: nothing (``once`` or ``output``), or each
            step as in Transformers (``hf`` or ``vllm``): those of the norm as in `rmsnorm`, both products with a cosine
            and a sine, and their sum.
        head_size: None normalizes each head separately. Otherwise the last dimension of `q`, `k` and the weights is
            several heads of 16, 32, 64, 128, 256 or 512 elements side by side, which are normalized together, as in
            OLMo 2 and in video models, and rotated separately: for a token with a single norm, `q` has the shape
            (tokens, 1, heads * head_size). Up to 32768 elements per row.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        ``(q_out, k_out)``.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> qkv, weight = np.array([[[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]], np.float16), np.ones(2, np.float16)
        >>> q, k, quarter = qkv[:, :1], qkv[:, 1:2], np.array([[1.0, 0.0], [0.0, 1.0]], np.float16)
        >>> _ = qk_rmsnorm_rope(q, k, weight, 2 * weight, quarter, np.array([1]), eps=0.0, q_out=q, k_out=k)
        >>> qkv.tolist()
        [[[-1.0, 1.0], [-2.0, 2.0], [3.0, 3.0]]]
    """
    made: tuple[Tensor, Tensor] = _CALLS.call(
        q, k, q_weight, k_weight, cos_sin_cache, positions, None, None, q_out, k_out, eps, stream, QK_RMSNORM_ROPE,
        enable_pdl, rounding, is_neox, unit_bias, head_size,
    )  # fmt: skip
    return made


def qk_rmsnorm_rope_quant(
    q: Tensor,
    k: Tensor,
    q_weight: Any,
    k_weight: Any,
    cos_sin_cache: Any,
    positions: Any,
    q_scale: Any,
    k_scale: Any,
    eps: float = 1e-06,
    is_neox: bool = True,
    q_out: Tensor | None = None,
    k_out: Tensor | None = None,
    enable_pdl: bool | None = None,
    *,
    unit_bias: bool = False,
    rounding: str = "once",
    head_size: int | None = None,
    stream: Any = None,
) -> tuple[Tensor, Tensor]:
    """`qk_rmsnorm_rope`, then FP8: ``fp8(x * (1 / scale))`` of each unrounded element x, to nearest even, saturating.

    Args:
        q: as in `qk_rmsnorm_rope`, like all arguments not described here.
        k: likewise.
        q_weight: likewise.
        k_weight: likewise.
        cos_sin_cache: likewise.
        positions: likewise.
        q_scale: float32 tensor of one element, the divisor of queries.
        k_scale: the divisor of keys.
        eps: added to the mean of squares.
        is_neox: as in `qk_rmsnorm_rope`.
        q_out: where to write, float8_e4m3fn (or uint8), shape of `q`; None allocates.
        k_out: where to write, shape of `k`; None allocates.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        unit_bias: whether 1 is added to the weights.
        rounding: what is rounded before the encoding: nothing (``once``); the result (``output``), which gives the
            codes of `qk_rmsnorm_rope` and then `quantize`; or each step (``hf`` or ``vllm``).
        head_size: as in `qk_rmsnorm_rope`.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        ``(q_out, k_out)``.

    Example:
        >>> import numpy as np
        >>> x, weight, scale = np.array([[1.0, 1.0]], np.float16), np.ones(2, np.float16), np.full(1, 0.25, np.float32)
        >>> table, positions = np.array([[0.0, 1.0]], np.float32), np.zeros(1, np.int32)
        >>> q, k = qk_rmsnorm_rope_quant(x, x, weight, weight, table, positions, scale, 2 * scale, eps=0.0)
        >>> q.astype(float).tolist(), k.astype(float).tolist()
        ([[-4.0, 4.0]], [[-2.0, 2.0]])
    """
    made: tuple[Tensor, Tensor] = _CALLS.call(
        q, k, q_weight, k_weight, cos_sin_cache, positions, q_scale, k_scale, q_out, k_out, eps, stream,
        QK_RMSNORM_ROPE_QUANT, enable_pdl, rounding, is_neox, unit_bias, head_size,
    )  # fmt: skip
    return made


def _calls(
    table: Shape, op: Op, enable_pdl: bool | None, rounding: str, is_neox: bool, unit_bias: bool, head_size: int | None
) -> tuple[Dispatcher, Form]:
    return rounded_dispatcher(op, enable_pdl, rounding, is_neox, rotary_size_of(table), unit_bias, head_size), _FORM


_CALLS = Known(_calls, "q k q_weight k_weight cos_sin_cache@2 positions q_scale k_scale q_out k_out eps")
