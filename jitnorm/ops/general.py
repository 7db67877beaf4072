"""The general form of quantization, for any QuantSpec: every combination, including those without their own name."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from jitnorm.catalogue.encoding_norms import NORM_QUANTIZE
from jitnorm.catalogue.quantizers import QUANTIZE
from jitnorm.dispatch import Dispatcher, rounded_dispatcher
from jitnorm.interop import check_shaped
from jitnorm.interop.record import Record
from jitnorm.kernels.quant_spec import CODE_BITS, QuantSpec, require_one_of
from jitnorm.ops.batched import is_scale_per_matrix, kind_of_batch
from jitnorm.ops.forms import Form, Kind, Known
from jitnorm.quantized import TENSORS, QuantizedTensor, assembled


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
    """RMSNorm, optionally an activation, then quantization of the unrounded result, in one pass: any QuantSpec.

    Computing a scale for the whole tensor takes two passes: two launches, without host synchronization.

    Args:
        input: float16, bfloat16 or float32, shape (..., hidden_size), 1 to 262144 elements per row; rows at any stride.
        weight: shape (hidden_size,), the input's dtype or float32; None for no weight.
        spec: how to encode, such as ``jitnorm.NVFP4.with_layout("128x4")`` or ``jitnorm.MXFP8``; blocks of 128 x 128,
            ``jitnorm.FP8_BLOCK``, are only for `quantize`, unless their scales are given.
        residual: like the input, or None; added first, and becomes the sum, rounded to its dtype.
        bias: like `weight`, which must then be given; added to the product with it. None for none.
        global_scale: ``"row"`` for one computed for each row, ``"tensor"`` for one computed for the tensor; a float32
            tensor of one element, the encode scale; None for none. Only with block scales in e4m3.
        scale: given float32 divisors, for FP8 and INT8 with float32 scales: if `spec.block_size` is ``tensor``, one
            element, or ``"tensor"`` to compute it; otherwise one per row, (..., 1), per column, (hidden_size,), per
            group of a row, (..., groups), or per block of R rows and C columns, (ceil(M / R), hidden_size / C). Any
            shape with as many elements is accepted.
        eps: added to the mean of squares.
        unit_bias: whether 1 is added to the weight, as in Gemma.
        activation: applied to the norm before it is encoded, one of those of `quantize`; None for none.
        y_out: where to also write the unencoded result, rounded to the input's dtype; None: nowhere.
        batched: whether the first dimension of the input, (B, ..., hidden_size), counts matrices: the scales of each
            are padded separately, swizzled ones have the shape (B, ...), and `global_scale` and `scale` may also have
            the shape (B,), one per matrix.
        mask: int32, shape (B,), only if `batched`: how many rows each matrix has; nothing is written for the other rows
            or the padding rows, which stay uninitialized in allocated outputs. None: all rows.
        scale_ub: float32 tensor of one element that limits the amax of each row or group with an FP8 or INT8 scale;
            None for no limit.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        rounding: what is rounded to the input's dtype before the norm is encoded: nothing (``once``); the norm
            (``output``), which gives the codes of `rmsnorm` followed by `quantize`; each step (``hf``), as in
            Transformers: the sum with the residual, its product with the reciprocal root mean square, and the product
            with the weight; or only the products (``vllm``), as in vLLM's fused kernels. Norms with `unit_bias` round
            only the last product. With an `activation`, ``output`` rounds only its result; ``hf`` and ``vllm`` also
            round the norm.
        out: where to write the codes, in the form of `QuantizedTensor.data`; rows at any stride. None allocates.
        out_scale: where to write the computed scales, in the form of `QuantizedTensor.scale`; None allocates.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        the codes and scales, allocated in the input's framework.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> x, mxfp8 = np.ones((2, 64), np.float16), QuantSpec("e4m3", 32, "ue8m0")
        >>> q = norm_quantize(x, np.ones(64, np.float16), spec=mxfp8)
        >>> q.data.dtype.name, q.scale.shape
        ('float8_e4m3fn', (2, 2))
    """
    per_matrix = batched and is_scale_per_matrix(scale if global_scale is None else global_scale)
    made: QuantizedTensor = _NORM_CALLS.call(
        input, out, out_scale, global_scale, scale, mask, scale_ub, residual, weight, bias, residual, y_out, eps,
        stream, spec, enable_pdl, rounding, batched, per_matrix, unit_bias, activation,
    )  # fmt: skip
    return made


def _norm_calls(
    gives_scale: bool, of_global: Kind, of_scale: Kind, masked: bool, has_bound: bool, adds: bool, has_weight: bool,
    has_bias: bool, keeps_norm: bool, spec: QuantSpec, enable_pdl: bool | None, rounding: str, batched: bool,
    per_matrix: bool, unit_bias: bool, activation: str | None,
) -> tuple[Dispatcher, Form]:  # fmt: skip
    """The dispatcher of the calls of `norm_quantize` with such options, and their form."""
    spec = with_kinds(spec, of_global, of_scale)
    batch = kind_of_batch(spec, batched, masked, per_matrix)
    dispatcher = rounded_dispatcher(
        NORM_QUANTIZE, enable_pdl, rounding, spec, adds, unit_bias, has_bias, keeps_norm, has_bound, batch, has_weight,
        activation or "",
    )  # fmt: skip
    others = "mask scale_ub residual weight bias residual_out y_out eps"
    return dispatcher, encoding_form(spec, dispatcher, others, gives_scale=gives_scale, batched=batched)


_NORM_CALLS = Known(
    _norm_calls,
    "input out out_scale? global_scale* scale* mask? scale_ub? residual? weight? bias? residual_out y_out? eps",
)


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
    """Quantization alone, of any input, even float8_e4m3fn, for any QuantSpec. Arguments are as in `norm_quantize`.

    With an `activation`, ``"silu"``, ``"gelu"`` (by erf), ``"gelu_tanh"``, ``"relu2"``, ``"swish:ALPHA"`` or
    ``"fatrelu:THRESHOLD"``, with numbers as in `silu_and_mul_quantize`, the activated input is quantized, unrounded or,
    with a `rounding` of ``"output"``, rounded to the input's dtype first. Without an activation and with a tensor for
    `global_scale`, a float8_e4m3fn input is treated as an FP8 tensor with the scale ``6 / global_scale``, as in
    `fp4_quantize`.

    With `input_rows`, int32 of shape (N,) on the device of the input, row i of the result is that of row
    ``input_rows[i]`` of the input, (M, hidden_size): rows are gathered as they are read. For an index that is negative
    or at least M, nothing is written, and allocated outputs stay uninitialized there. This cannot be combined with
    `batched` or a scale computed for the tensor.

    ``jitnorm.FP8_BLOCK`` is for weights: a matrix (N, K) of any size, or with `batched` several (B, N, K), gets a scale
    for each block of 128 x 128, of shape (ceil(N / 128), ceil(K / 128)), or (B, ...). It supports neither `mask` nor
    `scale_ub`.

    Example:
        >>> import numpy as np
        >>> q = quantize(np.ones((2, 64), np.float16), spec=QuantSpec("e2m1", 16, "e4m3"), global_scale="row")
        >>> q.data.shape, q.row_scale.shape
        ((2, 32), (2,))
        >>> quantize(np.ones((300, 256), np.float16), spec=QuantSpec("e4m3", "128x128", "f32")).scale.shape
        (3, 2)
    """
    per_matrix = batched and is_scale_per_matrix(scale if global_scale is None else global_scale)
    rows = None if input_rows is None else as_column(input_rows)
    made: QuantizedTensor = _QUANTIZE_CALLS.call(
        input, out, out_scale, global_scale, scale, mask, scale_ub, rows, stream, spec, enable_pdl, rounding, batched,
        per_matrix, activation,
    )  # fmt: skip
    return made


def _quantize_calls(
    gives_scale: bool, of_global: Kind, of_scale: Kind, masked: bool, has_bound: bool, gathers: bool, spec: QuantSpec,
    enable_pdl: bool | None, rounding: str, batched: bool, per_matrix: bool, activation: str | None,
) -> tuple[Dispatcher, Form]:  # fmt: skip
    """The dispatcher of the calls of `quantize` with such options, and their form."""
    spec = with_kinds(spec, of_global, of_scale)
    batch = kind_of_batch(spec, batched, masked, per_matrix)
    dispatcher = rounded_dispatcher(QUANTIZE, enable_pdl, rounding, spec, activation or "", has_bound, batch, gathers)
    others = "mask scale_ub input_rows"
    return dispatcher, encoding_form(spec, dispatcher, others, gives_scale=gives_scale, batched=batched)


_QUANTIZE_CALLS = Known(_quantize_calls, "input out out_scale? global_scale* scale* mask? scale_ub? input_rows?")


def with_kinds(spec: QuantSpec, of_global: Kind, of_scale: Kind) -> QuantSpec:
    """The spec with the requested kind of global scale, as `with_scales` finds it."""
    return with_scales(spec, None if of_global is False else of_global, None if of_scale is False else of_scale)[0]


def encoding_form(
    spec: QuantSpec, dispatcher: Dispatcher, others: str, *, gives_scale: bool = False, batched: bool = False,
    beside: tuple[str, ...] = (),
) -> Form:  # fmt: skip
    """The form of calls that return a QuantizedTensor.

    Args:
        spec: how they encode.
        dispatcher: what makes them.
        others: the names of the arguments after the input, its codes and computed scales, and the two given scales.
        gives_scale: whether a call has an output for the computed scales.
        batched: as in `quantize`.
        beside: the names of outputs that are returned after the QuantizedTensor.

    Raises:
        ValueError: a call has an output for scales, but none are computed.
    """
    written = written_names(spec, gives_scale)
    record = record_of(spec, dispatcher, _codes_name(spec), 8 // CODE_BITS[spec.element], batched=batched)
    result = f"({{record}}, {', '.join(f'{{{name}}}' for name in beside)})" if beside else "{record}"
    return Form(f"input {written} global_scale scale {others}", result, record)


def record_of(
    spec: QuantSpec, dispatcher: Dispatcher, shaped: str, values: int = 1, *, batched: bool = False, axis: int = -1
) -> Record:
    """The QuantizedTensor that a dispatcher's calls return; arguments are those of `Record`, and its attributes."""
    tensors = {attribute: name for attribute, name in _names_of(spec).items() if name in dispatcher.names}
    constants = {**dict.fromkeys(TENSORS), "spec": spec, "batched": batched, "axis": axis}
    return Record(QuantizedTensor, tensors, constants, shaped, values, assembled)


