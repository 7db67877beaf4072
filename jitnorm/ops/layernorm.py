"""Layer normalization, on its own and quantized."""

from __future__ import annotations

from typing import Any

from jitnorm.catalogue.encoding_norms import LAYERNORM_QUANTIZE
from jitnorm.catalogue.norms import LAYERNORM, LAYERNORM_WITH_STATISTICS
from jitnorm.catalogue.op import WITHOUT_WEIGHT
from jitnorm.dispatch import Dispatcher, Dispatchers, rounded_dispatcher
from jitnorm.kernels.quant_spec import QuantSpec
from jitnorm.ops.batched import is_scale_per_matrix, kind_of_batch
from jitnorm.ops.forms import Form, Kind, Known
from jitnorm.ops.general import encoding_form, with_kinds
from jitnorm.ops.run import Tensor
from jitnorm.quantized import QuantizedTensor

_LAYERNORM, _UNWEIGHTED_LAYERNORM = Dispatchers(LAYERNORM), Dispatchers(LAYERNORM, **WITHOUT_WEIGHT)
_WITH_STATISTICS = Dispatchers(LAYERNORM_WITH_STATISTICS)
_UNWEIGHTED_WITH_STATISTICS = Dispatchers(LAYERNORM_WITH_STATISTICS, **WITHOUT_WEIGHT)
_NORM = Form("input gemma beta out eps", "{out}")
_NORM_WITH_STATISTICS = Form("input gemma beta out mean rstd eps", "({out}, {mean}, {rstd})")


def layernorm(
    input: Tensor, gemma: Any, beta: Any, eps: float = 1e-06, *, out: Tensor | None = None,
    enable_pdl: bool | None = None, stream: Any = None,
) -> Tensor:  # fmt: skip
    """Layer normalization, row by row: ``(input - mean) / sqrt(variance + eps) * gemma + beta``.

    The variance is the mean of the squared differences from the mean. docs/numerics.md defines every bit.
    The formula is that of Ba, Kiros and Hinton, "Layer Normalization" (2016).

    Args:
        input: float16, bfloat16 or float32, shape (..., hidden_size), 1 to 262144 elements per row; rows at any stride.
        gemma: the factors, shape (hidden_size,), the input's dtype or float32; FlashInfer's name for gamma. None, with
            `beta` None, for no parameters.
        beta: what is added, like `gemma`.
        eps: added to the variance.
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
        >>> layernorm(np.array([[1, 3]], np.float16), np.ones(2, np.float32), np.zeros(2, np.float32), eps=0.0)
        array([[-1.,  1.]], dtype=float16)
    """
    dispatchers = _LAYERNORM if has_parameters(gemma, beta) else _UNWEIGHTED_LAYERNORM
    made: Tensor = dispatchers[enable_pdl].calls[_NORM](input, gemma, beta, out, eps, stream)
    return made


