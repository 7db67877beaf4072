"""RMSNorm fused with FP8 quantization with computed scales: one per row or per group."""

from __future__ import annotations

from typing import Any

from jitnorm.catalogue.encoding_norms import (
    FUSED_ADD_RMSNORM_FP8_BLOCK_QUANT,
    RMS_NORM_DYNAMIC_PER_TOKEN_QUANT,
    RMS_NORM_PER_BLOCK_QUANT,
)
from jitnorm.dispatch import Dispatcher, rounded_dispatcher
from jitnorm.interop import framework_of
from jitnorm.ops.forms import Form, Known

_ADDED = Form("input residual weight out block_scale residual_out y_out eps", "None")
_OF_GROUPS = Form("input residual weight scale_ub residual_out eps", "({out}, {block_scale})")


def fused_add_rmsnorm_fp8_block_quant(
    out: Any,
    block_scale: Any,
    normed_out: Any,
    input: Any,
    residual: Any,
    weight: Any,
    eps: float = 1e-06,
    enable_pdl: bool | None = None,
    *,
    rounding: str = "once",
    stream: Any = None,
) -> None:
    """Add the residual, then RMSNorm of the float32 sum, then FP8 in groups of 128 with column-major scales.

    By default, the codes are those of the unrounded norm; FlashInfer rounds it to 16 bits first, as
    ``rounding="output"`` does.

    Args:
        out: where to write the codes, shape of the input, float8_e4m3fn or uint8; rows at any stride.
        block_scale: where to write the scales of M rows, float32 (hidden_size / 128, roundup(M, 4)), contiguous; padded
            with zeros.
        normed_out: where to also write the norm, like the input; None: nowhere.
        input: float16, bfloat16 or float32, shape (..., hidden_size), divisible by 128; rows at any stride.
        residual: like the input. Becomes the sum, rounded to its dtype.
        weight: shape (hidden_size,), the input's dtype or float32.
        eps: added to the mean of squares.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        rounding: as in `norm_quantize`.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework, or cannot be written, such as a JAX array.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import ml_dtypes, numpy as np
        >>> x, residual = np.ones((2, 128), np.float16), np.ones((2, 128), np.float16)
        >>> out, scales = np.empty((2, 128), ml_dtypes.float8_e4m3fn), np.empty((1, 4), np.float32)
        >>> fused_add_rmsnorm_fp8_block_quant(out, scales, None, x, residual, np.ones(128, np.float16))
        >>> float(out[0, 0]), float(residual[0, 0]), scales[0, 2:].tolist()
        (448.0, 2.0, [0.0, 0.0])
    """
    for name, output in (("out", out), ("block_scale", block_scale)):
        framework_of(output, name)  # every output is given by the caller
    _ADDED_CALLS.call(
        input, residual, weight, out, block_scale, residual, normed_out, eps, stream, enable_pdl, rounding
    )


def _added_calls(keeps_norm: bool, enable_pdl: bool | None, rounding: str) -> tuple[Dispatcher, Form]:
    return rounded_dispatcher(FUSED_ADD_RMSNORM_FP8_BLOCK_QUANT, enable_pdl, rounding, keeps_norm), _ADDED


_ADDED_CALLS = Known(_added_calls, "input residual weight out block_scale residual_out y_out? eps")


def rms_norm_dynamic_per_token_quant(
    input: Any,
    weight: Any,
    epsilon: float,
    quant_dtype: Any,
    scale_ub: Any = None,
    residual: Any = None,
    *,
    enable_pdl: bool | None = None,
    rounding: str = "once",
    stream: Any = None,
) -> tuple[Any, Any]:
    """RMSNorm, then FP8 with a scale for each row, under vLLM's name.

    By default, the codes are those of the unrounded norm; vLLM rounds as ``rounding="hf"`` does. Unlike vLLM's
    function, it has no int8 output.

    Args:
        input: float16, bfloat16 or float32, shape (..., hidden_size), 1 to 262144 elements per row; rows at any stride.
        weight: shape (hidden_size,), the input's dtype or float32.
        epsilon: added to the mean of squares.
        quant_dtype: float8_e4m3fn or float8_e5m2, a dtype of a framework or its name.
        scale_ub: float32 tensor of one element on the input's device that limits amax; None for no limit.
        residual: like the input, or None; added first, and becomes the sum, rounded to its dtype.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        rounding: as in `norm_quantize`.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        ``(output, scales)``: the codes, shape of the input, and float32 (M, 1) for M rows in all.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> x = np.array([[3.0, 4.0]], np.float16)
        >>> codes, scales = rms_norm_dynamic_per_token_quant(x, np.ones(2, np.float16), 0.0, "float8_e4m3fn")
        >>> codes.astype(float).tolist(), scales.shape
        ([[320.0, 448.0]], (1, 1))
    """
    made: tuple[Any, Any] = _OF_ROWS.call(
        input, residual, weight, scale_ub, residual, epsilon, stream, enable_pdl, rounding, quant_dtype
    )
    return made


