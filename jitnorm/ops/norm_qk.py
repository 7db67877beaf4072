"""RMSNorm of two tensors in one launch: the heads of queries and keys, or their latents."""

from __future__ import annotations

from typing import Any

from jitnorm.catalogue import norms
from jitnorm.catalogue.op import WITHOUT_WEIGHT
from jitnorm.dispatch import Dispatcher, RoundingDispatchers, rounded_dispatcher
from jitnorm.ops.forms import Form, Known, Shape
from jitnorm.ops.run import Tensor

_QK_RMSNORM, _GEMMA_QK_RMSNORM = RoundingDispatchers(norms.QK_RMSNORM), RoundingDispatchers(norms.GEMMA_QK_RMSNORM)
_FORM = Form("q k q_weight k_weight q_out k_out eps", "({q_out}, {k_out})")
_UNWEIGHTED_QK_RMSNORM = RoundingDispatchers(norms.QK_RMSNORM, **WITHOUT_WEIGHT)


def qk_rmsnorm(
    q: Tensor,
    k: Tensor,
    q_weight: Any,
    k_weight: Any,
    eps: float = 1e-06,
    q_out: Tensor | None = None,
    k_out: Tensor | None = None,
    enable_pdl: bool | None = None,
    *,
    rounding: str = "once",
    stream: Any = None,
) -> tuple[Tensor, Tensor]:
    """RMSNorm of each head of the queries and the keys, in one launch; each row is that of `rmsnorm`.

    The two may be views cut out of one packed QKV tensor, and may be normalized in place.

    Args:
        q: float16, bfloat16 or float32, shape (..., head_dim), such as (tokens, q_heads, head_dim); 1 to 262144
            elements per row; rows at any stride.
        k: the same dtype, shape (..., head_dim) with its own leading dimensions; rows at any stride.
        q_weight: shape (head_dim,), the dtype of `q` or float32; None for no weight.
        k_weight: like `q_weight`; None if that is.
        eps: added to the mean of squares.
        q_out: where to write, like `q`; None allocates. It may be `q` itself.
        k_out: where to write, like `k`; None allocates. It may be `k` itself.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        rounding: as in `rmsnorm`.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        ``(q_out, k_out)``.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> qkv = np.array([[[3.0, 4.0], [6.0, 8.0], [1.0, 1.0]]], np.float16)
        >>> q, k, weight = qkv[:, :1], qkv[:, 1:2], np.ones(2, np.float16)
        >>> _ = qk_rmsnorm(q, k, weight, 2 * weight, eps=0.0, q_out=q, k_out=k)
        >>> qkv
        array([[[0.8486, 1.132 ],
                [1.697 , 2.264 ],
                [1.    , 1.    ]]], dtype=float16)
    """
    if q_weight is None and k_weight is not None:
        raise ValueError("k_weight: is given, but q_weight is None; pass both or neither")
    dispatchers = _UNWEIGHTED_QK_RMSNORM if q_weight is None else _QK_RMSNORM
    return _qk_rmsnorm(dispatchers[rounding][enable_pdl], q, k, q_weight, k_weight, eps, q_out, k_out, stream)


def gemma_qk_rmsnorm(
    q: Tensor,
    k: Tensor,
    q_weight: Any,
    k_weight: Any,
    eps: float = 1e-06,
    q_out: Tensor | None = None,
    k_out: Tensor | None = None,
    enable_pdl: bool | None = None,
    *,
    rounding: str = "once",
    stream: Any = None,
) -> tuple[Tensor, Tensor]:
    """`qk_rmsnorm` for Gemma: the weights are ``weight + 1``.

    Example:
        >>> import numpy as np
        >>> x, weight = np.array([[3.0, 4.0]], np.float16), np.zeros(2, np.float16)
        >>> gemma_qk_rmsnorm(x, x[:0], weight, weight, eps=0.0)
        (array([[0.8486, 1.132 ]], dtype=float16), array([], shape=(0, 2), dtype=float16))
    """
    return _qk_rmsnorm(_GEMMA_QK_RMSNORM[rounding][enable_pdl], q, k, q_weight, k_weight, eps, q_out, k_out, stream)


def q_kv_rmsnorm(
    q: Tensor,
    kv: Any,
    q_weight: Any,
    kv_weight: Any,
    eps: float = 1e-06,
    q_out: Tensor | None = None,
    kv_out: Tensor | None = None,
    enable_pdl: bool | None = None,
    *,
    rounding: str = "once",
    stream: Any = None,
) -> tuple[Tensor, Tensor]:
    """RMSNorm of two tensors whose rows differ in length, in one launch; each row is that of `rmsnorm`.

    This is for the latents of multi-head latent attention (MLA), as in DeepSeek's models: those of queries, and those
    that keys and values share. They may be views of one packed tensor, and may be normalized in place.

    Args:
        q: float16, bfloat16 or float32, shape (..., q_size), up to 262144 elements per row; rows at any stride.
        kv: the same dtype, shape (..., kv_size) with its own leading dimensions; rows at any stride. Unless the two
            sizes are the same, both must be multiples of 16.
        q_weight: shape (q_size,), the dtype of `q` or float32.
        kv_weight: shape (kv_size,), the dtype of `q_weight`.
        eps: added to the mean of squares.
        q_out: where to write, like `q`; None allocates. It may be `q` itself.
        kv_out: where to write, like `kv`; None allocates. It may be `kv` itself.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        rounding: as in `rmsnorm`.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        ``(q_out, kv_out)``.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> packed = np.ones((2, 48), np.float16)
        >>> q, kv = q_kv_rmsnorm(packed[:, :32], packed[:, 32:], np.ones(32, np.float16), np.ones(16, np.float16))
        >>> q.shape, kv.shape
        ((2, 32), (2, 16))
    """
    made: tuple[Tensor, Tensor] = _Q_KV_CALLS.call(
        q, kv, q_weight, kv_weight, q_out, kv_out, eps, stream, enable_pdl, rounding
    )
    return made


def _q_kv_calls(kv: Shape, enable_pdl: bool | None, rounding: str) -> tuple[Dispatcher, Form]:
    return rounded_dispatcher(norms.Q_KV_RMSNORM, enable_pdl, rounding, kv[-1] if kv else 0), _FORM


_Q_KV_CALLS = Known(_q_kv_calls, "q kv@1 q_weight k_weight q_out k_out eps")


def _qk_rmsnorm(
    dispatcher: Dispatcher, q: Any, k: Any, q_weight: Any, k_weight: Any, eps: float, q_out: Any, k_out: Any,
    stream: Any,
) -> tuple[Any, Any]:  # fmt: skip
    made: tuple[Any, Any] = dispatcher.calls[_FORM](q, k, q_weight, k_weight, q_out, k_out, eps, stream)
    return made
