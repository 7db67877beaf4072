"""Quantization to codes and scales, for other libraries' names: creating a QuantizedTensor would take 0.5 us more."""

from __future__ import annotations

from math import prod
from typing import Any

from jitnorm.catalogue.encoding_norms import ADD_RMSNORM_FP4QUANT, LAYERNORM_QUANTIZE, NORM_QUANTIZE, RMSNORM_FP4QUANT
from jitnorm.catalogue.experts import GROUPED_QUANTIZE, SILU_AND_MUL_GROUPED_QUANTIZE
from jitnorm.catalogue.four_over_six import recipe_of
from jitnorm.catalogue.op import Op
from jitnorm.catalogue.quantizers import FP4_QUANTIZE, NVFP4_QUANTIZE, QUANTIZE, SILU_AND_MUL_QUANTIZE
from jitnorm.dispatch import Dispatcher, dispatcher_of, rounded_dispatcher
from jitnorm.interop import framework_of
from jitnorm.interop.dynamo import replace_in_graphs
from jitnorm.interop.taken import Columns, Tiles
from jitnorm.kernels.quant_spec import QuantSpec
from jitnorm.ops.batched import is_per_matrix, kind_of_batch
from jitnorm.ops.forms import Form, Kind, Known, Shape, converting
from jitnorm.ops.gated import calls_of_nvfp4
from jitnorm.ops.general import scale_name, with_kinds, written_names
from jitnorm.ops.grouped import calls_of_experts
from jitnorm.ops.layernorm import has_parameters
from jitnorm.ops.norm_fp4 import FP4_ARGUMENTS, calls_of_fp4
from jitnorm.ops.norm_fp8 import FP8_ARGUMENTS, calls_of_fp8

_ONE_MATRIX = (False, False, False)


def _as_scale(scale: Any, input: Any) -> Any:
    return scale if isinstance(scale, str) else framework_of(input, "input").as_scale(scale, input)


# Doing this first would take each call 0.2 us.
_GLOBAL = {"global_scale": _as_scale}


def quantize_pair(
    input: Any, spec: QuantSpec, out: Any = None, out_scale: Any = None, scale: Any = None, scale_ub: Any = None,
    global_scale: Any = None, is_column: bool = False,
) -> tuple[Any, Any]:  # fmt: skip
    """`jitnorm.quantize` of one matrix: its codes and the scales of its blocks, of its rows or of it, or given ones.

    With `is_column`, allocated scales of rows are (rows, 1), and column-major ones of torch are transposed: (rows,
    groups). `global_scale` may also be a number, or a tensor of any dtype and device.
    """
    made: tuple[Any, Any] = _PLAIN.call(input, out, out_scale, scale, scale_ub, global_scale, None, spec, is_column)
    return made


def _plain(
    gives_scale: bool, of_scale: Kind, has_bound: bool, of_global: Kind, spec: QuantSpec, is_column: bool
) -> tuple[Dispatcher, Form]:
    whole = with_kinds(spec, of_global, of_scale)
    dispatcher = rounded_dispatcher(QUANTIZE, None, "once", whole, "", has_bound, _ONE_MATRIX, False)
    return dispatcher, _form(whole, gives_scale, "scale scale_ub global_scale", is_column)


def quantize_columns(input: Any, spec: QuantSpec, out: Any, out_scale: Any) -> Any:
    """`jitnorm.quantize` of a matrix, of which `out_scale` has the rows of columns that the layout pads.

    Returns:
        `out_scale`, if it could be written; otherwise the whole columns, which may have been allocated.
    """
    return _COLUMNS.call(input, out, out_scale, None, spec)


def _columns(spec: QuantSpec) -> tuple[Dispatcher, Form]:
    scale = scale_name(spec)
    dispatcher = rounded_dispatcher(QUANTIZE, None, "once", spec, "", False, _ONE_MATRIX, False)
    return dispatcher, Form(f"input {written_names(spec, True)}", f"{{{scale}}}", taken={scale: Columns(scale)})


