"""RMSNorm fused with FP8 quantization by scales that are found: one a row or one a group."""

from __future__ import annotations

from typing import Any

from jitnorm.dispatch import Allocated, Dispatcher, per_options
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.quant_spec import FP8_GROUP, QuantSpec
from jitnorm.ops.run import run

_ELEMENTS = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}


@per_options
def _block_dispatcher(keep_norm: bool, enable_pdl: bool | None) -> Dispatcher:
    return _dispatcher(FP8_GROUP.with_layout("column4"), enable_pdl, residual=True, keep_norm=keep_norm)


@per_options
def _token_dispatcher(quant_dtype: Any, enable_pdl: bool | None, residual: bool, scale_ub: bool) -> Dispatcher:
    quant = QuantSpec(_element(quant_dtype, ("float8_e4m3fn", "float8_e5m2")), "row", "f32")
    return _dispatcher(quant, enable_pdl, residual=residual, scale_ub=scale_ub)


@per_options
def _group_dispatcher(
    quant_dtype: Any, group: int, layout: str, enable_pdl: bool | None, residual: bool, scale_ub: bool
) -> Dispatcher:
    quant = QuantSpec(_element(quant_dtype, ("float8_e4m3fn",)), group, "f32", layout)
    return _dispatcher(quant, enable_pdl, residual=residual, scale_ub=scale_ub)


def _dispatcher(quant: QuantSpec, enable_pdl: bool | None, **options: bool) -> Dispatcher:
    aliases = {"residual_out": "residual", "y_out": "normed_out"}
    return Dispatcher(enable_pdl, allocations=_scales_of_rows, aliases=aliases, op="rmsnorm", quant=quant, **options)


