"""RMSNorm fused with FP8 quantization with a given scale."""

from __future__ import annotations

from typing import Any

from jitnorm.catalogue.encoding_norms import (
    FUSED_ADD_RMS_NORM_STATIC_FP8_QUANT,
    FUSED_ADD_RMSNORM_QUANT,
    GEMMA_FUSED_ADD_RMSNORM_QUANT,
    GEMMA_RMSNORM_QUANT,
    RMS_NORM_STATIC_FP8_QUANT,
    RMSNORM_QUANT,
)
from jitnorm.catalogue.op import Op
from jitnorm.dispatch import Dispatcher, rounded_dispatcher
from jitnorm.interop import framework_of
from jitnorm.ops.forms import Form, Known


def rmsnorm_quant(
    out: Any, input: Any, weight: Any, scale: Any, eps: float = 1e-06, enable_pdl: bool | None = None,
    *, rounding: str = "once", stream: Any = None,
) -> None:  # fmt: skip
    """RMSNorm, then FP8: ``out = fp8(y * (1 / scale))`` of the unrounded norm ``y``, to nearest even, saturating.

    Args:
        out: where to write, shape of the input, float8_e4m3fn or float8_e5m2; rows at any stride.
        input: float16, bfloat16 or float32, shape (..., hidden_size), 1 to 262144 elements per row; rows at any stride.
        weight: shape (hidden_size,), the input's dtype or float32.
        scale: float32 tensor of one element on the input's device, a divisor.
        eps: added to the mean of squares.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        rounding: as in `norm_quantize`.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import ml_dtypes, numpy as np
        >>> x = np.array([[3.0, 4.0]], np.float16)
        >>> out = np.empty((1, 2), ml_dtypes.float8_e4m3fn)
        >>> rmsnorm_quant(out, x, np.ones(2, np.float16), np.array([0.5], np.float32), eps=0.0)
        >>> out.astype(float).tolist()
        [[1.75, 2.25]]
    """
    _quant(RMSNORM_QUANT, out, input, None, weight, scale, eps, enable_pdl, rounding, stream)


def gemma_rmsnorm_quant(
    out: Any, input: Any, weight: Any, scale: Any, eps: float = 1e-06, enable_pdl: bool | None = None,
    *, rounding: str = "once", stream: Any = None,
) -> None:  # fmt: skip
    """`rmsnorm_quant` for Gemma: the weight is ``weight + 1``.

    Example:
        >>> import ml_dtypes, numpy as np
        >>> x, scale = np.array([[3.0, 4.0]], np.float16), np.array([0.5], np.float32)
        >>> out = np.empty((1, 2), ml_dtypes.float8_e4m3fn)
        >>> gemma_rmsnorm_quant(out, x, np.zeros(2, np.float16), scale, eps=0.0)
        >>> out.astype(float).tolist()
        [[1.75, 2.25]]
    """
    _quant(GEMMA_RMSNORM_QUANT, out, input, None, weight, scale, eps, enable_pdl, rounding, stream)


def fused_add_rmsnorm_quant(
    out: Any, input: Any, residual: Any, weight: Any, scale: Any, eps: float = 1e-06,
    enable_pdl: bool | None = None, *, rounding: str = "once", stream: Any = None,
) -> None:  # fmt: skip
    """Add the residual, then `rmsnorm_quant` of the float32 sum.

    The input is unchanged. The residual, like the input, becomes the sum, rounded to its dtype. Everything else is as
    in `rmsnorm_quant`.

    Example:
        >>> import ml_dtypes, numpy as np
        >>> x, residual = np.array([[1.0, 1.0]], np.float16), np.array([[2.0, 3.0]], np.float16)
        >>> out = np.empty((1, 2), ml_dtypes.float8_e4m3fn)
        >>> fused_add_rmsnorm_quant(out, x, residual, np.ones(2, np.float16), np.array([0.5], np.float32), eps=0.0)
        >>> out.astype(float).tolist(), residual.tolist()
        ([[1.75, 2.25]], [[3.0, 4.0]])
    """
    _quant(FUSED_ADD_RMSNORM_QUANT, out, input, residual, weight, scale, eps, enable_pdl, rounding, stream)


