"""RMSNorm, with and without a residual."""

from __future__ import annotations

from typing import Any

from jitnorm.catalogue import norms
from jitnorm.catalogue.op import WITHOUT_WEIGHT
from jitnorm.dispatch import Dispatcher, RoundingDispatchers, rounded_dispatcher
from jitnorm.ops.forms import Form, Known
from jitnorm.ops.run import Tensor

_RMSNORM, _GEMMA_RMSNORM = RoundingDispatchers(norms.RMSNORM), RoundingDispatchers(norms.GEMMA_RMSNORM)
_FUSED_ADD_RMSNORM = RoundingDispatchers(norms.FUSED_ADD_RMSNORM)
_GEMMA_FUSED_ADD_RMSNORM = RoundingDispatchers(norms.GEMMA_FUSED_ADD_RMSNORM)
_RMSNORM_BIAS = RoundingDispatchers(norms.RMSNORM_BIAS)
_UNWEIGHTED_RMSNORM = RoundingDispatchers(norms.RMSNORM, **WITHOUT_WEIGHT)
_BATCHED_RMSNORM = RoundingDispatchers(norms.RMSNORM_BATCHED)
_BATCHED_FUSED_ADD_RMSNORM = RoundingDispatchers(norms.FUSED_ADD_RMSNORM_BATCHED)
_UNWEIGHTED_FUSED_ADD_RMSNORM = RoundingDispatchers(norms.FUSED_ADD_RMSNORM, **WITHOUT_WEIGHT)
_NORM, _NORM_BIAS = Form("input weight out eps", "{out}"), Form("input weight bias out eps", "{out}")
_FUSED_ADD = Form("input residual weight out residual_out eps", "None")


def rmsnorm(
    input: Tensor,
    weight: Any,
    eps: float = 1e-06,
    out: Tensor | None = None,
    enable_pdl: bool | None = None,
    *,
    batched: bool = False,
    rounding: str = "once",
    stream: Any = None,
) -> Tensor:
    """Root-mean-square normalization: ``input / sqrt(mean(input**2) + eps) * weight``, row by row.

    All arithmetic is float32 with, by default, one rounding at the end; docs/numerics.md defines every bit.
    The formula is that of Zhang and Sennrich, "Root Mean Square Layer Normalization" (2019).

    Args:
        input: float16, bfloat16 or float32, shape (..., hidden_size), 1 to 262144 elements per row; rows at any stride.
        weight: shape (hidden_size,), the input's dtype or float32; None for no weight.
        eps: added to the mean of squares.
        out: where to write, like the input; None allocates. It may be the input itself.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        batched: whether the first dimension of the input, (B, ..., hidden_size), counts matrices, each with its own
            weight: `weight` must then be given, of shape (B, hidden_size). Such calls have no gradient.
        rounding: ``once`` or ``output``, the same here; or ``hf`` or ``vllm``: as in Transformers and vLLM, ``input /
            sqrt(...)`` is rounded to the input's dtype before it is multiplied by the weight.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        `out`.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> x = np.array([[3.0, 4.0]], np.float16)
        >>> rmsnorm(x, np.ones(2, np.float16), eps=0.0)
        array([[0.8486, 1.132 ]], dtype=float16)
    """
    dispatchers = _BATCHED_RMSNORM if batched else _UNWEIGHTED_RMSNORM if weight is None else _RMSNORM
    made: Tensor = dispatchers[rounding][enable_pdl].calls[_NORM](input, weight, out, eps, stream)
    return made


def rmsnorm_bias(
    input: Tensor, weight: Any, bias: Any, eps: float = 1e-06, out: Tensor | None = None,
    enable_pdl: bool | None = None, *, rounding: str = "once", stream: Any = None,
) -> Tensor:  # fmt: skip
    """RMSNorm with a bias: the norm, times the weight, plus the bias, which has the weight's shape and dtype.

    Both must be given. Everything else is as in `rmsnorm`. Arithmetic is float32 with, by default, one rounding at the
    end; with ``rounding="hf"`` or ``"vllm"`` the product with the weight is rounded, too.

    Example:
        >>> import numpy as np
        >>> x = np.array([[3.0, 4.0]], np.float16)
        >>> rmsnorm_bias(x, np.ones(2, np.float16), np.array([0, 1], np.float16), eps=0.0)
        array([[0.8486, 2.13  ]], dtype=float16)
    """
    dispatcher = _RMSNORM_BIAS[rounding][enable_pdl]
    made: Tensor = dispatcher.calls[_NORM_BIAS](input, weight, bias, out, eps, stream)
    return made