def _scales_of_rows(config: KernelConfig) -> Allocated:
    """Scales with two dimensions, whatever the input has."""
    allocations: Allocated = {"row_scale": (("M", 1), "float32")}
    if config.quant is not None and config.quant.scale_layout == "linear":
        allocations["block_scale"] = (("M", config.hidden_size // config.block_size), "float32")
    return allocations


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
    stream: Any = None,
) -> None:
    """Add the residual, then RMSNorm of the float32 sum, then FP8 in groups of 128 with column-major scales.

    The codes are those of the unrounded norm, as everywhere in jitnorm; FlashInfer rounds it to 16 bits first.

    Args:
        out: where to write the codes, shape of the input, float8_e4m3fn or uint8; rows at any stride.
        block_scale: where to write the scales, float32 (hidden_size / 128, roundup(M, 4)), contiguous; padding zero.
        normed_out: where to write the norm itself, like the input; None: nowhere.
        input: float16, bfloat16 or float32, shape (..., hidden_size), divisible by 128; rows at any stride.
        residual: like the input. Becomes the sum, rounded to its dtype.
        weight: shape (hidden_size,), the input's dtype or float32.
        eps: added to the mean of squares.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU can.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is no tensor of a known framework, or cannot be written, such as a JAX array.

    Example:
        >>> import ml_dtypes, numpy as np
        >>> x, residual = np.ones((2, 128), np.float16), np.ones((2, 128), np.float16)
        >>> out, scales = np.empty((2, 128), ml_dtypes.float8_e4m3fn), np.empty((1, 4), np.float32)
        >>> fused_add_rmsnorm_fp8_block_quant(out, scales, None, x, residual, np.ones(128, np.float16))
        >>> float(out[0, 0]), float(residual[0, 0]), scales[0, 2:].tolist()
        (448.0, 2.0, [0.0, 0.0])
    """
    dispatcher = _block_dispatcher(normed_out is not None, enable_pdl)
    kept = () if normed_out is None else (normed_out,)
    tensors = (input, residual, weight, out, block_scale, residual, *kept)
    run(dispatcher, tensors, (eps,), stream, allocates=False)


def rms_norm_dynamic_per_token_quant(
    input: Any,
    weight: Any,
    epsilon: float,
    quant_dtype: Any,
    scale_ub: Any = None,
    residual: Any = None,
    *,
    enable_pdl: bool | None = None,
    stream: Any = None,
) -> tuple[Any, Any]:
    """RMSNorm, then FP8 with a scale for each row, under the name that vLLM has.

    The codes are those of the unrounded norm. An int8 output, which vLLM has, does not exist here.

    Args:
        input: float16, bfloat16 or float32, shape (..., hidden_size); rows at any stride.
        weight: shape (hidden_size,), the input's dtype or float32.
        epsilon: added to the mean of squares.
        quant_dtype: float8_e4m3fn or float8_e5m2, a dtype of a framework or its name.
        scale_ub: float32 tensor of one element on the input's device that bounds amax; None: no bound.
        residual: like the input, or None; added first, and becomes the sum, rounded to its dtype.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU can.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        ``(output, scales)``: the codes, shape of the input, and float32 (M, 1).

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is no tensor of a known framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> x = np.array([[3.0, 4.0]], np.float16)
        >>> codes, scales = rms_norm_dynamic_per_token_quant(x, np.ones(2, np.float16), 0.0, "float8_e4m3fn")
        >>> codes.astype(float).tolist(), scales.shape
        ([[320.0, 448.0]], (1, 1))
    """
    dispatcher = _token_dispatcher(quant_dtype, enable_pdl, residual is not None, scale_ub is not None)
    return _with_found_scales(dispatcher, input, weight, epsilon, scale_ub, residual, stream)


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
    stream: Any = None,
) -> tuple[Any, Any]:
    """RMSNorm, then FP8 with a scale for each group of a row, under the name that vLLM has.

    Args:
        input: float16, bfloat16 or float32, shape (..., hidden_size), divisible by the group; rows at any stride.
        weight: shape (hidden_size,), the input's dtype or float32.
        epsilon: added to the mean of squares.
        quant_dtype: float8_e4m3fn, a dtype of a framework or its name.
        group_size: ``[1, 128]`` or ``[1, 64]``: rows and columns that share a scale.
        scale_ub: float32 tensor of one element on the input's device that bounds amax; None: no bound.
        residual: like the input, or None; added first, and becomes the sum, rounded to its dtype.
        is_scale_transposed: whether the scales lie column by column.
        has_tma_aligned_scales: whether each of these columns is rounded up to 4 rows, which are zero.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU can.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        ``(output, scales)``: the codes, shape of the input, and float32 (M, hidden_size / group), a transposed view if
        `is_scale_transposed`.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is no tensor of a known framework.
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
        raise ValueError("has_tma_aligned_scales: is True, but the scales lie in rows; pass is_scale_transposed=True")
    if is_scale_transposed and type(input).__module__.startswith("tvm_ffi"):
        raise TypeError("is_scale_transposed: is True, but a tvm_ffi.Tensor has no transposed view; pass False")
    layout = "linear" if not is_scale_transposed else "column4" if has_tma_aligned_scales else "column"
    options = (enable_pdl, residual is not None, scale_ub is not None)
    dispatcher = _group_dispatcher(quant_dtype, int(group_size[1]), layout, *options)
    codes, scales = _with_found_scales(dispatcher, input, weight, epsilon, scale_ub, residual, stream)
    if not is_scale_transposed:
        return codes, scales
    rows = 1
    for extent in input.shape[:-1]:
        rows *= extent
    return codes, scales.T[:rows]


def _with_found_scales(
    dispatcher: Dispatcher, input: Any, weight: Any, eps: float, scale_ub: Any, residual: Any, stream: Any
) -> tuple[Any, Any]:
    added = () if residual is None else (residual,)
    bound = () if scale_ub is None else (scale_ub,)
    made = run(dispatcher, (input, *added, weight, None, None, *bound, *added), (eps,), stream, allocates=True)
    first = 2 + len(added)
    return made[first], made[first + 1]


def _element(quant_dtype: Any, allowed: tuple[str, ...]) -> str:
    """The element format of a dtype: a name, or an object of torch, NumPy, ml_dtypes or JAX."""
    found = getattr(quant_dtype, "name", None) or getattr(quant_dtype, "__name__", None) or str(quant_dtype)
    name = found.removeprefix("torch.")
    if name not in allowed:
        raise ValueError(f"quant_dtype: is {name}; allowed are {', '.join(allowed)}")
    return _ELEMENTS[name]