def written_names(spec: QuantSpec, gives_scale: bool) -> str:
    """The names of the codes and of the computed scales; the latter stands for nothing unless a call gives it.

    Raises:
        ValueError: it is given, but no scale is computed.
    """
    scale = scale_name(spec) if gives_scale else "out_scale"
    if scale == "scale":
        raise ValueError(f"out_scale: is given, but {spec} has no computed scale; pass None")
    return f"{_codes_name(spec)} {scale}"


def _codes_name(spec: QuantSpec) -> str:
    return "y_fp4" if spec.element == "e2m1" else "out"


def scale_name(spec: QuantSpec) -> str:
    """The name of an encoding's scales: ``scale`` if they are given, else that of the output."""
    if spec.has_blocks:
        return "block_scale"
    if spec.needs_row_amax:
        return "row_scale"
    return "tensor_scale" if spec.needs_tensor_amax else "scale"


def _names_of(spec: QuantSpec) -> dict[str, str]:
    """The arguments and outputs that a QuantizedTensor has, by its attributes; calls lack some of them."""
    names = {"data": _codes_name(spec), "scale": scale_name(spec), "amax": "amax"}
    if spec.has_blocks:
        names["scale_unswizzled"] = "block_scale_unswizzled"
        names.update((each, each) for each in ("global_scale", "row_scale", "tensor_scale"))
    return names


