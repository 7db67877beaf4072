"""Rotary position embedding of queries and keys, without a norm."""

from __future__ import annotations

from typing import Any

from jitnorm.catalogue.op import Op
from jitnorm.catalogue.rotations import ROPE, ROPE_QUANT
from jitnorm.dispatch import Dispatcher, rounded_dispatcher
from jitnorm.ops.forms import Form, Known, Shape
from jitnorm.ops.heads import rotary_size_of
from jitnorm.ops.run import Tensor

_FORM = Form("q k cos_sin_cache positions q_scale k_scale q_out k_out", "({q_out}, {k_out})")


def rope(
    q: Tensor,
    k: Tensor,
    cos_sin_cache: Any,
    positions: Any,
    is_neox: bool = True,
    q_out: Tensor | None = None,
    k_out: Tensor | None = None,
    enable_pdl: bool | None = None,
    *,
    rounding: str = "once",
    stream: Any = None,
) -> tuple[Tensor, Tensor]:
    """Rotary position embedding (RoPE) of each head of the queries and the keys, in one launch.

    A pair (a, b) becomes ``(a cos - b sin, b cos + a sin)``, the formula of Su et al., "RoFormer: Enhanced Transformer
    with Rotary Position Embedding" (2021). For models such as Llama, which have no norm there; `qk_rmsnorm_rope` has
    one. The two may be views of one packed QKV tensor, and may be written in place.

    Args:
        q: float16, bfloat16 or float32, shape (..., q_heads, head_size), such as (tokens, q_heads, head_size); up to
            512 elements per head; heads at any stride.
        k: of the same dtype, shape (..., k_heads, head_size), of as many tokens; heads at any stride.
        cos_sin_cache: float16, bfloat16 or float32, shape (max_position, rotary_size), half of each row cosines, then
            sines; rows at any stride. The rotary size is even and at most the head size: the first elements of each
            head are rotated, and the others stay as they are. Or int32, shape (1, rotary_size): the frequency of each
            pair in 2^-64 turns per position, half of the row the upper 32 bits of all, then the lower ones; the kernel
            computes cosines and sines, which takes no table and no memory, but more instructions.
        positions: int32 or int64, as many elements as tokens: the row of `cos_sin_cache` for each. One outside of it,
            or a negative one with frequencies, makes the rotated elements NaN.
        is_neox: whether the elements of a pair are half a head apart, as in GPT-NeoX and most models, or neighbours, as
            in GPT-J.
        q_out: where to write, like `q`; None allocates. It may be `q` itself.
        k_out: where to write, like `k`; None allocates. It may be `k` itself.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        rounding: what is rounded to the dtype of `q` besides the results: nothing (``once`` or ``output``), or each
            step as in Transformers (``hf`` or ``vllm``): both products with a cosine and a sine, and their sum.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        ``(q_out, k_out)``.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> qkv = np.array([[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]], np.float16)
        >>> q, k, quarter = qkv[:, :1], qkv[:, 1:2], np.array([[1.0, 0.0], [0.0, 1.0]], np.float16)
        >>> _ = rope(q, k, quarter, np.array([1]), q_out=q, k_out=k)
        >>> qkv.tolist()
        [[[-2.0, 1.0], [-4.0, 3.0], [5.0, 6.0]]]

        By frequencies, in radians per position:

        >>> frequencies = 10000.0 ** -np.linspace(0, 1, 64, endpoint=False)
        >>> words = (frequencies / (2 * np.pi) * 2**64).astype(np.uint64)
        >>> table = np.concatenate([words >> 32, words & 0xFFFFFFFF]).astype(np.uint32).view(np.int32)[None]
        >>> heads = np.eye(128, dtype=np.float32)[None, :1]
        >>> q, _ = rope(heads, heads, table, np.array([100000]))
        >>> np.allclose(q[0, 0, [0, 64]], [np.cos(100000), np.sin(100000)], rtol=0, atol=2**-23)
        True
    """
    made: tuple[Tensor, Tensor] = _CALLS.call(
        q, k, cos_sin_cache, positions, None, None, q_out, k_out, stream, ROPE, enable_pdl, rounding, is_neox
    )
    return made


def rope_quant(
    q: Tensor,
    k: Tensor,
    cos_sin_cache: Any,
    positions: Any,
    q_scale: Any,
    k_scale: Any,
    is_neox: bool = True,
    q_out: Tensor | None = None,
    k_out: Tensor | None = None,
    enable_pdl: bool | None = None,
    *,
    rounding: str = "once",
    stream: Any = None,
) -> tuple[Tensor, Tensor]:
    """`rope`, then FP8: ``fp8(x * (1 / scale))`` of each unrounded element x, to nearest even, saturating.

    Args:
        q: as in `rope`, like all arguments not described here.
        k: likewise.
        cos_sin_cache: likewise.
        positions: likewise.
        q_scale: float32 tensor of one element, the divisor of queries.
        k_scale: the divisor of keys.
        is_neox: as in `rope`.
        q_out: where to write, float8_e4m3fn (or uint8), shape of `q`; None allocates.
        k_out: where to write, shape of `k`; None allocates.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        rounding: what is rounded before the encoding: nothing (``once``); the result (``output``), which gives the
            codes of `rope` and then `quantize`; or each step (``hf`` or ``vllm``).
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        ``(q_out, k_out)``.

    Example:
        >>> import numpy as np
        >>> x, scale = np.array([[1.0, 2.0]], np.float16), np.full(1, 0.25, np.float32)
        >>> table, positions = np.array([[0.0, 1.0]], np.float32), np.zeros(1, np.int32)
        >>> q, k = rope_quant(x, x, table, positions, scale, 2 * scale)
        >>> q.astype(float).tolist(), k.astype(float).tolist()
        ([[-8.0, 4.0]], [[-4.0, 2.0]])
    """
    made: tuple[Tensor, Tensor] = _CALLS.call(
        q, k, cos_sin_cache, positions, q_scale, k_scale, q_out, k_out, stream, ROPE_QUANT, enable_pdl, rounding,
        is_neox,
    )  # fmt: skip
    return made


def _calls(table: Shape, op: Op, enable_pdl: bool | None, rounding: str, is_neox: bool) -> tuple[Dispatcher, Form]:
    return rounded_dispatcher(op, enable_pdl, rounding, is_neox, rotary_size_of(table)), _FORM


_CALLS = Known(_calls, "q k cos_sin_cache@2 positions q_scale k_scale q_out k_out")
