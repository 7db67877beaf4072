"""RMSNorm with several weights in one launch: the input is read, and its statistic computed, once."""

from __future__ import annotations

from typing import Any

from jitnorm.catalogue.norms import ADD_RMSNORM_MULTI, RMSNORM_MULTI
from jitnorm.catalogue.op import Op
from jitnorm.dispatch import Dispatcher, rounded_dispatcher
from jitnorm.interop import framework_of
from jitnorm.kernels.finish_rules import MAX_WEIGHTS
from jitnorm.ops.forms import Form, Known, Shape, text_of
from jitnorm.ops.run import Tensor


def _of_each_weight(norms: Any, input: Any) -> Any:
    """A view of norms with the leading dimensions of the input."""
    return framework_of(norms, "out").reshaped(norms, (norms.shape[0], *input.shape))


_ARGUMENTS, _VIEWS = "input residual weight out residual_out eps", {"out": _of_each_weight}
_FORM = Form(_ARGUMENTS, "{out}", views=_VIEWS)
_ADDED = Form(_ARGUMENTS, "({out}, {residual_out})", views=_VIEWS)


def rmsnorm_multi(
    input: Tensor, weights: Any, eps: float = 1e-06, out: Tensor | None = None, enable_pdl: bool | None = None, *,
    unit_bias: bool = False, rounding: str = "once", stream: Any = None,
) -> Tensor:  # fmt: skip
    """RMSNorm with each of several weights, in one launch; each result is that of `rmsnorm`.

    This is for layers whose parts run in parallel, each with its own norm, such as the dense and the routed experts of
    Gemma 4.

    Args:
        input: float16, bfloat16 or float32, shape (..., hidden_size), 1 to 262144 elements per row; rows at any stride.
        weights: n weights in one tensor, n from 2 to 4: shape (n, hidden_size), contiguous, the input's dtype or
            float32. Stack them once, when the model is loaded.
        eps: added to the mean of squares.
        out: where to write, shape (n, ..., hidden_size), contiguous, the input's dtype; None allocates.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        unit_bias: whether 1 is added to the weights, as in Gemma.
        rounding: as in `rmsnorm`.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        `out`: the norms with the first weight, the second and so on; ``a, b = rmsnorm_multi(...)`` unpacks them.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> x, weights = np.array([[3.0, 4.0]], np.float16), np.array([[1, 1], [2, 0]], np.float16)
        >>> attention, mlp = rmsnorm_multi(x, weights, eps=0.0)
        >>> mlp
        array([[1.697, 0.   ]], dtype=float16)
    """
    made: Tensor = _CALLS.call(
        input, None, weights, out, None, eps, stream, RMSNORM_MULTI, enable_pdl, rounding, unit_bias
    )
    return made


def add_rmsnorm_multi(
    input: Tensor, residual: Tensor, weights: Any, eps: float = 1e-06, enable_pdl: bool | None = None, *,
    out: Tensor | None = None, residual_out: Tensor | None = None, unit_bias: bool = False, rounding: str = "once",
    stream: Any = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Add the residual to the input, then RMSNorm of the float32 sum with each of several weights: `rmsnorm_multi`.

    Args:
        input: float16, bfloat16 or float32, shape (..., hidden_size), 1 to 262144 elements per row; rows at any stride.
        residual: like the input.
        weights: as in `rmsnorm_multi`.
        eps: added to the mean of squares.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        out: as in `rmsnorm_multi`.
        residual_out: where to write the sum, like the input; None allocates. It may be the residual itself.
        unit_bias: as in `rmsnorm_multi`.
        rounding: as in `fused_add_rmsnorm`.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        ``(out, residual_out)``: the norms, and the sum rounded to the input's dtype.

    Example:
        >>> import numpy as np
        >>> x, r = np.array([[1.0, 1.0]], np.float16), np.array([[2.0, 3.0]], np.float16)
        >>> (a, b), total = add_rmsnorm_multi(x, r, np.array([[1, 1], [2, 0]], np.float16), eps=0.0)
        >>> b, total
        (array([[1.697, 0.   ]], dtype=float16), array([[3., 4.]], dtype=float16))
    """
    made: tuple[Tensor, Tensor] = _CALLS.call(
        input, residual, weights, out, residual_out, eps, stream, ADD_RMSNORM_MULTI, enable_pdl, rounding, unit_bias
    )
    return made


def _calls(weights: Shape, op: Op, enable_pdl: bool | None, rounding: str, unit_bias: bool) -> tuple[Dispatcher, Form]:
    count = weights[0] if len(weights) == 2 else None
    if count is None or not 2 <= count <= MAX_WEIGHTS:
        raise ValueError(
            f"weights: shape is {text_of(weights)}; expected (n, hidden_size) with n of 2 to {MAX_WEIGHTS}"
        )
    form = _FORM if op is RMSNORM_MULTI else _ADDED
    return rounded_dispatcher(op, enable_pdl, rounding, count, unit_bias), form


_CALLS = Known(_calls, "input residual weights@2 out residual_out eps")
