"""Layer normalization of the sum of a residual and a branch, with gates and modulation, as in DiT."""

from __future__ import annotations

from typing import Any

from jitnorm.catalogue.branches import (
    ADAPTIVE_LAYERNORM,
    ADAPTIVE_LAYERNORM_QUANTIZE,
    GATED_ADD_LAYERNORM,
    GATED_ADD_LAYERNORM_QUANTIZE,
)
from jitnorm.catalogue.op import Op
from jitnorm.dispatch import Dispatcher, rounded_dispatcher
from jitnorm.interop.dynamo import replace_in_graphs
from jitnorm.kernels.quant_spec import QuantSpec
from jitnorm.ops.batched import is_scale_per_matrix, kind_of_batch
from jitnorm.ops.forms import Form, Kind, Known, converting
from jitnorm.ops.general import encoding_form, with_kinds
from jitnorm.ops.run import Tensor
from jitnorm.quantized import QuantizedTensor

_GATED = Form(
    "input residual branch_gate gemma beta gate_bias branch_scale out residual_out eps", "({out}, {residual_out})"
)
_ADAPTIVE_FORM = Form(
    "input residual branch_gate modulation_scale modulation_shift gate_bias scale_bias shift_bias branch_scale "
    "out residual_out eps",
    "({out}, {residual_out})",
)