def norm_quantize_pair(
    input: Any, weight: Any, eps: float, spec: QuantSpec, rounding: str, out: Any = None, out_scale: Any = None,
    scale_ub: Any = None, residual: Any = None, is_column: bool = False,
) -> tuple[Any, Any]:  # fmt: skip
    """`jitnorm.norm_quantize` with computed scales: the codes and the scales of blocks or rows.

    With `is_column`, as `quantize_pair`.
    """
    made: tuple[Any, Any] = _NORMS.call(
        input, out, out_scale, weight, scale_ub, residual, residual, eps, None, spec, rounding, is_column
    )
    return made


def _norm(
    gives_scale: bool, has_weight: bool, has_bound: bool, adds: bool, spec: QuantSpec, rounding: str, is_column: bool
) -> tuple[Dispatcher, Form]:
    dispatcher = rounded_dispatcher(
        NORM_QUANTIZE, None, rounding, spec, adds, False, False, False, has_bound, _ONE_MATRIX, has_weight, ""
    )
    return dispatcher, _form(spec, gives_scale, "weight scale_ub residual residual_out eps", is_column)


def layernorm_quantize_given(
    input: Any, gemma: Any, beta: Any, eps: float, spec: QuantSpec, out: Any, scale: Any
) -> None:
    """`jitnorm.layernorm_quantize`, rounded before, with one given scale, of any kind as in `quantize_pair`."""
    _LAYERNORMS.call(input, gemma, beta, out, scale, eps, None, spec)


def rmsnorm_quant_given(
    op: Op, out: Any, input: Any, residual: Any, weight: Any, scale: Any, eps: float, enable_pdl: bool | None
) -> None:
    """`jitnorm.rmsnorm_quant`, or another such op, with a scale of any kind as in `quantize_pair`.

    Even a true `enable_pdl` means wherever the GPU supports it.
    """
    dtype = getattr(out, "dtype", None)
    hint = None if enable_pdl else enable_pdl
    _FP8_NORMS.call(input, residual, weight, out, scale, residual, eps, None, op, hint, "once", dtype)


def _layernorm(has_gemma: bool, has_beta: bool, of_scale: Kind, spec: QuantSpec) -> tuple[Dispatcher, Form]:
    has_both, whole = has_parameters(has_gemma or None, has_beta or None), with_kinds(spec, False, of_scale)
    dispatcher = rounded_dispatcher(LAYERNORM_QUANTIZE, None, "output", whole, False, False, _ONE_MATRIX, has_both)
    return dispatcher, Form("input gemma beta out scale eps", "None", converted={"scale": _as_scale})


def silu_and_mul_quantize_pair(
    input: Any, spec: QuantSpec, rounding: str, out: Any = None, out_scale: Any = None, scale: Any = None,
    scale_ub: Any = None, global_scale: Any = None, is_column: bool = False,
) -> tuple[Any, Any]:  # fmt: skip
    """`jitnorm.silu_and_mul_quantize` of one matrix: a pair as of `quantize_pair`."""
    made: tuple[Any, Any] = _GATED.call(
        input, out, out_scale, scale, scale_ub, global_scale, None, spec, rounding, is_column
    )
    return made


def _gated(
    gives_scale: bool, of_scale: Kind, has_bound: bool, of_global: Kind, spec: QuantSpec, rounding: str,
    is_column: bool,
) -> tuple[Dispatcher, Form]:  # fmt: skip
    whole = with_kinds(spec, of_global, of_scale)
    dispatcher = rounded_dispatcher(
        SILU_AND_MUL_QUANTIZE, None, rounding, whole, -1, "silu", False, has_bound, _ONE_MATRIX
    )
    return dispatcher, _form(whole, gives_scale, "scale scale_ub global_scale", is_column)


def silu_and_mul_quantize_into(
    input: Any, mask: Any, spec: QuantSpec, rounding: str, activation: str, out: Any, out_scale: Any = None,
    scale: Any = None,
) -> None:  # fmt: skip
    """`jitnorm.silu_and_mul_quantize` of a batch of matrices, of which a mask may count the rows."""
    _MASKED.call(input, out, out_scale, scale, mask, None, spec, rounding, activation)


def _masked(
    gives_scale: bool, scale: Kind, masked: bool, spec: QuantSpec, rounding: str, activation: str
) -> tuple[Dispatcher, Form]:
    whole = with_kinds(spec, False, scale)
    batch = kind_of_batch(whole, True, masked, is_per_matrix(scale))
    dispatcher = rounded_dispatcher(SILU_AND_MUL_QUANTIZE, None, rounding, whole, -1, activation, False, False, batch)
    return dispatcher, Form(f"input {written_names(whole, gives_scale)} scale mask", "None")


