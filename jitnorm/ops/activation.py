"""Activations without quantization: of values, and of gates that are multiplied by values."""

from __future__ import annotations

from typing import Any

from jitnorm.catalogue import activations
from jitnorm.catalogue.op import Op
from jitnorm.dispatch import Dispatcher, Dispatchers, RoundingDispatchers, rounded_dispatcher
from jitnorm.kernels.activations import with_numbers
from jitnorm.ops.forms import Form, Known
from jitnorm.ops.run import Tensor

_SILU, _GELU = Dispatchers(activations.SILU), Dispatchers(activations.GELU)
_GELU_TANH, _RELU2 = Dispatchers(activations.GELU_TANH), Dispatchers(activations.RELU2)
_GELU_QUICK = Dispatchers(activations.GELU_QUICK)
_MUL_AND_SILU = RoundingDispatchers(activations.MUL_AND_SILU)
_FORM = Form("input out", "{out}")


def silu_and_mul(
    input: Tensor, out: Tensor | None = None, enable_pdl: bool | None = None, *, granularity: int | None = None,
    rounding: str = "once", stream: Any = None,
) -> Tensor:  # fmt: skip
    """SwiGLU: ``silu(gate) * value`` of an input with both, where ``silu(x)`` is ``x / (1 + e^-x)``.

    All arithmetic is float32 with one rounding at the end, and the exponential is jitnorm's own, so that its bits agree
    on every target; docs/numerics.md defines it. `silu_and_mul_quantize` encodes the result instead of rounding it.
    The formula is that of Shazeer, "GLU Variants Improve Transformer" (2020).

    Args:
        input: float16, bfloat16 or float32, shape (..., 2 * hidden_size), gates and values; rows at any stride.
        out: where to write, of the input's dtype, shape (..., hidden_size); None allocates. It must not overlap the
            input.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        granularity: how many columns of gates alternate with as many columns of values; it divides the hidden size.
            None: all gates come first.
        rounding: ``once`` or ``output``, the same here; or ``hf`` or ``vllm``: as in torch, Transformers and vLLM,
            ``silu(gate)`` is rounded to the input's dtype before it is multiplied by the value.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        `out`.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> silu_and_mul(np.array([[1, 2, 10, 20]], np.float16))
        array([[ 7.312, 35.22 ]], dtype=float16)
    """
    made: Tensor = _GATED.call(input, out, stream, activations.SILU_AND_MUL, enable_pdl, rounding, granularity)
    return made


def gelu_and_mul(
    input: Tensor, out: Tensor | None = None, enable_pdl: bool | None = None, *, granularity: int | None = None,
    rounding: str = "once", stream: Any = None,
) -> Tensor:  # fmt: skip
    """GEGLU: ``gelu(gate) * value``, with `gelu` by erf. Everything else is as in `silu_and_mul`.

    Example:
        >>> import numpy as np
        >>> gelu_and_mul(np.array([[1, 2, 10, 20]], np.float16))
        array([[ 8.414, 39.1  ]], dtype=float16)
    """
    made: Tensor = _GATED.call(input, out, stream, activations.GELU_AND_MUL, enable_pdl, rounding, granularity)
    return made


def gelu_tanh_and_mul(
    input: Tensor, out: Tensor | None = None, enable_pdl: bool | None = None, *, granularity: int | None = None,
    rounding: str = "once", stream: Any = None,
) -> Tensor:  # fmt: skip
    """GEGLU with GELU by tanh, `gelu_tanh`. Everything else is as in `silu_and_mul`.

    Example:
        >>> import numpy as np
        >>> gelu_tanh_and_mul(np.array([[1, 2, 10, 20]], np.float16))
        array([[ 8.414, 39.1  ]], dtype=float16)
    """
    made: Tensor = _GATED.call(input, out, stream, activations.GELU_TANH_AND_MUL, enable_pdl, rounding, granularity)
    return made


def mul_and_silu(
    input: Tensor, out: Tensor | None = None, enable_pdl: bool | None = None, *, rounding: str = "once",
    stream: Any = None,
) -> Tensor:  # fmt: skip
    """SwiGLU with values before gates: ``value * silu(gate)``. Everything else is as in `silu_and_mul`.

    Example:
        >>> import numpy as np
        >>> mul_and_silu(np.array([[10, 20, 1, 2]], np.float16))
        array([[ 7.312, 35.22 ]], dtype=float16)
    """
    return _activated(_MUL_AND_SILU[rounding][enable_pdl], input, out, stream)


