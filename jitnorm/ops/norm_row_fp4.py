"""RMSNorm to NVFP4 with a global scale for each row, plain or of mixed streams, for DeepSeek-style pipelines."""

from __future__ import annotations

from typing import Any

from jitnorm.catalogue.encoding_norms import MHC_RMSNORM_QUANTIZE, RMSNORM_QUANTIZE
from jitnorm.dispatch import Dispatcher, rounded_dispatcher
from jitnorm.interop.taken import Merged
from jitnorm.ops.forms import Form, Known, Shape
from jitnorm.ops.mhc import count_of_streams

_OUTPUTS = "({y_fp4}, {block_scale}, {row_scale}, {inv_rms})"
_NORM, _MIXED = Form("input weight eps", _OUTPUTS), Form("X A weight eps", _OUTPUTS, taken={"X": Merged("X")})


def rmsnorm_quantize(
    x: Any, weight: Any, eps: float = 1e-06, *, scale_layout: str = "linear", enable_pdl: bool | None = None,
    rounding: str = "once", stream: Any = None,
) -> tuple[Any, Any, Any, Any]:  # fmt: skip
    """RMSNorm, then NVFP4 with a global scale for each row, computed in the same launch.

    A value is decoded as ``e2m1 value * e4m3 scale * row_scale``; docs/encodings.md defines every bit.

    Args:
        x: float16, bfloat16 or float32, shape (..., hidden_size), divisible by 16; rows at any stride.
        weight: shape (hidden_size,), float32 or the dtype of `x`.
        eps: added to the mean of squares.
        scale_layout: ``linear``, ``128x4`` or ``8x4``.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        rounding: as in `norm_quantize`.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        codes (..., hidden_size / 2), two per byte; block scales in `scale_layout`, as in `rmsnorm_fp4quant`; the decode
        scale of each of the M rows, float32 (M,), 0 for a row of zeros; the reciprocal root mean square of each row,
        float32 (M,).

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> x = np.full((1, 16), 2.0, np.float16)
        >>> codes, scales, row_scale, inv_rms = rmsnorm_quantize(x, np.ones(16, np.float32), eps=0.0)
        >>> codes.shape, scales.shape, float(inv_rms[0])
        ((1, 8), (1, 1), 0.5)
    """
    made: tuple[Any, Any, Any, Any] = _CALLS.call(x, weight, eps, stream, enable_pdl, rounding, scale_layout)
    return made


def _calls(enable_pdl: bool | None, rounding: str, scale_layout: str) -> tuple[Dispatcher, Form]:
    return rounded_dispatcher(RMSNORM_QUANTIZE, enable_pdl, rounding, scale_layout, 0), _NORM


_CALLS = Known(_calls, "input weight eps")


def mhc_rmsnorm_quantize(
    X: Any,  # noqa: N803 - the name it has in the formula
    A: Any,  # noqa: N803
    weight: Any,
    eps: float = 1e-06,
    *,
    scale_layout: str = "linear",
    enable_pdl: bool | None = None,
    rounding: str = "once",
    stream: Any = None,
) -> tuple[Any, Any, Any, Any]:
    """Mix the streams of hyper-connections (mHC), then `rmsnorm_quantize` of the unrounded mix, in one launch.

    A row is ``sum(A[..., i] * X[..., i, :])`` over the streams i, in float32.

    Args:
        X: float16, bfloat16 or float32, shape (..., n, hidden_size), n of 1 to 4; (n, hidden_size) contiguous.
        A: the factors, float32, shape (..., n), contiguous.
        weight: shape (hidden_size,), float32 or the dtype of `X`.
        eps: added to the mean of squares.
        scale_layout: ``linear``, ``128x4`` or ``8x4``.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        rounding: as in `norm_quantize`.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        the same as `rmsnorm_quantize`.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> X = np.stack([np.full(16, 1.0), np.full(16, 3.0)]).astype(np.float16)[None]
        >>> A = np.array([[0.5, 0.5]], np.float32)
        >>> _, _, _, inv_rms = mhc_rmsnorm_quantize(X, A, np.ones(16, np.float32), eps=0.0)
        >>> float(inv_rms[0])
        0.5
    """
    made: tuple[Any, Any, Any, Any] = _MIXED_CALLS.call(X, A, weight, eps, stream, enable_pdl, rounding, scale_layout)
    return made


def _mixed_calls(streams: Shape, enable_pdl: bool | None, rounding: str, scale_layout: str) -> tuple[Dispatcher, Form]:
    options = scale_layout, count_of_streams("X", streams)
    return rounded_dispatcher(MHC_RMSNORM_QUANTIZE, enable_pdl, rounding, *options), _MIXED


_MIXED_CALLS = Known(_mixed_calls, "X@2 A weight eps")