def _form(spec: QuantSpec, gives_scale: bool, others: str, is_column: bool = False) -> Form:
    written = written_names(spec, gives_scale)
    views = {"row_scale": _as_column, **({"block_scale": _transposed} if spec.is_column_major else {})}
    return Form(
        f"input {written} {others}",
        f"({{{written.partition(' ')[0]}}}, {{{scale_name(spec)}}})",
        views=views if is_column else {},
    )


def _as_column(scales: Any, _: Any) -> Any:
    return framework_of(scales, "scales").reshaped(scales, (prod(scales.shape), 1))


def _transposed(scales: Any, input: Any) -> Any:
    return scales.t()[: prod(input.shape[:-1])]


def fp4_quantize_pair(
    input: Any, global_scale: Any, block_size: int, is_ue8m0: bool, is_swizzled: bool, is_8x4: bool,
    is_inverse: bool = False, enable_pdl: bool | None = None, backend: str = "cuda", nvfp4_4over6: Any = None,
    is_e4m3: bool = False,
) -> tuple[Any, Any]:  # fmt: skip
    """`jitnorm.fp4_quantize`, with a global scale as of `quantize_pair`; scales are bytes unless `is_e4m3`.

    Even a true `enable_pdl` means wherever the GPU supports it.
    """
    made: tuple[Any, Any] = _FP4.call(
        input, global_scale, None, FP4_QUANTIZE, is_e4m3, enable_pdl, block_size, is_ue8m0, is_swizzled, is_8x4,
        is_inverse, backend, recipe_of(nvfp4_4over6), global_scale is not None,
    )  # fmt: skip
    return made


