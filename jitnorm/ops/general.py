"""The general form of quantization, over QuantSpec: every combination, also those that have no name of their own."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from jitnorm.catalogue.encoding_norms import NORM_QUANTIZE
from jitnorm.catalogue.quantizers import QUANTIZE
from jitnorm.dispatch import rounded_dispatcher
from jitnorm.interop import check_shaped
from jitnorm.kernels.quant_spec import QuantSpec, require_one_of
from jitnorm.ops.batched import batch_of
from jitnorm.ops.run import run, run_with_amax
from jitnorm.quantized import QuantizedTensor, assembled, introduce

# The outputs of all encodings; a call has some of them.
NO_OUTPUTS: dict[str, Any] = dict.fromkeys(
    ("out", "y_fp4", "block_scale", "block_scale_unswizzled", "row_scale", "tensor_scale", "amax")
)


def norm_quantize(
    input: Any,
    weight: Any,
    *,
    spec: QuantSpec,
    residual: Any = None,
    bias: Any = None,
    global_scale: Any = None,
    scale: Any = None,
    eps: float = 1e-06,
    unit_bias: bool = False,
    activation: str | None = None,
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
    """RMSNorm, or its activation, then quantization of the unrounded result, in one pass: any input, any QuantSpec.

    A scale that is found for the whole tensor takes two passes, two launches without a synchronization with the host.

    Args:
        input: float16, bfloat16 or float32, shape (..., hidden_size); rows at any stride.
        weight: shape (hidden_size,), the input's dtype or float32; None multiplies by nothing.
        spec: how to encode, such as ``jitnorm.NVFP4.with_layout("128x4")`` or ``jitnorm.MXFP8``; blocks of 128 x 128,
            ``jitnorm.FP8_BLOCK``, are for `quantize` alone unless their scales are given.
        residual: like the input, or None; added first, and becomes the sum, rounded to its dtype.
        bias: like `weight`, or None; added to the product with the weight.
        global_scale: ``"row"`` for one that is found for each row, ``"tensor"`` for one that is found for the tensor; a
            float32 tensor of one element, the encode scale; None for none. Only with block scales in e4m3.
        scale: float32 divisors that are given, none of which is found then, for FP8 and INT8 with float32 scales: if
            `spec.block_size` is ``tensor``, one element, or ``"tensor"`` for one that is found; else one for each row,
            (..., 1), for each column, (hidden_size,), for each group of a row, (..., groups), or for each block of R
            rows and C columns, (ceil(M / R), hidden_size / C). Any shape of as many elements will do.
        eps: added to the mean of squares.
        unit_bias: whether 1 is added to the weight, as Gemma does.
        activation: what the norm goes through before it is encoded: ``"silu"``, ``"gelu"`` (by erf), ``"gelu_tanh"`` or
            ``"relu2"``; None: nothing.
        y_out: where to write what is encoded itself, too, rounded to the input's dtype; None: nowhere.
        batched: whether the first dimension of the input, (B, ..., hidden_size), counts matrices: the scales of each
            are padded for itself, its swizzled ones of shape (B, ...), and `global_scale` and `scale` may also have the
            shape (B,), one for each.
        mask: int32, shape (B,), only if `batched`: how many rows of each matrix there are; nothing is written for the
            others, also not to the padding, and what is allocated stays uninitialised there. None: all.
        scale_ub: float32 tensor of one element that bounds the amax of each FP8 or INT8 scale of a row or group; None:
            no bound.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU can.
        rounding: what is rounded to the input's dtype before the norm is encoded: nothing (``once``); the norm
            (``output``), which gives the codes of `rmsnorm` and then `quantize`; each step (``hf``), as in
            Transformers: the sum with the residual, its product with the reciprocal root mean square, and the product
            with the weight; or the products alone (``vllm``), as in vLLM's fused kernels. Norms with `unit_bias` round
            no product but the last. With an `activation`, ``output`` rounds that, the others the norm, too.
        out: where to write the codes, as `QuantizedTensor.data` would have them; rows at any stride. None: allocated.
        out_scale: where to write the scales that are found, as `QuantizedTensor.scale` would have them; None:
            allocated.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        the codes and scales, allocated in the input's framework.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is no tensor of a known framework.

    Example:
        >>> import numpy as np
        >>> x, mxfp8 = np.ones((2, 64), np.float16), QuantSpec("e4m3", 32, "ue8m0")
        >>> q = norm_quantize(x, np.ones(64, np.float16), spec=mxfp8)
        >>> q.data.dtype.name, q.scale.shape
        ('float8_e4m3fn', (2, 2))
    """
    spec, given, scale = with_scales(spec, global_scale, scale)
    batch = batch_of(spec, batched, mask, scale if given is None else given)
    dispatcher = rounded_dispatcher(
        NORM_QUANTIZE, enable_pdl, rounding, spec, residual is not None, unit_bias, bias is not None, y_out is not None,
        scale_ub is not None, batch, weight is not None, activation or "",
    )  # fmt: skip
    tensors = {
        **outputs_of(spec, out, out_scale), "input": input, "mask": mask, "residual": residual, "weight": weight,
        "bias": bias, "global_scale": given, "scale": scale, "scale_ub": scale_ub, "residual_out": residual,
        "y_out": y_out, "eps": eps,
    }  # fmt: skip
    return quantized(spec, run_with_amax(dispatcher, tensors, stream), tuple(input.shape), batched)


def quantize(
    input: Any,
    *,
    spec: QuantSpec,
    activation: str | None = None,
    rounding: str = "once",
    global_scale: Any = None,
    scale: Any = None,
    batched: bool = False,
    mask: Any = None,
    input_rows: Any = None,
    scale_ub: Any = None,
    enable_pdl: bool | None = None,
    out: Any = None,
    out_scale: Any = None,
    stream: Any = None,
) -> QuantizedTensor:
    """Quantization alone: any input, float8_e4m3fn too, and any QuantSpec. The arguments are those of `norm_quantize`.

    With an `activation`, ``"silu"``, ``"gelu"`` (by erf), ``"gelu_tanh"``, ``"relu2"``, ``"swish:ALPHA"`` or
    ``"fatrelu:THRESHOLD"``, with numbers as in `silu_and_mul_quantize`, that of the input is quantized, unrounded or,
    with a `rounding` of ``"output"``, rounded to the input's dtype first. Without one and with a tensor for
    `global_scale`, a float8_e4m3fn input is an FP8 tensor of the scale ``6 / global_scale``, as in `fp4_quantize`.

    With `input_rows`, int32 of shape (N,) on the device of the input, row i of the result is that of row
    ``input_rows[i]`` of the input, (M, hidden_size): rows are gathered as they are read. For a number below 0 or from M
    on nothing is written, and what is allocated stays uninitialised there. This goes with neither `batched` nor a scale
    that is found for the tensor.

    ``jitnorm.FP8_BLOCK`` is for weights: a matrix (N, K) of any size, or with `batched` several (B, N, K), gets a scale
    for each block of 128 x 128, shape (ceil(N / 128), ceil(K / 128)), or (B, ...). It takes neither `mask` nor
    `scale_ub`.

    Example:
        >>> import numpy as np
        >>> q = quantize(np.ones((2, 64), np.float16), spec=QuantSpec("e2m1", 16, "e4m3"), global_scale="row")
        >>> q.data.shape, q.row_scale.shape
        ((2, 32), (2,))
        >>> quantize(np.ones((300, 256), np.float16), spec=QuantSpec("e4m3", "128x128", "f32")).scale.shape
        (3, 2)
    """
    spec, given, scale = with_scales(spec, global_scale, scale)
    batch = batch_of(spec, batched, mask, scale if given is None else given)
    gathers = input_rows is not None
    dispatcher = rounded_dispatcher(
        QUANTIZE, enable_pdl, rounding, spec, activation or "", scale_ub is not None, batch, gathers
    )
    tensors = {
        **outputs_of(spec, out, out_scale), "input": input, "mask": mask, "global_scale": given, "scale": scale,
        "scale_ub": scale_ub,
    }  # fmt: skip
    if gathers:
        tensors["input_rows"] = as_column(input_rows)
        made = run(dispatcher, tensors, stream)
        return quantized(spec, made, (input_rows.shape[0], input.shape[-1]))
    return quantized(spec, run_with_amax(dispatcher, tensors, stream), tuple(input.shape), batched)


def as_column(input_rows: Any) -> Any:
    """Numbers of rows, (N,), as a tensor of rows, (N, 1).

    Raises:
        ValueError: they have another shape.
        TypeError: they are no tensor of a known framework.
    """
    framework = check_shaped(input_rows, "input_rows")
    shape = tuple(input_rows.shape)
    if len(shape) != 1:
        raise ValueError(f"input_rows: shape is {shape}, expected (N,)")
    return framework.permuted(input_rows, (shape[0], 1), (0, 1))


def with_scales(spec: QuantSpec, global_scale: Any, scale: Any) -> tuple[QuantSpec, Any, Any]:
    """The spec with the kind of global scale that is asked for, then the two scales that are given, or None.

    Raises:
        ValueError: one of them is not what the encoding has.
    """
    if scale is None and global_scale is None and not spec.has_given_scales:
        return spec, None, None
    if isinstance(scale, str):
        return _with_found_scale(spec, scale), None, None
    if isinstance(global_scale, str):
        spec, global_scale = _with_global(spec, global_scale), None
    elif global_scale is not None:
        if spec.scale_format == "f32":
            raise ValueError(f"global_scale: is given, but {spec} has none; pass scale")
        spec = _with_global(spec, "given")
    is_one = spec.needs_given_scale and spec.block_size == "tensor"
    if scale is not None and not is_one:
        if not spec.may_be_given:
            raise ValueError("scale: is given, but the other options leave no use for it; pass None")
        spec = _with_global(spec, "given")
    if scale is None and spec.has_given_scales:
        raise ValueError(f"scale: is None, but the scales of {spec} are given; pass them")
    return spec, global_scale, scale


def outputs_of(spec: QuantSpec, out: Any, out_scale: Any) -> dict[str, Any]:
    """The outputs of an encoding, those that the caller gives among them.

    Raises:
        ValueError: `out_scale` is given, and no scale is found.
    """
    if out is None and out_scale is None:
        return NO_OUTPUTS
    outputs = NO_OUTPUTS.copy()
    outputs["y_fp4" if spec.element == "e2m1" else "out"] = out
    if out_scale is not None:
        outputs[_found_scale(spec)] = out_scale
    return outputs


def _found_scale(spec: QuantSpec) -> str:
    if spec.has_blocks:
        return "block_scale"
    if spec.needs_row_amax:
        return "row_scale"
    if spec.global_scale == "tensor":
        return "tensor_scale"
    raise ValueError(f"out_scale: is given, but {spec} has no scale that is found; pass None")


@cache
def _with_found_scale(spec: QuantSpec, scale: str) -> QuantSpec:
    require_one_of("scale", scale, ("tensor",))
    if spec.block_size != "tensor":
        raise ValueError(f"scale: is 'tensor', but the scales of {spec} belong to blocks or rows; pass None")
    return _with_global(spec, scale)


# A new spec is checked: 20 us.
@cache
def _with_global(spec: QuantSpec, global_scale: str) -> QuantSpec:
    return replace(spec, global_scale=global_scale)


def quantized(
    spec: QuantSpec, made: dict[str, Any], shape: tuple[int, ...], batched: bool = False, axis: int = -1
) -> QuantizedTensor:
    """A call's tensors, by their names, as one."""
    data = made["y_fp4" if spec.element == "e2m1" else "out"]
    introduce(data)
    row_scale, tensor_scale, amax = made.get("row_scale"), made.get("tensor_scale"), made.get("amax")
    if spec.has_blocks:
        return assembled(
            data, made["block_scale"], made.get("global_scale"), row_scale, made.get("block_scale_unswizzled"), spec,
            shape, batched, tensor_scale, amax, axis,
        )  # fmt: skip
    scale = made.get("scale")
    if scale is None:
        scale = tensor_scale if row_scale is None else row_scale
    return assembled(data, scale, None, None, None, spec, shape, batched, None, amax, axis)