def as_column(input_rows: Any) -> Any:
    """View row indices, (N,), as a tensor of rows, (N, 1).

    Raises:
        ValueError: they have another shape.
        TypeError: they are not a tensor of a supported framework.
    """
    framework = check_shaped(input_rows, "input_rows")
    shape = tuple(input_rows.shape)
    if len(shape) != 1:
        raise ValueError(f"input_rows: shape is {shape}, expected (N,)")
    return framework.reshaped(input_rows, (shape[0], 1))


def with_scales(spec: QuantSpec, global_scale: Any, scale: Any) -> tuple[QuantSpec, Any, Any]:
    """The spec with the requested kind of global scale, then the two given scales, or None.

    Raises:
        ValueError: one of them does not fit the encoding.
        TypeError: the spec is not a QuantSpec.
    """
    if not isinstance(spec, QuantSpec):
        raise TypeError(f"spec: is {spec!r}; expected a QuantSpec, such as jitnorm.NVFP4")
    if scale is None and global_scale is None and not spec.has_given_scales:
        return spec, None, None
    if isinstance(scale, str):
        return _with_found_scale(spec, scale), None, None
    if isinstance(global_scale, str):
        if global_scale not in ("row", "tensor"):
            raise ValueError(f"global_scale: is {global_scale!r}; expected 'row', 'tensor', a float32 tensor or None")
        spec, global_scale = _with_global(spec, global_scale), None
    elif global_scale is not None:
        if spec.scale_format != "e4m3":
            instead = "scale" if spec.scale_format == "f32" else "None"
            raise ValueError(f"global_scale: is given, but {spec} has none; pass {instead}")
        spec = _with_global(spec, "given")
    is_one = spec.needs_given_scale and spec.block_size == "tensor"
    if scale is not None and not is_one:
        if not spec.may_be_given:
            raise ValueError("scale: is given, but the other options leave no use for it; pass None")
        spec = _with_global(spec, "given")
    if scale is None and spec.has_given_scales:
        raise ValueError(f"scale: is None, but the scales of {spec} are given; pass them")
    return spec, global_scale, scale


@cache
def _with_found_scale(spec: QuantSpec, scale: str) -> QuantSpec:
    require_one_of("scale", scale, ("tensor",))
    if spec.block_size != "tensor":
        raise ValueError(f"scale: is 'tensor', but the scales of {spec} belong to blocks or rows; pass None")
    return _with_global(spec, scale)


# Cached, because constructing a spec validates it, which takes 20 us.
@cache
def _with_global(spec: QuantSpec, global_scale: str) -> QuantSpec:
    return replace(spec, global_scale=global_scale)


def quantized(spec: QuantSpec, made: dict[str, Any], shape: tuple[int, ...]) -> QuantizedTensor:
    """Combine a call's tensors, by name, into one QuantizedTensor."""
    tensors = {attribute: made.get(name) for attribute, name in _names_of(spec).items()}
    return assembled({**dict.fromkeys(TENSORS), **tensors, "spec": spec, "shape": shape, "batched": False, "axis": -1})
