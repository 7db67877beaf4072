"""RMSNorm with gates that multiply the norm or the input, alone and encoded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jitnorm.catalogue.encoding_norms import RMSNORM_GATED_QUANTIZE
from jitnorm.catalogue.norms import RMSNORM_GATED
from jitnorm.dispatch import Dispatcher, rounded_dispatcher
from jitnorm.interop import check_shaped, framework_of
from jitnorm.kernels.quant_spec import QuantSpec
from jitnorm.ops.forms import Form, Kind, Known
from jitnorm.ops.general import encoding_form, with_kinds, with_scales
from jitnorm.ops.run import Tensor
from jitnorm.quantized import QuantizedTensor

_FORM = Form("input gate weight bias out eps", "{out}")


def rmsnorm_gated(
    input: Tensor,
    gate: Any,
    weight: Any,
    eps: float = 1e-06,
    out: Tensor | None = None,
    enable_pdl: bool | None = None,
    *,
    bias: Any = None,
    activation: str = "silu",
    norm_before_gate: bool = True,
    group_size: int | None = None,
    rounding: str = "once",
    stream: Any = None,
) -> Tensor:
    """RMSNorm with gates: ``rmsnorm(input) * silu(gate)``, or ``rmsnorm(input * silu(gate))``.

    The first is that of Gated DeltaNet (Yang, Kautz and Hatamizadeh, 2024; in Qwen3-Next and Kimi Linear), over heads
    in the last dimension; the second that of Mamba 2 (Dao and Gu, 2024), where groups of a row are normalized
    separately. All arithmetic is float32 with, by default, one rounding at the end; docs/numerics.md defines every bit.

    Args:
        input: float16, bfloat16 or float32, shape (..., hidden_size), 1 to 262144 elements per row; rows at any stride.
        gate: like the input, with its own strides.
        weight: shape (hidden_size,), the input's dtype or float32; None for no weight.
        eps: added to the mean of squares.
        out: where to write, like the input; None allocates. It may be the input itself.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        bias: like `weight`, or None; added to the product with the weight.
        activation: activation of the gates: ``"sigmoid"`` or one of those of `quantize`.
        norm_before_gate: whether the gates multiply the norm instead of the input.
        group_size: columns that are normalized together, a divisor of the hidden size; None: all.
        rounding: ``once`` or ``output``, the same here; or ``hf`` or ``vllm``: as in Transformers, ``input /
            sqrt(...)`` is rounded to the input's dtype before it is multiplied by the weight, and so is the norm before
            gates multiply it.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        `out`.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> x, gate = np.array([[3.0, 4.0]], np.float16), np.array([[0.0, 1.0]], np.float16)
        >>> rmsnorm_gated(x, gate, np.ones(2, np.float16), eps=0.0)
        array([[0.   , 0.827]], dtype=float16)
    """
    groups = _groups(input, group_size)
    if groups == 1:  # with the options in a tuple: 0.1 us more
        made: Tensor = _NORM_CALLS.call(
            input, gate, weight, bias, out, eps, stream, enable_pdl, rounding, 1, activation, norm_before_gate
        )
        return made
    parts = _split(input, groups, "input"), _split(gate, groups, "gate")
    options = (enable_pdl, rounding, groups, activation, norm_before_gate)
    of_groups = _NORM_CALLS.call(*parts, weight, bias, _split(out, groups, "out"), eps, stream, *options)
    merged: Tensor = _merged(of_groups, out, groups)
    return merged


def _norm_calls(
    has_weight: bool, has_bias: bool, enable_pdl: bool | None, rounding: str, groups: int, activation: str,
    norm_before_gate: bool,
) -> tuple[Dispatcher, Form]:  # fmt: skip
    """The dispatcher of the calls of `rmsnorm_gated` with such options, and their form."""
    options = (activation, norm_before_gate, has_bias, groups, has_weight)
    return rounded_dispatcher(RMSNORM_GATED, enable_pdl, rounding, *options), _FORM


_NORM_CALLS = Known(_norm_calls, "input gate weight? bias? out eps")


def rmsnorm_gated_quantize(
    input: Any,
    gate: Any,
    weight: Any,
    *,
    spec: QuantSpec,
    bias: Any = None,
    global_scale: Any = None,
    scale: Any = None,
    eps: float = 1e-06,
    activation: str = "silu",
    norm_before_gate: bool = True,
    group_size: int | None = None,
    scale_ub: Any = None,
    enable_pdl: bool | None = None,
    rounding: str = "once",
    out: Any = None,
    out_scale: Any = None,
    stream: Any = None,
) -> QuantizedTensor:
    """`rmsnorm_gated`, then quantization of the unrounded result, in one pass: any QuantSpec.

    Args:
        input: as in `rmsnorm_gated`.
        gate: as in `rmsnorm_gated`.
        weight: as in `rmsnorm_gated`.
        spec: how to encode, such as ``jitnorm.FP8_TENSOR`` or ``jitnorm.NVFP4.with_layout("128x4")``.
        bias: as in `rmsnorm_gated`.
        global_scale: as in `norm_quantize`.
        scale: as in `norm_quantize`.
        eps: added to the mean of squares.
        activation: as in `rmsnorm_gated`.
        norm_before_gate: as in `rmsnorm_gated`.
        group_size: as in `rmsnorm_gated`. With several groups in a row, scales must be those of the tensor, or of
            blocks in the linear layout.
        scale_ub: as in `norm_quantize`.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        rounding: what is rounded to the input's dtype before it is encoded: nothing (``once``); the result
            (``output``), which gives the codes of `rmsnorm_gated` and then `quantize`; or each step (``hf``), as in
            `rmsnorm_gated`.
        out: where to write the codes, as in `norm_quantize`.
        out_scale: where to write the computed scales, as in `norm_quantize`.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        the codes and scales, allocated in the input's framework.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> x = np.ones((2, 64), np.float16)
        >>> q = rmsnorm_gated_quantize(x, x, np.ones(64, np.float16), spec=QuantSpec("e4m3", 32, "ue8m0"))
        >>> q.data.shape, q.scale.shape
        ((2, 64), (2, 2))
    """
    groups = _groups(input, group_size)
    if groups > 1 and not _is_of_groups(with_scales(spec, global_scale, scale)[0]):
        raise ValueError(
            f"group_size: is {group_size}, which needs scales of the tensor, or of blocks in the linear layout, "
            f"not {spec}; pass None, or quantize what rmsnorm_gated returns"
        )
    if groups == 1:
        made: QuantizedTensor = _CALLS.call(
            input, out, out_scale, global_scale, scale, scale_ub, gate, weight, bias, eps, stream, spec, enable_pdl,
            rounding, 1, activation, norm_before_gate,
        )  # fmt: skip
        return made
    options = (spec, enable_pdl, rounding, groups, activation, norm_before_gate)
    parts = _split(input, groups, "input"), _split(out, groups, "out"), out_scale, global_scale, scale, scale_ub
    q: QuantizedTensor = _CALLS.call(*parts, _split(gate, groups, "gate"), weight, bias, eps, stream, *options)
    merged: dict[str, Any] = {"data": _merged(q.data, out, groups), "shape": tuple(input.shape)}
    if q.spec.has_blocks:
        merged["scale"] = _merged(q.scale, out_scale, groups)
    return replace(q, **merged)


def _calls(
    gives_scale: bool, of_global: Kind, of_scale: Kind, has_bound: bool, has_weight: bool, has_bias: bool,
    spec: QuantSpec, enable_pdl: bool | None, rounding: str, groups: int, activation: str, norm_before_gate: bool,
) -> tuple[Dispatcher, Form]:  # fmt: skip
    """The dispatcher of the calls of `rmsnorm_gated_quantize` with such options, and their form."""
    spec = with_kinds(spec, of_global, of_scale)
    options = (activation, norm_before_gate, has_bias, groups, has_weight)
    dispatcher = rounded_dispatcher(RMSNORM_GATED_QUANTIZE, enable_pdl, rounding, spec, has_bound, *options)
    others = "scale_ub gate weight bias eps"
    return dispatcher, encoding_form(spec, dispatcher, others, gives_scale=gives_scale)


_CALLS = Known(_calls, "input out out_scale? global_scale* scale* scale_ub? gate weight? bias? eps")


def _is_of_groups(spec: QuantSpec) -> bool:
    """Whether encoding a row gives the same as encoding its groups one after another."""
    return spec.block_size == "tensor" or (
        spec.has_blocks and spec.scale_layout == "linear" and spec.global_scale != "row"
    )


def _groups(input: Any, group_size: int | None) -> int:
    """How many groups a row has.

    Raises:
        ValueError: the group size does not divide the row.
    """
    if group_size is None:
        return 1
    check_shaped(input, "input")
    columns = input.shape[-1] if len(input.shape) else 0
    if type(group_size) is not int or group_size < 1 or columns % group_size:
        raise ValueError(
            f"group_size: is {group_size!r}; expected None or an int that divides {columns}, the hidden size"
        )
    return max(1, columns // group_size)


def _split(tensor: Any, groups: int, name: str) -> Any:
    """Insert a dimension of groups before the last; a tensor without dimensions is left for the call to reject."""
    if groups == 1 or tensor is None:
        return tensor
    framework = framework_of(tensor, name)
    *leading, columns = tensor.shape
    if columns % groups:
        return tensor
    return framework.reshaped(tensor, (*leading, groups, columns // groups))


def _merged(made: Any, given: Any, groups: int) -> Any:
    """The output that the caller gave, or else the allocated one with its groups merged."""
    if groups == 1:
        return made
    return framework_of(made, "out").merge_last_two(made) if given is None else given