def silu_and_mul_with_clamp(
    input: Tensor, limit: float, out: Tensor | None = None, enable_pdl: bool | None = None, *, alpha: float = 1.0,
    beta: float = 0.0, granularity: int | None = None, rounding: str = "once", stream: Any = None,
) -> Tensor:  # fmt: skip
    """Clamped SwiGLU: ``gate / (1 + e^(-alpha gate)) * (value + beta)``, with gates and values limited.

    Gates are at most `limit`; values are clamped to the range from ``-limit`` to ``limit``. Each choice of numbers has
    its own kernel. Everything else is as in `silu_and_mul`.

    Args:
        input: as there.
        limit: a positive number.
        out: as there.
        enable_pdl: as there.
        alpha: from 0.01 to 100.
        beta: what is added to values, any finite number.
        granularity: as there.
        rounding: as there.
        stream: as there.

    Example:
        >>> import numpy as np
        >>> silu_and_mul_with_clamp(np.array([[1, 20, -50, 3]], np.float16), 7.0)
        array([[-5.117, 20.98 ]], dtype=float16)
    """
    made: Tensor = _CLAMPED.call(input, out, stream, enable_pdl, rounding, granularity, limit, alpha, beta)
    return made


def _clamped_calls(
    enable_pdl: bool | None, rounding: str, granularity: int | None, limit: float, alpha: float, beta: float
) -> tuple[Dispatcher, Form]:
    """The dispatcher of the calls of `silu_and_mul_with_clamp` with such options, and their form."""
    activation = with_numbers("swiglu", limit=limit, alpha=alpha, beta=beta)
    op, columns = activations.SILU_AND_MUL_WITH_CLAMP, gate_columns_of(granularity)
    return rounded_dispatcher(op, enable_pdl, rounding, columns, activation), _FORM


_CLAMPED = Known(_clamped_calls, "input out")


def fatrelu_and_mul(
    input: Tensor, threshold: float, out: Tensor | None = None, enable_pdl: bool | None = None, *,
    granularity: int | None = None, rounding: str = "once", stream: Any = None,
) -> Tensor:  # fmt: skip
    """Gates times values, where gates up to a threshold count as 0. Everything else is as in `silu_and_mul`.

    The threshold is any finite number, and each has its own kernel. A NaN stays. The formula is FATReLU of Kurtz et
    al., "Inducing and Exploiting Activation Sparsity for Fast Inference on Deep Neural Networks" (2020).

    Example:
        >>> import numpy as np
        >>> fatrelu_and_mul(np.array([[1, 2, 10, 20]], np.float16), 1.5)
        array([[ 0., 40.]], dtype=float16)
    """
    activation = with_numbers("fatrelu", threshold=threshold)
    op = activations.FATRELU_AND_MUL
    made: Tensor = _GATED.call(input, out, stream, op, enable_pdl, rounding, granularity, activation)
    return made


def swigluoai_and_mul(
    input: Tensor, out: Tensor | None = None, enable_pdl: bool | None = None, *, granularity: int | None = 1,
    alpha: float = 1.702, limit: float = 7.0, stream: Any = None,
) -> Tensor:  # fmt: skip
    """The clamped SwiGLU of gpt-oss: ``gate / (1 + e^(-alpha gate)) * (value + 1)``.

    Gates are at most `limit`; values are clamped to the range from ``-limit`` to ``limit``. Everything else is as in
    `silu_and_mul_with_clamp`, except that `granularity` defaults to 1, so that gates and values alternate, and that
    there is no `rounding`.

    Example:
        >>> import numpy as np
        >>> swigluoai_and_mul(np.array([[1, 0, 10, 20]], np.float16))
        array([[ 0.8457, 56.    ]], dtype=float16)
    """
    activation = "swigluoai"
    if (alpha, limit) != (1.702, 7.0):
        activation = with_numbers("swiglu", limit=limit, alpha=alpha, beta=1.0)
    op = activations.SWIGLUOAI_AND_MUL
    made: Tensor = _GATED.call(input, out, stream, op, enable_pdl, "once", granularity, activation)
    return made


