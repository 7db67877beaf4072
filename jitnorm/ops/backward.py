"""The gradients of norms: of the input for each row, of the parameters as sums over all rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jitnorm.catalogue import gradients
from jitnorm.catalogue.op import Op
from jitnorm.dispatch import Dispatcher, dispatcher_of
from jitnorm.interop.form import Step
from jitnorm.kernels.config_rules import FLOAT_DTYPES
from jitnorm.kernels.quant_spec import require_one_of
from jitnorm.ops.forms import Form, Known
from jitnorm.ops.run import Tensor

_SUM = Form("input out", "{out}")
# `gemma` is layer normalization's name of the weight.
_PARAMETERS = "input grad weight gemma mean rstd residual_grad input_grad eps"
# Without a weight, its gradient is None like itself.
_OF_INPUT, _OF_INPUT_AND_BIAS = (
    Form(_PARAMETERS, f"({{input_grad}}, {others})") for others in ("{weight}", "{weight}, {weight}")
)
_OF_INPUT_ALONE = Form(_PARAMETERS, "{input_grad}")
_OF_ALL, _OF_ALL_WITH_BIAS = (
    Form(_PARAMETERS, f"({{input_grad}}, {others})") for others in ("{weight_grad}", "{weight_grad}, {bias_grad}")
)


def sum_rows(
    input: Tensor, dtype: str = "float32", *, out: Tensor | None = None, enable_pdl: bool | None = None,
    stream: Any = None,
) -> Tensor:  # fmt: skip
    """Sum the rows of a float32 matrix along a fixed tree of additions: the same bits on every target.

    Args:
        input: float32, shape (..., columns), 1 to 262144 columns; rows at any stride.
        dtype: the sums' dtype, "float32", "bfloat16" or "float16", to which they are rounded once.
        out: where to write, shape (columns,), of that dtype; None allocates.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        `out`.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> sum_rows(np.array([[1, 2], [3, 4]], np.float32)).tolist()
        [4.0, 6.0]
    """
    made: Tensor = _SUMS.call(input, out, stream, enable_pdl, dtype)
    return made


def rmsnorm_backward(
    grad: Tensor, input: Tensor, weight: Any, eps: float = 1e-06, *, residual_grad: Tensor | None = None,
    input_grad: Tensor | None = None, weight_grad: bool = True, enable_pdl: bool | None = None, stream: Any = None,
) -> tuple[Tensor, Any]:  # fmt: skip
    """Compute the gradients of `rmsnorm`'s input and weight; docs/numerics.md defines every bit.

    With ``rstd = 1 / sqrt(mean(input**2) + eps)``, ``n = input * rstd`` and ``g = grad * weight``, they are ``rstd * (g
    - n * mean(g * n)) + residual_grad`` and the sum over rows of ``grad * n``: the derivatives of the norm.

    With a residual, `input` is the sum that the op stored, and the gradient of the input is that of both summands.

    Args:
        grad: the gradient of the op's output, like the input.
        input: float16, bfloat16 or float32, shape (..., hidden_size), 1 to 262144 elements per row; rows at any stride.
        weight: shape (hidden_size,), the input's dtype or float32; None if the op had none.
        eps: the same as in the op's call.
        residual_grad: a gradient that is added to the input's, such as that of the stored sum; like the input.
        input_grad: where to write the input's, like it; None allocates. It may be `grad` itself.
        weight_grad: whether to compute the gradients of parameters, which takes a second launch.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        the gradients of the input and of the weight, in its dtype; None for the latter without a weight or
        `weight_grad`.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> x, grad = np.array([[3.0, 4.0]], np.float32), np.array([[1.0, 0.0]], np.float32)
        >>> input_grad, weight_grad = rmsnorm_backward(grad, x, np.ones(2, np.float32), eps=0.0)
        >>> [each.astype(float).round(4).tolist() for each in (input_grad, weight_grad)]
        [[[0.181, -0.1358]], [0.8485, 0.0]]
    """
    made: Any = _CALLS.call(
        input, grad, weight, weight, None, None, residual_grad, input_grad, eps, stream,
        gradients.RMSNORM_BACKWARD, enable_pdl, False, getattr(input, "dtype", None),
        getattr(weight, "dtype", None), weight_grad,
    )  # fmt: skip
    return made if weight_grad else (made, None)


def gemma_rmsnorm_backward(
    grad: Tensor, input: Tensor, weight: Any, eps: float = 1e-06, *, residual_grad: Tensor | None = None,
    input_grad: Tensor | None = None, weight_grad: bool = True, enable_pdl: bool | None = None, stream: Any = None,
) -> tuple[Tensor, Any]:  # fmt: skip
    """`rmsnorm_backward` for `gemma_rmsnorm`: the weight, which must be given, is ``weight + 1``.

    Example:
        >>> import numpy as np
        >>> x, grad = np.array([[3.0, 4.0]], np.float32), np.array([[1.0, 0.0]], np.float32)
        >>> input_grad, _ = gemma_rmsnorm_backward(grad, x, np.zeros(2, np.float32), eps=0.0)
        >>> input_grad.astype(float).round(4).tolist()
        [[0.181, -0.1358]]
    """
    made: Any = _CALLS.call(
        input, grad, weight, weight, None, None, residual_grad, input_grad, eps, stream,
        gradients.GEMMA_RMSNORM_BACKWARD, enable_pdl, False, getattr(input, "dtype", None),
        getattr(weight, "dtype", None), weight_grad,
    )  # fmt: skip
    return made if weight_grad else (made, None)


def rmsnorm_bias_backward(
    grad: Tensor, input: Tensor, weight: Any, eps: float = 1e-06, *, residual_grad: Tensor | None = None,
    input_grad: Tensor | None = None, weight_grad: bool = True, enable_pdl: bool | None = None, stream: Any = None,
) -> tuple[Tensor, Any, Any]:  # fmt: skip
    """`rmsnorm_backward` for `rmsnorm_bias`: returns the gradient of the bias, too. The weight must be given.

    Example:
        >>> import numpy as np
        >>> x, grad = np.array([[3.0, 4.0]], np.float32), np.array([[1.0, 0.0]], np.float32)
        >>> rmsnorm_bias_backward(grad, x, np.ones(2, np.float32), eps=0.0)[2].tolist()
        [1.0, 0.0]
    """
    made: Any = _CALLS.call(
        input, grad, weight, weight, None, None, residual_grad, input_grad, eps, stream,
        gradients.RMSNORM_BIAS_BACKWARD, enable_pdl, True, getattr(input, "dtype", None),
        getattr(weight, "dtype", None), weight_grad,
    )  # fmt: skip
    return made if weight_grad else (made, None, None)


def layernorm_backward(
    grad: Tensor, input: Tensor, mean: Tensor, rstd: Tensor, gemma: Any, *, residual_grad: Tensor | None = None,
    input_grad: Tensor | None = None, weight_grad: bool = True, enable_pdl: bool | None = None, stream: Any = None,
) -> tuple[Tensor, Any, Any]:  # fmt: skip
    """Compute the gradients of `layernorm`'s input, `gemma` and `beta`, given the statistics of each row.

    With ``n = (input - mean) * rstd`` and ``g = grad * gemma``, they are ``rstd * ((g - mean(g)) - n * mean(g * n)) +
    residual_grad``, and the sums over rows of ``grad * n`` and of ``grad``: the derivatives of the norm.
    docs/numerics.md defines every bit.

    Args:
        grad: the gradient of the op's output, like the input.
        input: float16, bfloat16 or float32, shape (..., hidden_size), 1 to 262144 elements per row; rows at any stride.
        mean: the mean of each row, float32, as many elements as there are rows, from `layernorm_with_statistics`.
        rstd: the reciprocal of the standard deviation of each row, likewise.
        gemma: the factors, shape (hidden_size,), the input's dtype or float32; None if the op had no parameters.
        residual_grad: a gradient that is added to the input's; like the input.
        input_grad: where to write the input's, like it; None allocates. It may be `grad` itself.
        weight_grad: whether to compute the gradients of parameters, which takes a second launch.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        the gradients of the input, of `gemma` and of `beta`, in the dtypes of `input` and `gemma`; the last two None
        without `gemma` or `weight_grad`.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> from jitnorm import layernorm_with_statistics
        >>> x, grad = np.array([[1.0, 3.0, 5.0]], np.float32), np.array([[1.0, 0.0, 0.0]], np.float32)
        >>> gamma, beta = np.ones(3, np.float32), np.zeros(3, np.float32)
        >>> _, mean, rstd = layernorm_with_statistics(x, gamma, beta, eps=0.0)
        >>> found = layernorm_backward(grad, x, mean, rstd, gamma)
        >>> [each.astype(float).round(4).tolist() for each in found]
        [[[0.1021, -0.2041, 0.1021]], [-1.2247, 0.0, 0.0], [1.0, 0.0, 0.0]]
    """
    made: Any = _CALLS.call(
        input, grad, gemma, gemma, mean, rstd, residual_grad, input_grad, None, stream,
        gradients.LAYERNORM_BACKWARD, enable_pdl, True, getattr(input, "dtype", None),
        getattr(gemma, "dtype", None), weight_grad,
    )  # fmt: skip
    return made if weight_grad else (made, None, None)


def _calls(
    has_weight: bool,
    adds: bool,
    op: Op,
    enable_pdl: bool | None,
    has_bias: bool,
    input: Any,
    weight: Any,
    weight_grad: bool,
) -> tuple[Dispatcher, Form]:
    """The dispatcher of the calls of a gradient, given the dtypes of two tensors; and their form."""
    if not has_weight and not op.weight_optional:
        raise TypeError("weight: is None; expected a tensor")
    dispatcher = dispatcher_of(op, enable_pdl, adds, has_weight, weight_grad)
    if not weight_grad:
        return dispatcher, _OF_INPUT_ALONE
    if not has_weight:
        return dispatcher, _OF_INPUT_AND_BIAS if has_bias else _OF_INPUT
    sums = dispatcher_of(gradients.SUM_ROWS, enable_pdl, _name_of(weight), has_bias, _name_of(input))
    steps = Step(dispatcher), Step(sums, {"input": "partials", "out": "weight_grad", "bias_out": "bias_grad"})
    return dispatcher, replace(_OF_ALL_WITH_BIAS if has_bias else _OF_ALL, steps=steps)


def _name_of(dtype: Any) -> str:
    """The name of a framework's dtype, or any that is allowed if it is not: the first launch then raises an error."""
    name = str(dtype).rpartition(".")[2]
    return name if name in FLOAT_DTYPES else "float32"


def _sums(enable_pdl: bool | None, dtype: str) -> tuple[Dispatcher, Form]:
    require_one_of("dtype", dtype, FLOAT_DTYPES)
    return dispatcher_of(gradients.SUM_ROWS, enable_pdl, dtype, False, ""), _SUM


_CALLS = Known(_calls, "input grad weight? gemma mean rstd residual_grad? input_grad eps")
_SUMS = Known(_sums, "input out")
