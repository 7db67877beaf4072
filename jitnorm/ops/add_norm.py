"""Ops with a residual as functions that write no input, for JAX and for torch graphs."""

from __future__ import annotations

from typing import Any

from jitnorm.catalogue.encoding_norms import ADD_NORM_QUANTIZE
from jitnorm.catalogue.norms import ADD_RMSNORM, ADD_RMSNORM_BATCHED, GEMMA_ADD_RMSNORM
from jitnorm.catalogue.op import WITHOUT_WEIGHT
from jitnorm.dispatch import Dispatcher, RoundingDispatchers, rounded_dispatcher
from jitnorm.kernels.quant_spec import QuantSpec
from jitnorm.ops.batched import is_scale_per_matrix, kind_of_batch
from jitnorm.ops.forms import Form, Kind, Known
from jitnorm.ops.general import encoding_form, with_kinds
from jitnorm.ops.run import Tensor

_ADD_RMSNORM, _GEMMA_ADD_RMSNORM = RoundingDispatchers(ADD_RMSNORM), RoundingDispatchers(GEMMA_ADD_RMSNORM)
_UNWEIGHTED_ADD_RMSNORM = RoundingDispatchers(ADD_RMSNORM, **WITHOUT_WEIGHT)
_BATCHED_ADD_RMSNORM = RoundingDispatchers(ADD_RMSNORM_BATCHED)
_FORM = Form("input residual weight out residual_out eps", "({out}, {residual_out})")


def add_rmsnorm(
    input: Tensor,
    residual: Tensor,
    weight: Any,
    eps: float = 1e-06,
    enable_pdl: bool | None = None,
    *,
    out: Tensor | None = None,
    residual_out: Tensor | None = None,
    batched: bool = False,
    rounding: str = "once",
    stream: Any = None,
) -> tuple[Tensor, Tensor]:
    """Add the residual to the input, then RMSNorm of the float32 sum: `fused_add_rmsnorm` without writing an input.

    Args:
        input: float16, bfloat16 or float32, shape (..., hidden_size), 1 to 262144 elements per row; rows at any stride.
        residual: like the input.
        weight: shape (hidden_size,), the input's dtype or float32; None for no weight.
        eps: added to the mean of squares.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        out: where to write the norm, like the input; None allocates. It may be the input itself.
        residual_out: where to write the sum, like the input; None allocates. It may be the residual itself.
        batched: as in `rmsnorm`.
        rounding: as in `fused_add_rmsnorm`.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        ``(out, residual_out)``: the norm, and the sum rounded to the input's dtype.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> x, r = np.array([[1.0, 1.0]], np.float16), np.array([[2.0, 3.0]], np.float16)
        >>> add_rmsnorm(x, r, np.ones(2, np.float16), eps=0.0)
        (array([[0.8486, 1.132 ]], dtype=float16), array([[3., 4.]], dtype=float16))
    """
    dispatchers = _BATCHED_ADD_RMSNORM if batched else _UNWEIGHTED_ADD_RMSNORM if weight is None else _ADD_RMSNORM
    return _add_rmsnorm(dispatchers[rounding][enable_pdl], input, residual, weight, eps, out, residual_out, stream)


def gemma_add_rmsnorm(
    input: Tensor,
    residual: Tensor,
    weight: Any,
    eps: float = 1e-06,
    enable_pdl: bool | None = None,
    *,
    out: Tensor | None = None,
    residual_out: Tensor | None = None,
    rounding: str = "once",
    stream: Any = None,
) -> tuple[Tensor, Tensor]:
    """`add_rmsnorm` for Gemma: the weight, which must be given, is ``weight + 1``.

    Example:
        >>> import numpy as np
        >>> x, r = np.array([[1.0, 1.0]], np.float16), np.array([[2.0, 3.0]], np.float16)
        >>> gemma_add_rmsnorm(x, r, np.zeros(2, np.float16), eps=0.0)[0]
        array([[0.8486, 1.132 ]], dtype=float16)
    """
    dispatcher = _GEMMA_ADD_RMSNORM[rounding][enable_pdl]
    return _add_rmsnorm(dispatcher, input, residual, weight, eps, out, residual_out, stream)