def silu(input: Tensor, out: Tensor | None = None, enable_pdl: bool | None = None, *, stream: Any = None) -> Tensor:
    """SiLU, ``x / (1 + e^-x)``, of every element.

    All arithmetic is float32 with one rounding at the end; docs/numerics.md defines every bit. `quantize` with an
    `activation` encodes the result instead of rounding it. The formula is that of Elfwing, Uchibe and Doya,
    "Sigmoid-Weighted Linear Units for Neural Network Function Approximation in Reinforcement Learning" (2018).

    Args:
        input: float16, bfloat16 or float32, shape (..., hidden_size), 1 to 262144 elements per row; rows at any stride.
        out: where to write, like the input; None allocates. It may be the input itself.
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
        >>> silu(np.array([[-1, 1]], np.float16))
        array([[-0.269,  0.731]], dtype=float16)
    """
    return _activated(_SILU[enable_pdl], input, out, stream)


def gelu(input: Tensor, out: Tensor | None = None, enable_pdl: bool | None = None, *, stream: Any = None) -> Tensor:
    """GELU, ``x / 2 (1 + erf(x / sqrt(2)))``, of every element. Everything else is as in `silu`.

    The formula is that of Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016), as are its approximations
    `gelu_tanh` and `gelu_quick`.

    Example:
        >>> import numpy as np
        >>> gelu(np.array([[-1, 1]], np.float16))
        array([[-0.1587,  0.8413]], dtype=float16)
    """
    return _activated(_GELU[enable_pdl], input, out, stream)


def gelu_tanh(
    input: Tensor, out: Tensor | None = None, enable_pdl: bool | None = None, *, stream: Any = None
) -> Tensor:
    """GELU by tanh, ``x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))``, of every element. The rest is as in `silu`.

    Example:
        >>> import numpy as np
        >>> gelu_tanh(np.array([[-1, 1]], np.float16))
        array([[-0.1588,  0.8413]], dtype=float16)
    """
    return _activated(_GELU_TANH[enable_pdl], input, out, stream)


def relu2(input: Tensor, out: Tensor | None = None, enable_pdl: bool | None = None, *, stream: Any = None) -> Tensor:
    """The square of ReLU, ``max(x, 0)^2``, of every element. Everything else is as in `silu`.

    The formula is that of So and others, "Primer: Searching for Efficient Transformers for Language Modeling" (2021).

    Example:
        >>> import numpy as np
        >>> relu2(np.array([[-2, 3]], np.float16))
        array([[0., 9.]], dtype=float16)
    """
    return _activated(_RELU2[enable_pdl], input, out, stream)


def gelu_quick(
    input: Tensor, out: Tensor | None = None, enable_pdl: bool | None = None, *, stream: Any = None
) -> Tensor:
    """GELU by the sigmoid, ``x / (1 + e^(-1.702 x))``, of every element. Everything else is as in `silu`.

    Example:
        >>> import numpy as np
        >>> gelu_quick(np.array([[-1, 1]], np.float16))
        array([[-0.1542,  0.8457]], dtype=float16)
    """
    return _activated(_GELU_QUICK[enable_pdl], input, out, stream)


def gate_columns_of(granularity: int | None) -> int:
    """The `gate_columns` of KernelConfig for a caller's `granularity`; ValueError unless it is a positive int."""
    if granularity is not None and (type(granularity) is not int or granularity < 1):
        raise ValueError(f"granularity: is {granularity!r}; expected None or a positive int")
    return -1 if granularity is None else granularity


def _gated_calls(
    op: Op, enable_pdl: bool | None, rounding: str, granularity: int | None, *activation: str
) -> tuple[Dispatcher, Form]:
    """The dispatcher of an op's calls with such options, and their form."""
    return rounded_dispatcher(op, enable_pdl, rounding, gate_columns_of(granularity), *activation), _FORM


_GATED = Known(_gated_calls, "input out")


def _activated(dispatcher: Dispatcher, input: Tensor, out: Tensor | None, stream: Any) -> Tensor:
    made: Tensor = dispatcher.calls[_FORM](input, out, stream)
    return made