def layernorm_with_statistics(
    input: Tensor, gemma: Any, beta: Any, eps: float = 1e-06, *, out: Tensor | None = None, mean: Tensor | None = None,
    rstd: Tensor | None = None, enable_pdl: bool | None = None, stream: Any = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """`layernorm` that also writes the mean and rstd of each row, for `layernorm_backward`.

    Autograd calls it for `layernorm`. Call it to compute gradients without autograd; it has none of its own.

    Args:
        input: float16, bfloat16 or float32, shape (..., hidden_size), 1 to 262144 elements per row; rows at any stride.
        gemma: as in `layernorm`.
        beta: as in `layernorm`.
        eps: added to the variance.
        out: where to write the norm, like the input; None allocates. It may be the input itself.
        mean: where to write the mean of each row, float32, as many elements as there are rows; None allocates (...).
        rstd: where to write ``1 / sqrt(variance + eps)`` of each row, likewise.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        ``(out, mean, rstd)``.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> x, gamma, beta = np.array([[1, 5]], np.float16), np.ones(2, np.float32), np.zeros(2, np.float32)
        >>> layernorm_with_statistics(x, gamma, beta, eps=0.0)
        (array([[-1.,  1.]], dtype=float16), array([3.], dtype=float32), array([0.5], dtype=float32))
    """
    dispatchers = _WITH_STATISTICS if has_parameters(gemma, beta) else _UNWEIGHTED_WITH_STATISTICS
    made: tuple[Tensor, Tensor, Tensor] = dispatchers[enable_pdl].calls[_NORM_WITH_STATISTICS](
        input, gemma, beta, out, mean, rstd, eps, stream
    )
    return made


def layernorm_quantize(
    input: Any,
    gemma: Any,
    beta: Any,
    *,
    spec: QuantSpec,
    global_scale: Any = None,
    scale: Any = None,
    eps: float = 1e-06,
    y_out: Any = None,
    batched: bool = False,
    mask: Any = None,
    scale_ub: Any = None,
    enable_pdl: bool | None = None,
    rounding: str = "once",
    out: Any = None,
    out_scale: Any = None,
    stream: Any = None,
) -> QuantizedTensor:
    """Layer normalization, then quantization of the unrounded result, in one pass: `norm_quantize` for LayerNorm.

    Args:
        input: as in `layernorm`.
        gemma: as in `layernorm`.
        beta: as in `layernorm`.
        spec: how to encode, such as ``jitnorm.FP8_TENSOR`` or ``jitnorm.NVFP4.with_layout("128x4")``.
        global_scale: as in `norm_quantize`.
        scale: as in `norm_quantize`.
        eps: added to the variance.
        y_out: as in `norm_quantize`.
        batched: as in `norm_quantize`.
        mask: as in `norm_quantize`.
        scale_ub: as in `norm_quantize`.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        rounding: what is rounded to the input's dtype before the norm is encoded: nothing (``once``), or the norm
            (``output``), which gives the codes of `layernorm` and then `quantize`.
        out: as in `norm_quantize`.
        out_scale: as in `norm_quantize`.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        the codes and scales, allocated in the input's framework.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> x, scale = np.array([[1, 3]], np.float16), np.array([0.5], np.float32)
        >>> spec = QuantSpec("e4m3", "tensor", "f32")
        >>> layernorm_quantize(x, None, None, spec=spec, scale=scale, eps=0.0).data.astype(np.float32).tolist()
        [[-2.0, 2.0]]
    """
    per_matrix = batched and is_scale_per_matrix(scale if global_scale is None else global_scale)
    made: QuantizedTensor = _QUANTIZE_CALLS.call(
        input, out, out_scale, global_scale, scale, mask, scale_ub, gemma, beta, y_out, eps, stream, spec, enable_pdl,
        rounding, batched, per_matrix, has_parameters(gemma, beta),
    )  # fmt: skip
    return made


def _quantize_calls(
    gives_scale: bool, of_global: Kind, of_scale: Kind, masked: bool, has_bound: bool, keeps_norm: bool,
    spec: QuantSpec, enable_pdl: bool | None, rounding: str, batched: bool, per_matrix: bool, has_parameters: bool,
) -> tuple[Dispatcher, Form]:  # fmt: skip
    """The dispatcher of the calls of `layernorm_quantize` with such options, and their form."""
    spec = with_kinds(spec, of_global, of_scale)
    batch = kind_of_batch(spec, batched, masked, per_matrix)
    dispatcher = rounded_dispatcher(
        LAYERNORM_QUANTIZE, enable_pdl, rounding, spec, keeps_norm, has_bound, batch, has_parameters
    )
    others = "mask scale_ub gemma beta y_out eps"
    return dispatcher, encoding_form(spec, dispatcher, others, gives_scale=gives_scale, batched=batched)


_QUANTIZE_CALLS = Known(
    _quantize_calls, "input out out_scale? global_scale* scale* mask? scale_ub? gemma beta y_out? eps"
)


def has_parameters(gemma: Any, beta: Any) -> bool:
    """Whether a layer normalization has parameters; ValueError if it is given one of the two alone."""
    if gemma is None and beta is not None:
        raise ValueError("beta: is given, but gemma is None; pass both or neither")
    return gemma is not None