def gated_add_layernorm(
    input: Tensor, residual: Tensor, gate: Any, gemma: Any, beta: Any, eps: float = 1e-06, *,
    gate_bias: Any = None, input_scale: Any = None, out: Tensor | None = None, residual_out: Tensor | None = None,
    enable_pdl: bool | None = None, stream: Any = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Add a gated branch to the residual, then LayerNorm of the float32 sum: ``residual + input * (gate + gate_bias)``.

    Args:
        input: the branch's output, float16, bfloat16 or float32, shape (..., hidden_size), 1 to 262144 elements per
            row; rows at any stride.
        residual: like the input.
        gate: like the input, such as a view of a tensor of all modulations.
        gemma: the factors, shape (hidden_size,), the input's dtype or float32.
        beta: what is added to the norm, like `gemma`.
        eps: added to the variance.
        gate_bias: float32, shape (hidden_size,), added to the gate; None adds nothing.
        input_scale: float32 tensor of one element that the gate is multiplied by, such as the scale of a quantized
            product; None for none.
        out: where to write the norm, like the input; None allocates. It may be the input itself.
        residual_out: where to write the sum, like the input; None allocates. It may be the residual itself.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        ``(out, residual_out)``: the norm, and the sum rounded to the input's dtype.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> x, gate, ones = np.array([[1, 2]], np.float16), np.array([[0, 1]], np.float16), np.ones(2, np.float32)
        >>> gated_add_layernorm(x, x, gate, ones, 0 * ones, eps=0.0)
        (array([[-1.,  1.]], dtype=float16), array([[1., 4.]], dtype=float16))
    """
    made: tuple[Tensor, Tensor] = _GATED_CALLS.call(
        input, residual, gate, gemma, beta, gate_bias, input_scale, out, residual_out, eps, stream, enable_pdl
    )
    return made


def _gated_calls(has_bias: bool, has_scale: bool, enable_pdl: bool | None) -> tuple[Dispatcher, Form]:
    return rounded_dispatcher(GATED_ADD_LAYERNORM, enable_pdl, "once", has_bias, has_scale), _GATED


_GATED_ARGUMENTS = "input residual branch_gate gemma beta gate_bias? branch_scale? out residual_out eps"
_GATED_CALLS = Known(_gated_calls, _GATED_ARGUMENTS)


def gated_add_layernorm_quantize(
    input: Any, residual: Any, gate: Any, gemma: Any, beta: Any, *, spec: QuantSpec, global_scale: Any = None,
    quant_scale: Any = None, eps: float = 1e-06, gate_bias: Any = None, input_scale: Any = None,
    batched: bool = False, rounding: str = "once", out: Any = None, out_scale: Any = None, residual_out: Any = None,
    enable_pdl: bool | None = None, stream: Any = None,
) -> tuple[QuantizedTensor, Any]:  # fmt: skip
    """`gated_add_layernorm` with the norm quantized, in one pass; options are those of `layernorm_quantize`.

    `quant_scale` is the `scale` of that function.

    Returns:
        ``(q, residual_out)``: the codes and scales, and the sum rounded to the input's dtype.

    Example:
        >>> import numpy as np
        >>> x, ones = np.ones((2, 64), np.float16), np.ones(64, np.float32)
        >>> q, total = gated_add_layernorm_quantize(x, x, x, ones, ones, spec=QuantSpec("e4m3", 32, "ue8m0"))
        >>> q.data.shape, q.scale.shape, float(total[0, 0])
        ((2, 64), (2, 2), 2.0)
    """
    per_matrix = batched and is_scale_per_matrix(quant_scale if global_scale is None else global_scale)
    made: tuple[QuantizedTensor, Any] = _CALLS.call(
        input, out, out_scale, global_scale, quant_scale, residual, gate, gemma, beta, None, None, gate_bias, None,
        None, input_scale, residual_out, eps, stream, spec, enable_pdl, rounding, batched, per_matrix,
        GATED_ADD_LAYERNORM_QUANTIZE,
    )  # fmt: skip
    return made


def _calls(
    gives_scale: bool, of_global: Kind, of_scale: Kind, adds: bool, has_gate: bool, has_gate_bias: bool,
    has_scale_bias: bool, has_shift_bias: bool, has_scale: bool, gives_sum: bool, spec: QuantSpec,
    enable_pdl: bool | None, rounding: str, batched: bool, per_matrix: bool, op: Op,
) -> tuple[Dispatcher, Form]:  # fmt: skip
    """The dispatcher of the calls of an op with such options, and their form."""
    spec = with_kinds(spec, of_global, of_scale)
    batch, _, per_matrix = kind_of_batch(spec, batched, False, per_matrix)
    options: tuple[bool, ...] = (has_gate_bias, has_scale)
    if op is ADAPTIVE_LAYERNORM_QUANTIZE:
        options = _of_branch(adds, has_gate, has_scale_bias, has_shift_bias, has_gate_bias, has_scale, gives_sum)
    dispatcher = rounded_dispatcher(op, enable_pdl, rounding, spec, batch, per_matrix, *options)
    others = (
        "residual branch_gate gemma beta modulation_scale modulation_shift gate_bias scale_bias shift_bias "
        "branch_scale residual_out eps"
    )
    return dispatcher, encoding_form(
        spec, dispatcher, others, gives_scale=gives_scale, batched=batched, beside=("residual_out",)
    )


_CALLS = Known(
    _calls,
    "input out out_scale? global_scale* scale* residual? branch_gate? gemma beta modulation_scale modulation_shift "
    "gate_bias? scale_bias? shift_bias? branch_scale? residual_out? eps",
)


def adaptive_layernorm(
    input: Tensor, scale: Any, shift: Any, eps: float = 1e-06, *, residual: Tensor | None = None, gate: Any = None,
    scale_bias: Any = None, shift_bias: Any = None, gate_bias: Any = None, input_scale: Any = None,
    out: Tensor | None = None, residual_out: Tensor | None = None, enable_pdl: bool | None = None, stream: Any = None,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """LayerNorm without parameters, times ``1 + scale``, plus ``shift``, for each token: as in diffusion transformers.

    With a residual, the float32 sum ``residual + input * (gate + gate_bias)`` is normalized, or without a gate
    ``residual + input``. The modulation is adaLN of Peebles and Xie, "Scalable Diffusion Models with Transformers"
    (2022).

    Args:
        input: float16, bfloat16 or float32, shape (..., hidden_size), 1 to 262144 elements per row; rows at any stride.
        scale: like the input, such as a view of a tensor of all modulations.
        shift: like the input.
        eps: added to the variance.
        residual: like the input; None adds nothing.
        gate: like the input, which it multiplies even without a residual; None for none.
        scale_bias: float32, shape (hidden_size,), added to the scale; None adds nothing.
        shift_bias: float32, shape (hidden_size,), added to the shift; None if `scale_bias` is.
        gate_bias: float32, shape (hidden_size,), added to the gate; None adds nothing.
        input_scale: float32 tensor of one element that multiplies the input, or its gate; None for none.
        out: where to write the norm, like the input; None allocates. It may be the input itself.
        residual_out: where to write the sum, like the input, only with a residual; None allocates. It may be the
            residual itself.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        ``(out, residual_out)``: the norm, and the sum rounded to the input's dtype, None without a residual.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> x, scale = np.array([[1, 3]], np.float16), np.array([[1, 0]], np.float16)
        >>> adaptive_layernorm(x, scale, np.ones((1, 2), np.float16), eps=0.0)[0]
        array([[-1.,  2.]], dtype=float16)
    """
    made: tuple[Tensor, Tensor | None] = _ADAPTIVE.call(
        input, residual, gate, scale, shift, gate_bias, scale_bias, shift_bias, input_scale, out, residual_out, eps,
        stream, enable_pdl,
    )  # fmt: skip
    return made


def _adaptive_calls(
    adds: bool, has_gate: bool, has_gate_bias: bool, has_scale_bias: bool, has_shift_bias: bool, has_scale: bool,
    gives_sum: bool, enable_pdl: bool | None,
) -> tuple[Dispatcher, Form]:  # fmt: skip
    """The dispatcher of the calls of `adaptive_layernorm` with such options, and their form."""
    options = _of_branch(adds, has_gate, has_scale_bias, has_shift_bias, has_gate_bias, has_scale, gives_sum)
    return rounded_dispatcher(ADAPTIVE_LAYERNORM, enable_pdl, "once", *options), _ADAPTIVE_FORM


_ADAPTIVE_ARGUMENTS = (
    "input residual? branch_gate? modulation_scale modulation_shift gate_bias? scale_bias? shift_bias? branch_scale? "
    "out residual_out? eps"
)
_ADAPTIVE = Known(_adaptive_calls, _ADAPTIVE_ARGUMENTS)


def gated_add_layernorm_reshaped(
    input: Any, residual: Any, gate: Any, gemma: Any, beta: Any, eps: float, gate_bias: Any, input_scale: Any,
    out: Any, residual_out: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """`gated_add_layernorm` of torch's tensors, with a gate of any shape of as many elements."""
    made: tuple[Any, Any] = _GATED_RESHAPED.call(
        input, residual, gate, gemma, beta, gate_bias, input_scale, out, residual_out, eps, None, None
    )
    return made


def adaptive_layernorm_reshaped(
    input: Any, scale: Any, shift: Any, eps: float, residual: Any, gate: Any, scale_bias: Any, shift_bias: Any,
    gate_bias: Any, input_scale: Any, out: Any, residual_out: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """`adaptive_layernorm` of torch's tensors, with a gate and modulation of any shape of as many elements."""
    made: tuple[Any, Any] = _ADAPTIVE_RESHAPED.call(
        input, residual, gate, scale, shift, gate_bias, scale_bias, shift_bias, input_scale, out, residual_out, eps,
        None, None,
    )  # fmt: skip
    return made


def _reshaped(tensor: Any, input: Any) -> Any:
    return tensor.reshape(input.shape)


# Comparing shapes first would take 0.2 us each.
_RESHAPED = dict.fromkeys(("branch_gate", "modulation_scale", "modulation_shift"), _reshaped)
_GATED_RESHAPED = Known(converting(_gated_calls, {"branch_gate": _reshaped}), _GATED_ARGUMENTS)
_ADAPTIVE_RESHAPED = Known(converting(_adaptive_calls, _RESHAPED), _ADAPTIVE_ARGUMENTS)
replace_in_graphs((gated_add_layernorm_reshaped, adaptive_layernorm_reshaped))


def adaptive_layernorm_quantize(
    input: Any, scale: Any, shift: Any, *, spec: QuantSpec, global_scale: Any = None, quant_scale: Any = None,
    eps: float = 1e-06, residual: Any = None, gate: Any = None, scale_bias: Any = None, shift_bias: Any = None,
    gate_bias: Any = None, input_scale: Any = None, batched: bool = False, rounding: str = "once", out: Any = None,
    out_scale: Any = None, residual_out: Any = None, enable_pdl: bool | None = None, stream: Any = None,
) -> tuple[QuantizedTensor, Any]:  # fmt: skip
    """`adaptive_layernorm` with the norm quantized, in one pass; options are those of `layernorm_quantize`.

    `quant_scale` is the `scale` of that function.

    Returns:
        ``(q, residual_out)``: the codes and scales, and the sum rounded to the input's dtype, None without a residual.

    Example:
        >>> import numpy as np
        >>> x = np.ones((2, 64), np.float16)
        >>> q, total = adaptive_layernorm_quantize(x, x, x, spec=QuantSpec("e4m3", 32, "ue8m0"))
        >>> q.data.shape, q.scale.shape, total
        ((2, 64), (2, 2), None)
    """
    per_matrix = batched and is_scale_per_matrix(quant_scale if global_scale is None else global_scale)
    made: tuple[QuantizedTensor, Any] = _CALLS.call(
        input, out, out_scale, global_scale, quant_scale, residual, gate, None, None, scale, shift, gate_bias,
        scale_bias, shift_bias, input_scale, residual_out, eps, stream, spec, enable_pdl, rounding, batched,
        per_matrix, ADAPTIVE_LAYERNORM_QUANTIZE,
    )  # fmt: skip
    return made


def _of_branch(
    adds: bool, has_gate: bool, has_scale_bias: bool, has_shift_bias: bool, has_gate_bias: bool, has_scale: bool,
    gives_sum: bool,
) -> tuple[bool, bool, bool, bool, bool]:  # fmt: skip
    """The options that say which tensors are given; ValueError if one is missing its counterpart."""
    if has_scale_bias != has_shift_bias:
        name, other = ("scale_bias", "shift_bias") if has_scale_bias else ("shift_bias", "scale_bias")
        raise ValueError(f"{name}: is given, but {other} is None; pass both or neither")
    if has_gate_bias and not has_gate:
        raise ValueError("gate_bias: is given, but gate is None; pass both, or no gate_bias")
    if gives_sum and not adds:
        raise ValueError("residual_out: is given, but residual is None; pass both or neither")
    return adds, has_gate, has_scale_bias, has_gate_bias, has_scale