def nvfp4_quantize_pair(
    a: Any, a_global_sf: Any, sf_layout: Any, block_size: int, enable_pdl: bool | None, backend: str,
    nvfp4_4over6: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """`jitnorm.nvfp4_quantize` without row scales or a shuffle, with arguments as of `fp4_quantize_pair`."""
    kind = "none" if a_global_sf is None else "given"
    made: tuple[Any, Any] = _FP4.call(
        a, a_global_sf, None, NVFP4_QUANTIZE, False, enable_pdl, sf_layout, False, block_size, backend, kind,
        recipe_of(nvfp4_4over6), None,
    )  # fmt: skip
    return made


def _fp4(op: Op, is_e4m3: bool, enable_pdl: bool | None, *options: Any) -> tuple[Dispatcher, Form]:
    views = {"block_scale": _as_e4m3} if is_e4m3 else {}
    form = Form("input global_scale", "({y_fp4}, {block_scale})", views=views)
    return dispatcher_of(op, None if enable_pdl else enable_pdl, *options), form


def _as_e4m3(scales: Any, _: Any) -> Any:
    return framework_of(scales, "scales").with_dtype(scales, "float8_e4m3fn")


def silu_and_mul_nvfp4_quantize_pair(
    input: Any, global_scale: Any, block_size: int, is_swizzled: bool, is_8x4: bool, enable_pdl: bool | None,
    nvfp4_4over6: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """`jitnorm.silu_and_mul_nvfp4_quantize`, rounded before, with a global scale as of `quantize_pair`."""
    made: tuple[Any, Any] = _GATED_NVFP4.call(
        input, global_scale, None, enable_pdl, "output", block_size, is_swizzled, is_8x4, recipe_of(nvfp4_4over6)
    )
    return made


def rmsnorm_fp4quant_pair(
    input: Any, residual: Any, weight: Any, y_fp4: Any, block_scale: Any, block_scale_unswizzled: Any,
    global_scale: Any, y_out: Any, eps: float, enable_pdl: bool | None, block_size: int, scale_format: str | None,
    is_swizzled: bool, both: bool, adds: bool,
) -> Any:  # fmt: skip
    """`jitnorm.rmsnorm_fp4quant`, or `add_rmsnorm_fp4quant`, with a global scale as of `quantize_pair`."""
    op = ADD_RMSNORM_FP4QUANT if adds else RMSNORM_FP4QUANT
    return _FP4_NORMS.call(
        input, residual, weight, y_fp4, block_scale, block_scale_unswizzled, global_scale, residual, y_out, eps, None,
        op, enable_pdl, "once", block_size, scale_format, is_swizzled, both,
    )  # fmt: skip


def experts_quantize_pair(
    input: Any, offsets: Any, scale_offsets: Any, spec: QuantSpec, is_gated: bool, global_scale: Any = None
) -> tuple[Any, Any]:  # fmt: skip
    """`jitnorm.grouped_quantize`, or that of SwiGLU, rounded before: codes, and scales; E2M1 and UE8M0 are bytes."""
    made: tuple[Any, Any] = _EXPERTS.call(input, None, None, global_scale, offsets, scale_offsets, None, spec, is_gated)
    return made


def experts_quantize_into(
    input: Any, offsets: Any, scale_offsets: Any, spec: QuantSpec, is_gated: bool, global_scale: Any, out: Any,
    out_scale: Any,
) -> Any:  # fmt: skip
    """The same with 128x4 scales, which become the first rows of `out_scale`, of any dtype, if it has as many.

    Returns:
        `out_scale`, or else the scales as bytes: the first rows of it, or of a larger matrix that began with it.
    """
    return _EXPERTS.call(input, out, out_scale, global_scale, offsets, scale_offsets, None, spec, is_gated)


def _experts(
    gives_scale: bool, global_scale: Kind, offsets: Shape, has_offsets: bool, spec: QuantSpec, is_gated: bool
) -> tuple[Dispatcher, Form]:
    options: tuple[Any, ...] = GROUPED_QUANTIZE, None, "once", ""
    if is_gated:
        options = SILU_AND_MUL_GROUPED_QUANTIZE, None, "output", "silu", -1
    dispatcher, _ = calls_of_experts(gives_scale, global_scale, False, offsets, has_offsets, False, spec, *options)
    parameters = f"input {written_names(spec, gives_scale)} global_scale offsets scale_offsets"
    if gives_scale:
        tiles = {"block_scale": Tiles("block_scale", 128, (offsets[0] or 1) - 1)}
        return dispatcher, Form(parameters, "{block_scale}", taken=tiles)
    views = {"y_fp4": _as_bytes, **({"block_scale": _as_bytes} if spec.scale_format == "ue8m0" else {})}
    return dispatcher, Form(parameters, "({y_fp4}, {block_scale})", views=views)


def _as_bytes(codes: Any, _: Any) -> Any:
    return framework_of(codes, "codes").with_dtype(codes, "uint8")


_PLAIN = Known(converting(_plain, _GLOBAL), "input out out_scale? scale* scale_ub? global_scale*")
_COLUMNS = Known(_columns, "input out out_scale")
_NORMS = Known(_norm, "input out out_scale? weight? scale_ub? residual? residual_out eps")
_FP8_NORMS = Known(converting(calls_of_fp8, {"scale": _as_scale}), FP8_ARGUMENTS)
_LAYERNORMS = Known(_layernorm, "input gemma? beta? out scale* eps")
_GATED = Known(_gated, "input out out_scale? scale* scale_ub? global_scale*")
_MASKED = Known(_masked, "input out out_scale? scale?@8 mask?")
_FP4 = Known(converting(_fp4, _GLOBAL), "input global_scale")
_GATED_NVFP4 = Known(converting(calls_of_nvfp4, _GLOBAL), "input global_scale?")
_FP4_NORMS = Known(converting(calls_of_fp4, _GLOBAL), FP4_ARGUMENTS)
_EXPERTS = Known(_experts, "input out out_scale? global_scale?@8 offsets@1 scale_offsets?")
replace_in_graphs((quantize_pair, quantize_columns, norm_quantize_pair, layernorm_quantize_given))
replace_in_graphs((silu_and_mul_quantize_pair, experts_quantize_pair, experts_quantize_into, fp4_quantize_pair))
replace_in_graphs((silu_and_mul_quantize_into, silu_and_mul_nvfp4_quantize_pair, rmsnorm_fp4quant_pair))
replace_in_graphs((nvfp4_quantize_pair, rmsnorm_quant_given))
