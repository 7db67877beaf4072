"""Quantization to codes and scales, for the names of other libraries: a QuantizedTensor would take 0.5 us more."""

from __future__ import annotations

from typing import Any

from jitnorm.catalogue.encoding_norms import NORM_QUANTIZE
from jitnorm.catalogue.quantizers import QUANTIZE, SILU_AND_MUL_QUANTIZE
from jitnorm.dispatch import rounded_dispatcher
from jitnorm.interop.dynamo import replace_in_graphs
from jitnorm.kernels.quant_spec import QuantSpec
from jitnorm.ops.forms import Form, Known
from jitnorm.ops.general import with_kinds, written_names

_PLAIN, _NORMS, _GATED = Known(), Known(), Known()
_ONE_MATRIX = (False, False, False)


def quantize_pair(
    input: Any, spec: QuantSpec, out: Any = None, out_scale: Any = None, scale: Any = None, scale_ub: Any = None,
    global_scale: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """`jitnorm.quantize` of one matrix: its codes and the scales of its blocks, of its rows, or given ones."""
    key = (id(spec), out_scale is None, scale is None, scale_ub is None, global_scale is None)
    calls, form, _ = _PLAIN.get(key) or _plain(key, spec)
    made: tuple[Any, Any] = calls[form](input, out, out_scale, scale, scale_ub, global_scale, None)
    return made


def _plain(key: tuple[Any, ...], spec: QuantSpec) -> Any:
    _, lacks_found, lacks_scale, lacks_bound, lacks_global = key
    whole = with_kinds(spec, not lacks_global, not lacks_scale)
    dispatcher = rounded_dispatcher(QUANTIZE, None, "once", whole, "", not lacks_bound, _ONE_MATRIX, False)
    return _PLAIN.remember(key, spec, dispatcher, _form(whole, not lacks_found, "scale scale_ub global_scale"))


def norm_quantize_pair(
    input: Any, weight: Any, eps: float, spec: QuantSpec, rounding: str, out: Any = None, out_scale: Any = None,
    scale_ub: Any = None, residual: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """`jitnorm.norm_quantize` with computed scales: the codes and the scales of blocks or rows."""
    key = (id(spec), rounding, out_scale is None, weight is None, scale_ub is None, residual is None)
    calls, form, _ = _NORMS.get(key) or _norm(key, spec)
    made: tuple[Any, Any] = calls[form](input, out, out_scale, weight, scale_ub, residual, residual, eps, None)
    return made


def _norm(key: tuple[Any, ...], spec: QuantSpec) -> Any:
    _, rounding, lacks_found, lacks_weight, lacks_bound, lacks_residual = key
    dispatcher = rounded_dispatcher(
        NORM_QUANTIZE, None, rounding, spec, not lacks_residual, False, False, False, not lacks_bound, _ONE_MATRIX,
        not lacks_weight, "",
    )  # fmt: skip
    form = _form(spec, not lacks_found, "weight scale_ub residual residual_out eps")
    return _NORMS.remember(key, spec, dispatcher, form)


def silu_and_mul_quantize_pair(
    input: Any, spec: QuantSpec, rounding: str, out: Any = None, out_scale: Any = None, scale: Any = None,
    scale_ub: Any = None, global_scale: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """`jitnorm.silu_and_mul_quantize` of one matrix: a pair as of `quantize_pair`."""
    key = (id(spec), rounding, out_scale is None, scale is None, scale_ub is None, global_scale is None)
    calls, form, _ = _GATED.get(key) or _gated(key, spec)
    made: tuple[Any, Any] = calls[form](input, out, out_scale, scale, scale_ub, global_scale, None)
    return made


def _gated(key: tuple[Any, ...], spec: QuantSpec) -> Any:
    _, rounding, lacks_found, lacks_scale, lacks_bound, lacks_global = key
    whole = with_kinds(spec, not lacks_global, not lacks_scale)
    dispatcher = rounded_dispatcher(
        SILU_AND_MUL_QUANTIZE, None, rounding, whole, -1, "silu", False, not lacks_bound, _ONE_MATRIX
    )
    return _GATED.remember(key, spec, dispatcher, _form(whole, not lacks_found, "scale scale_ub global_scale"))


def _form(spec: QuantSpec, gives_scale: bool, others: str) -> Form:
    written = written_names(spec, gives_scale)
    scale = "block_scale" if spec.has_blocks else "row_scale" if spec.needs_row_amax else "scale"
    return Form(f"input {written} {others}", f"({{{written.partition(' ')[0]}}}, {{{scale}}})")


replace_in_graphs((quantize_pair, norm_quantize_pair, silu_and_mul_quantize_pair))