def gemma_fused_add_rmsnorm_quant(
    out: Any, input: Any, residual: Any, weight: Any, scale: Any, eps: float = 1e-06,
    enable_pdl: bool | None = None, *, rounding: str = "once", stream: Any = None,
) -> None:  # fmt: skip
    """`fused_add_rmsnorm_quant` for Gemma: the weight is ``weight + 1``.

    Example:
        >>> import ml_dtypes, numpy as np
        >>> x, residual = np.array([[1.0, 1.0]], np.float16), np.array([[2.0, 3.0]], np.float16)
        >>> out, scale = np.empty((1, 2), ml_dtypes.float8_e4m3fn), np.array([0.5], np.float32)
        >>> gemma_fused_add_rmsnorm_quant(out, x, residual, np.zeros(2, np.float16), scale, eps=0.0)
        >>> out.astype(float).tolist()
        [[1.75, 2.25]]
    """
    _quant(GEMMA_FUSED_ADD_RMSNORM_QUANT, out, input, residual, weight, scale, eps, enable_pdl, rounding, stream)


def rms_norm_static_fp8_quant(
    result: Any, input: Any, weight: Any, scale: Any, epsilon: float, *, enable_pdl: bool | None = None,
    rounding: str = "once", stream: Any = None,
) -> None:  # fmt: skip
    """`rmsnorm_quant` with vLLM's name and order of arguments: the result first, then `epsilon` last.

    Example:
        >>> import ml_dtypes, numpy as np
        >>> x = np.array([[3.0, 4.0]], np.float16)
        >>> result = np.empty((1, 2), ml_dtypes.float8_e4m3fn)
        >>> rms_norm_static_fp8_quant(result, x, np.ones(2, np.float16), np.array([0.5], np.float32), 0.0)
        >>> result.astype(float).tolist()
        [[1.75, 2.25]]
    """
    _quant(RMS_NORM_STATIC_FP8_QUANT, result, input, None, weight, scale, epsilon, enable_pdl, rounding, stream)


def fused_add_rms_norm_static_fp8_quant(
    result: Any, input: Any, residual: Any, weight: Any, scale: Any, epsilon: float, *,
    enable_pdl: bool | None = None, rounding: str = "once", stream: Any = None,
) -> None:  # fmt: skip
    """`fused_add_rmsnorm_quant` with vLLM's name and order of arguments.

    Example:
        >>> import ml_dtypes, numpy as np
        >>> x, residual = np.array([[1.0, 1.0]], np.float16), np.array([[2.0, 3.0]], np.float16)
        >>> result, scale = np.empty((1, 2), ml_dtypes.float8_e4m3fn), np.array([0.5], np.float32)
        >>> fused_add_rms_norm_static_fp8_quant(result, x, residual, np.ones(2, np.float16), scale, 0.0)
        >>> result.astype(float).tolist()
        [[1.75, 2.25]]
    """
    _quant(
        FUSED_ADD_RMS_NORM_STATIC_FP8_QUANT,
        result,
        input,
        residual,
        weight,
        scale,
        epsilon,
        enable_pdl,
        rounding,
        stream,
    )


def _quant(
    op: Op, out: Any, input: Any, residual: Any, weight: Any, scale: Any, eps: float, enable_pdl: bool | None,
    rounding: str, stream: Any,
) -> None:  # fmt: skip
    dtype = getattr(out, "dtype", None)
    _CALLS.call(input, residual, weight, out, scale, residual, eps, stream, op, enable_pdl, rounding, dtype)


def calls_of_fp8(has_out: bool, op: Op, enable_pdl: bool | None, rounding: str, dtype: Any) -> tuple[Dispatcher, Form]:
    """The dispatcher of the calls of such an op, given a framework's dtype of the output, and their form."""
    if not has_out:
        framework_of(None, op.aliases.get("out", "out"))  # raises the error
    # Of anything else that is no tensor, the launch does.
    name = "float8_e4m3fn" if dtype is None else str(dtype).rpartition(".")[2]
    return rounded_dispatcher(op, enable_pdl, rounding, name), _FORM


FP8_ARGUMENTS = "input residual weight out? scale residual_out eps"
_FORM = Form(FP8_ARGUMENTS.replace("?", ""), "None")
_CALLS = Known(calls_of_fp8, FP8_ARGUMENTS)