def _calls_of_rows(
    adds: bool, has_bound: bool, enable_pdl: bool | None, rounding: str, quant_dtype: Any
) -> tuple[Dispatcher, Form]:
    options = (quant_dtype, adds, has_bound)
    dispatcher = rounded_dispatcher(RMS_NORM_DYNAMIC_PER_TOKEN_QUANT, enable_pdl, rounding, *options)
    return dispatcher, Form("input residual weight scale_ub residual_out eps", "({out}, {row_scale})")


_OF_ROWS = Known(_calls_of_rows, "input residual? weight scale_ub? residual_out eps")


def rms_norm_per_block_quant(
    input: Any,
    weight: Any,
    epsilon: float,
    quant_dtype: Any,
    group_size: Any,
    scale_ub: Any = None,
    residual: Any = None,
    is_scale_transposed: bool = False,
    has_tma_aligned_scales: bool = False,
    *,
    enable_pdl: bool | None = None,
    rounding: str = "once",
    stream: Any = None,
) -> tuple[Any, Any]:
    """RMSNorm, then FP8 with a scale for each group of a row, under vLLM's name.

    Args:
        input: float16, bfloat16 or float32, shape (..., hidden_size), divisible by the group; rows at any stride.
        weight: shape (hidden_size,), the input's dtype or float32.
        epsilon: added to the mean of squares.
        quant_dtype: float8_e4m3fn, a dtype of a framework or its name.
        group_size: ``[1, 128]`` or ``[1, 64]``: rows and columns that share a scale.
        scale_ub: float32 tensor of one element on the input's device that limits amax; None for no limit.
        residual: like the input, or None; added first, and becomes the sum, rounded to its dtype.
        is_scale_transposed: whether the scales are stored column by column.
        has_tma_aligned_scales: whether each of these columns is padded with zeros to a multiple of 4 rows.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        rounding: as in `norm_quantize`.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        ``(output, scales)``: the codes, shape of the input, and float32 (M, hidden_size / group) for M rows in all, a
        transposed view if `is_scale_transposed`.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> x, weight = np.ones((3, 256), np.float16), np.ones(256, np.float16)
        >>> codes, scales = rms_norm_per_block_quant(x, weight, 1e-6, "float8_e4m3fn", [1, 128])
        >>> codes.shape, scales.shape
        ((3, 256), (3, 2))
    """
    if isinstance(group_size, (str, int)) or list(group_size) not in ([1, 64], [1, 128]):
        raise ValueError(f"group_size: is {group_size!r}; allowed are [1, 64] and [1, 128]")
    if has_tma_aligned_scales and not is_scale_transposed:
        raise ValueError("has_tma_aligned_scales: is True, but the scales are row-major; pass is_scale_transposed=True")
    if is_scale_transposed and type(input).__module__.startswith("tvm_ffi"):
        raise TypeError("is_scale_transposed: is True, but a tvm_ffi.Tensor has no transposed view; pass False")
    layout = "linear" if not is_scale_transposed else "column4" if has_tma_aligned_scales else "column"
    codes, scales = _GROUP_CALLS.call(
        input, residual, weight, scale_ub, residual, epsilon, stream, enable_pdl, rounding, quant_dtype,
        int(group_size[1]), layout,
    )  # fmt: skip
    if not is_scale_transposed:
        return codes, scales
    rows = 1
    for extent in input.shape[:-1]:
        rows *= extent
    return codes, scales.T[:rows]


def _calls_of_groups(
    adds: bool, has_bound: bool, enable_pdl: bool | None, rounding: str, quant_dtype: Any, columns: int, layout: str
) -> tuple[Dispatcher, Form]:
    options = (quant_dtype, columns, layout, adds, has_bound)
    return rounded_dispatcher(RMS_NORM_PER_BLOCK_QUANT, enable_pdl, rounding, *options), _OF_GROUPS


_GROUP_CALLS = Known(_calls_of_groups, "input residual? weight scale_ub? residual_out eps")
