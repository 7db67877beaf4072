"""Sandwich norms: a layer's output is normalized, added to the residual, and the sum normalized for the next layer."""

from __future__ import annotations

from typing import Any

from jitnorm.catalogue.encoding_norms import SANDWICH_NORM_QUANTIZE
from jitnorm.catalogue.norms import SANDWICH_RMSNORM
from jitnorm.dispatch import Dispatcher, rounded_dispatcher
from jitnorm.kernels.quant_spec import QuantSpec
from jitnorm.ops.forms import Form, Kind, Known
from jitnorm.ops.general import encoding_form, with_kinds
from jitnorm.ops.run import Tensor

_FORM = Form("input residual input_weight weight out residual_out eps", "({out}, {residual_out})")


def sandwich_rmsnorm(
    input: Tensor,
    residual: Tensor,
    input_weight: Any,
    weight: Any,
    eps: float = 1e-06,
    enable_pdl: bool | None = None,
    *,
    unit_bias: bool = False,
    out: Tensor | None = None,
    residual_out: Tensor | None = None,
    rounding: str = "once",
    stream: Any = None,
) -> tuple[Tensor, Tensor]:
    """RMSNorm of the input, plus the residual, then RMSNorm of that sum, in one launch.

    As between the layers of Gemma 2 and 3 (with `unit_bias`), which have norms before and after attention and MLP:
    ``sum = residual + rmsnorm(input) * input_weight``, ``out = rmsnorm(sum) * weight``. docs/numerics.md defines every
    bit.

    Args:
        input: float16, bfloat16 or float32, shape (..., hidden_size), 1 to 262144 elements per row; rows at any stride.
        residual: like the input.
        input_weight: weight for the norm of the input, shape (hidden_size,), the input's dtype or float32.
        weight: weight for the norm of the sum, like `input_weight`.
        eps: added to the mean of squares, of both norms.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        unit_bias: whether 1 is added to both weights, as in Gemma.
        out: where to write the norm, like the input; None allocates. It may be the input itself.
        residual_out: where to write the sum, like the input; None allocates. It may be the residual itself.
        rounding: ``once``: only the stored sum and the result are rounded; ``hf``: as in Transformers, each step is
            rounded to the input's dtype, including the norm of the input and the sum; ``vllm``: the same, but the
            unrounded sum is normalized.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        ``(out, residual_out)``: the norm of the sum, and the sum rounded to the input's dtype.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> x, r, ones = np.array([[3.0, 3.0]], np.float16), np.array([[2.0, 3.0]], np.float16), np.ones(2, np.float16)
        >>> sandwich_rmsnorm(x, r, ones, ones, eps=0.0)
        (array([[0.8486, 1.132 ]], dtype=float16), array([[3., 4.]], dtype=float16))
    """
    made: tuple[Tensor, Tensor] = _NORM_CALLS.call(
        input, residual, input_weight, weight, out, residual_out, eps, stream, enable_pdl, rounding, unit_bias
    )
    return made


def _norm_calls(enable_pdl: bool | None, rounding: str, unit_bias: bool) -> tuple[Dispatcher, Form]:
    """The dispatcher of the calls of `sandwich_rmsnorm` with such options, and their form."""
    return rounded_dispatcher(SANDWICH_RMSNORM, enable_pdl, rounding, unit_bias), _FORM


_NORM_CALLS = Known(_norm_calls, "input residual input_weight weight out residual_out eps")


def sandwich_norm_quantize(
    input: Any,
    residual: Any,
    input_weight: Any,
    weight: Any,
    *,
    spec: QuantSpec,
    global_scale: Any = None,
    scale: Any = None,
    eps: float = 1e-06,
    unit_bias: bool = False,
    keep_norm: bool = False,
    scale_ub: Any = None,
    enable_pdl: bool | None = None,
    rounding: str = "once",
    stream: Any = None,
) -> tuple[Any, ...]:
    """`sandwich_rmsnorm`, then quantization of the unrounded norm of the sum, in one pass: any QuantSpec.

    Args:
        input: as in `sandwich_rmsnorm`.
        residual: as in `sandwich_rmsnorm`.
        input_weight: as in `sandwich_rmsnorm`.
        weight: as in `sandwich_rmsnorm`.
        spec: how to encode, such as ``jitnorm.NVFP4.with_layout("128x4")`` or ``jitnorm.MXFP8``.
        global_scale: as in `norm_quantize`.
        scale: as in `norm_quantize`.
        eps: added to the mean of squares, of both norms.
        unit_bias: whether 1 is added to both weights, as in Gemma.
        keep_norm: whether the norm of the sum is also returned unencoded.
        scale_ub: as in `norm_quantize`.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        rounding: as in `sandwich_rmsnorm`; ``output`` rounds the norm of the sum before it is encoded.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        ``(q, residual_out)``: the `QuantizedTensor`, and the sum rounded to the input's dtype; with `keep_norm` also
        the norm, rounded to the input's dtype.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> x, ones = np.ones((2, 64), np.float16), np.ones(64, np.float16)
        >>> q, total = sandwich_norm_quantize(x, x, ones, ones, spec=QuantSpec("e4m3", 32, "ue8m0"))
        >>> q.data.shape, q.scale.shape, float(total[0, 0])
        ((2, 64), (2, 2), 2.0)
    """
    made: tuple[Any, ...] = _CALLS.call(
        input, None, None, global_scale, scale, scale_ub, residual, input_weight, weight, eps, stream, spec,
        enable_pdl, rounding, unit_bias, keep_norm,
    )  # fmt: skip
    return made


def _calls(
    of_global: Kind, of_scale: Kind, has_bound: bool, spec: QuantSpec, enable_pdl: bool | None, rounding: str,
    unit_bias: bool, keep_norm: bool,
) -> tuple[Dispatcher, Form]:  # fmt: skip
    """The dispatcher of the calls of `sandwich_norm_quantize` with such options, and their form."""
    spec = with_kinds(spec, of_global, of_scale)
    dispatcher = rounded_dispatcher(SANDWICH_NORM_QUANTIZE, enable_pdl, rounding, spec, unit_bias, keep_norm, has_bound)
    beside = ("residual_out", "y_out") if keep_norm else ("residual_out",)
    return dispatcher, encoding_form(spec, dispatcher, "scale_ub residual input_weight weight eps", beside=beside)


_CALLS = Known(_calls, "input out out_scale global_scale* scale* scale_ub? residual input_weight weight eps")