def rmsnorm_silu(
    input: Tensor, weight: Any, eps: float = 1e-06, out: Tensor | None = None, enable_pdl: bool | None = None, *,
    activation: str = "silu", rounding: str = "once", stream: Any = None,
) -> Tensor:  # fmt: skip
    """SiLU of the RMSNorm, or another activation of it: ``silu(rmsnorm(input))``. `norm_quantize` encodes it.

    Args:
        input: float16, bfloat16 or float32, shape (..., hidden_size), 1 to 262144 elements per row; rows at any stride.
        weight: shape (hidden_size,), the input's dtype or float32; None for no weight.
        eps: added to the mean of squares.
        out: where to write, like the input; None allocates. It may be the input itself.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        activation: activation of the norm, one of those of `quantize`.
        rounding: ``once`` or ``output``, the same here; or ``hf`` or ``vllm``: as in torch step by step, the norm is
            rounded as `rmsnorm` does with this rounding before it is activated.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        `out`.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> rmsnorm_silu(np.array([[3.0, -4.0]], np.float16), np.ones(2, np.float16), eps=0.0)
        array([[ 0.594, -0.276]], dtype=float16)
    """
    made: Tensor = _ACTIVATED.call(input, weight, out, eps, stream, enable_pdl, rounding, activation)
    return made


def _activated_calls(
    has_weight: bool, enable_pdl: bool | None, rounding: str, activation: str
) -> tuple[Dispatcher, Form]:
    """The dispatcher of the calls of `rmsnorm_silu` with such options, and their form."""
    return rounded_dispatcher(norms.RMSNORM_SILU, enable_pdl, rounding, activation, has_weight), _NORM


_ACTIVATED = Known(_activated_calls, "input weight? out eps")


def gemma_rmsnorm(
    input: Tensor,
    weight: Any,
    eps: float = 1e-06,
    out: Tensor | None = None,
    enable_pdl: bool | None = None,
    *,
    rounding: str = "once",
    stream: Any = None,
) -> Tensor:
    """RMSNorm for Gemma: the weight, which must be given, is ``weight + 1``. Everything else is as in `rmsnorm`.

    Transformers' norm rounds once as well, so all values of `rounding` give the same result.

    Example:
        >>> import numpy as np
        >>> x = np.array([[3.0, 4.0]], np.float16)
        >>> gemma_rmsnorm(x, np.zeros(2, np.float16), eps=0.0)
        array([[0.8486, 1.132 ]], dtype=float16)
    """
    made: Tensor = _GEMMA_RMSNORM[rounding][enable_pdl].calls[_NORM](input, weight, out, eps, stream)
    return made


def fused_add_rmsnorm(
    input: Any,
    residual: Any,
    weight: Any,
    eps: float = 1e-06,
    enable_pdl: bool | None = None,
    *,
    out: Any = None,
    residual_out: Tensor | None = None,
    batched: bool = False,
    rounding: str = "once",
    stream: Any = None,
) -> None:
    """Add the residual to the input, then RMSNorm of the float32 sum; in place unless told otherwise.

    Args:
        input: float16, bfloat16 or float32, shape (..., hidden_size), 1 to 262144 elements per row; rows at any stride.
            Becomes the norm.
        residual: like the input. Becomes the sum, rounded to its dtype.
        weight: shape (hidden_size,), the input's dtype or float32; None for no weight.
        eps: added to the mean of squares.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        out: where to write the norm instead, like the input.
        residual_out: where to write the sum instead, like the input.
        batched: as in `rmsnorm`.
        rounding: as in `rmsnorm`; with ``hf``, the stored, rounded sum is normalized, with ``vllm`` the unrounded one.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework, or cannot be written, such as a JAX array.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> x, r = np.array([[1.0, 1.0]], np.float16), np.array([[2.0, 3.0]], np.float16)
        >>> fused_add_rmsnorm(x, r, np.ones(2, np.float16), eps=0.0)
        >>> x, r
        (array([[0.8486, 1.132 ]], dtype=float16), array([[3., 4.]], dtype=float16))
    """
    dispatchers = (
        _BATCHED_FUSED_ADD_RMSNORM
        if batched
        else _UNWEIGHTED_FUSED_ADD_RMSNORM
        if weight is None
        else _FUSED_ADD_RMSNORM
    )
    _fused_add(dispatchers[rounding][enable_pdl], input, residual, weight, eps, out, residual_out, stream)


def gemma_fused_add_rmsnorm(
    input: Any,
    residual: Any,
    weight: Any,
    eps: float = 1e-06,
    enable_pdl: bool | None = None,
    *,
    out: Any = None,
    residual_out: Tensor | None = None,
    rounding: str = "once",
    stream: Any = None,
) -> None:
    """`fused_add_rmsnorm` for Gemma: the weight, which must be given, is ``weight + 1``.

    Example:
        >>> import numpy as np
        >>> x, r = np.array([[1.0, 1.0]], np.float16), np.array([[2.0, 3.0]], np.float16)
        >>> gemma_fused_add_rmsnorm(x, r, np.zeros(2, np.float16), eps=0.0)
        >>> x
        array([[0.8486, 1.132 ]], dtype=float16)
    """
    _fused_add(_GEMMA_FUSED_ADD_RMSNORM[rounding][enable_pdl], input, residual, weight, eps, out, residual_out, stream)


def _fused_add(
    dispatcher: Dispatcher, input: Any, residual: Any, weight: Any, eps: float, out: Any, residual_out: Any, stream: Any
) -> None:
    dispatcher.calls[_FUSED_ADD](
        input, residual, weight, input if out is None else out, residual if residual_out is None else residual_out, eps,
        stream,
    )  # fmt: skip
