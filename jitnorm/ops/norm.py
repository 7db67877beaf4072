"""RMSNorm, with and without a residual, and layer normalization."""

from __future__ import annotations

from functools import cache
from typing import Any

from jitnorm.dispatch import Dispatcher
from jitnorm.interop import direct
from jitnorm.ops.run import run


@cache
def _dispatcher(residual: bool, unit_bias: bool, enable_pdl: bool | None) -> Dispatcher:
    return Dispatcher(enable_pdl, op="rmsnorm", residual=residual, unit_bias=unit_bias)


def rmsnorm(
    input: Any, weight: Any, eps: float = 1e-06, out: Any = None, enable_pdl: bool | None = None, *, stream: Any = None
) -> Any:
    """Root-mean-square normalization: ``input / sqrt(mean(input**2) + eps) * weight``, row by row.

    All arithmetic is float32 with one rounding at the end; docs/numerics.md defines every bit.
    The formula is that of Zhang and Sennrich, "Root Mean Square Layer Normalization" (2019).

    Args:
        input: float16, bfloat16 or float32, shape (..., hidden_size), 1 to 262144 elements a row; rows at any stride.
        weight: shape (hidden_size,), the input's dtype or float32.
        eps: added to the mean of squares.
        out: where to write, like the input; None allocates. It may be the input itself.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU can.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        `out`.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is no tensor of a known framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> x = np.array([[3.0, 4.0]], np.float16)
        >>> rmsnorm(x, np.ones(2, np.float16), eps=0.0)
        array([[0.8486, 1.132 ]], dtype=float16)
    """
    dispatcher = _dispatcher(False, False, enable_pdl)
    admits = direct.get(type(input))
    if (
        stream is None and admits is not None
        and direct.get(type(weight)) is admits and direct.get(type(out)) is admits
    ):  # fmt: skip
        # The usual call goes straight to the launcher; see docs/measured.md.
        try:
            if admits((input, weight, out), (out,)) and dispatcher.launch(input, weight, out, eps) is None:
                return out
        except (RuntimeError, TypeError, ValueError):
            pass  # nothing has run; the long way raises it again, in the caller's words
    return run(dispatcher, (input, weight, out), (eps,), stream, out is None)[2]


@cache
def _layernorm_dispatcher(enable_pdl: bool | None) -> Dispatcher:
    return Dispatcher(enable_pdl, op="layernorm")


def layernorm(
    input: Any, gemma: Any, beta: Any, eps: float = 1e-06, *, out: Any = None, enable_pdl: bool | None = None,
    stream: Any = None,
) -> Any:  # fmt: skip
    """Layer normalization, row by row: ``(input - mean) / sqrt(variance + eps) * gemma + beta``.

    The variance is the mean of the squared differences from the mean. docs/numerics.md defines every bit.
    The formula is that of Ba, Kiros and Hinton, "Layer Normalization" (2016).

    Args:
        input: float16, bfloat16 or float32, shape (..., hidden_size), 1 to 262144 elements a row; rows at any stride.
        gemma: the factors, float32, shape (hidden_size,); FlashInfer's name for gamma.
        beta: what is added, float32, shape (hidden_size,).
        eps: added to the variance.
        out: where to write, like the input; None allocates. It may be the input itself.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU can.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        `out`.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is no tensor of a known framework.

    Example:
        >>> import numpy as np
        >>> layernorm(np.array([[1, 3]], np.float16), np.ones(2, np.float32), np.zeros(2, np.float32), eps=0.0)
        array([[-1.,  1.]], dtype=float16)
    """
    return run(_layernorm_dispatcher(enable_pdl), (input, gemma, beta, out), (eps,), stream, out is None)[3]


def gemma_rmsnorm(
    input: Any, weight: Any, eps: float = 1e-06, out: Any = None, enable_pdl: bool | None = None, *, stream: Any = None
) -> Any:
    """RMSNorm as Gemma has it: the weight is ``weight + 1``. All else is as in `rmsnorm`.

    Example:
        >>> import numpy as np
        >>> x = np.array([[3.0, 4.0]], np.float16)
        >>> gemma_rmsnorm(x, np.zeros(2, np.float16), eps=0.0)
        array([[0.8486, 1.132 ]], dtype=float16)
    """
    return run(_dispatcher(False, True, enable_pdl), (input, weight, out), (eps,), stream, out is None)[2]


def fused_add_rmsnorm(
    input: Any,
    residual: Any,
    weight: Any,
    eps: float = 1e-06,
    enable_pdl: bool | None = None,
    *,
    out: Any = None,
    residual_out: Any = None,
    stream: Any = None,
) -> None:
    """Add the residual to the input, then RMSNorm of the float32 sum; in place unless told otherwise.

    Args:
        input: float16, bfloat16 or float32, shape (..., hidden_size); rows at any stride. Becomes the norm.
        residual: like the input. Becomes the sum, rounded to its dtype.
        weight: shape (hidden_size,), the input's dtype or float32.
        eps: added to the mean of squares.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU can.
        out: where to write the norm instead.
        residual_out: where to write the sum instead.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is no tensor of a known framework, or cannot be written, such as a JAX array.

    Example:
        >>> import numpy as np
        >>> x, r = np.array([[1.0, 1.0]], np.float16), np.array([[2.0, 3.0]], np.float16)
        >>> fused_add_rmsnorm(x, r, np.ones(2, np.float16), eps=0.0)
        >>> x, r
        (array([[0.8486, 1.132 ]], dtype=float16), array([[3., 4.]], dtype=float16))
    """
    _fused_add(input, residual, weight, eps, enable_pdl, out, residual_out, stream, unit_bias=False)


def gemma_fused_add_rmsnorm(
    input: Any,
    residual: Any,
    weight: Any,
    eps: float = 1e-06,
    enable_pdl: bool | None = None,
    *,
    out: Any = None,
    residual_out: Any = None,
    stream: Any = None,
) -> None:
    """`fused_add_rmsnorm` as Gemma has it: the weight is ``weight + 1``.

    Example:
        >>> import numpy as np
        >>> x, r = np.array([[1.0, 1.0]], np.float16), np.array([[2.0, 3.0]], np.float16)
        >>> gemma_fused_add_rmsnorm(x, r, np.zeros(2, np.float16), eps=0.0)
        >>> x
        array([[0.8486, 1.132 ]], dtype=float16)
    """
    _fused_add(input, residual, weight, eps, enable_pdl, out, residual_out, stream, unit_bias=True)


def _fused_add(
    input: Any, residual: Any, weight: Any, eps: float, enable_pdl: bool | None, out: Any, residual_out: Any,
    stream: Any, *, unit_bias: bool,
) -> None:  # fmt: skip
    written = (input if out is None else out, residual if residual_out is None else residual_out)
    run(_dispatcher(True, unit_bias, enable_pdl), (input, residual, weight, *written), (eps,), stream, allocates=False)