def _add_rmsnorm(
    dispatcher: Dispatcher, input: Any, residual: Any, weight: Any, eps: float, out: Any, residual_out: Any, stream: Any
) -> tuple[Any, Any]:
    made: tuple[Any, Any] = dispatcher.calls[_FORM](input, residual, weight, out, residual_out, eps, stream)
    return made


def add_norm_quantize(
    input: Any,
    residual: Any,
    weight: Any,
    *,
    spec: QuantSpec,
    bias: Any = None,
    global_scale: Any = None,
    scale: Any = None,
    eps: float = 1e-06,
    unit_bias: bool = False,
    activation: str | None = None,
    keep_norm: bool = False,
    batched: bool = False,
    mask: Any = None,
    scale_ub: Any = None,
    enable_pdl: bool | None = None,
    rounding: str = "once",
    stream: Any = None,
) -> tuple[Any, ...]:
    """Add the residual, then `norm_quantize` of the float32 sum: the functional form of all ops with a residual.

    Args:
        input: float16, bfloat16 or float32, shape (..., hidden_size), 1 to 262144 elements per row; rows at any stride.
        residual: like the input.
        weight: shape (hidden_size,), the input's dtype or float32; None for no weight.
        spec: how to encode, such as ``jitnorm.NVFP4.with_layout("128x4")`` or ``jitnorm.MXFP8``.
        bias: as in `norm_quantize`.
        global_scale: as in `norm_quantize`.
        scale: as in `norm_quantize`.
        eps: added to the mean of squares.
        unit_bias: whether 1 is added to the weight, as in Gemma.
        activation: as in `norm_quantize`.
        keep_norm: whether the unencoded result is also returned.
        batched: as in `norm_quantize`.
        mask: as in `norm_quantize`; rows that it excludes are uninitialized in the sum and the norm, too.
        scale_ub: as in `norm_quantize`.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        rounding: as in `norm_quantize`.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        ``(q, residual_out)``: the `QuantizedTensor`, and the sum rounded to the input's dtype; with `keep_norm` also
        the unencoded result, rounded to the input's dtype.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> x, residual, weight = np.ones((2, 64), np.float16), np.ones((2, 64), np.float16), np.ones(64, np.float16)
        >>> q, total = add_norm_quantize(x, residual, weight, spec=QuantSpec("e4m3", 32, "ue8m0"))
        >>> q.data.shape, q.scale.shape, float(total[0, 0]), float(residual[0, 0])
        ((2, 64), (2, 2), 2.0, 1.0)
    """
    per_matrix = batched and is_scale_per_matrix(scale if global_scale is None else global_scale)
    made: tuple[Any, ...] = _CALLS.call(
        input, None, None, global_scale, scale, mask, scale_ub, residual, weight, bias, eps, stream, spec, enable_pdl,
        rounding, batched, per_matrix, unit_bias, keep_norm, activation,
    )  # fmt: skip
    return made


def _calls(
    of_global: Kind, of_scale: Kind, masked: bool, has_bound: bool, has_weight: bool, has_bias: bool, spec: QuantSpec,
    enable_pdl: bool | None, rounding: str, batched: bool, per_matrix: bool, unit_bias: bool, keep_norm: bool,
    activation: str | None,
) -> tuple[Dispatcher, Form]:  # fmt: skip
    """The dispatcher of the calls of `add_norm_quantize` with such options, and their form."""
    spec = with_kinds(spec, of_global, of_scale)
    batch = kind_of_batch(spec, batched, masked, per_matrix)
    dispatcher = rounded_dispatcher(
        ADD_NORM_QUANTIZE, enable_pdl, rounding, spec, unit_bias, has_bias, keep_norm, has_bound, batch, has_weight,
        activation or "",
    )  # fmt: skip
    beside = ("residual_out", "y_out") if keep_norm else ("residual_out",)
    others = "mask scale_ub residual weight bias eps"
    return dispatcher, encoding_form(spec, dispatcher, others, batched=batched, beside=beside)


_CALLS = Known(_calls, "input out out_scale global_scale* scale* mask? scale_ub? residual weight? bias? eps")
