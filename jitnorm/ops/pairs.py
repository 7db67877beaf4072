"""Quantization to codes and scales, for the names of other libraries: a QuantizedTensor would take 0.5 us more."""

from __future__ import annotations

from typing import Any

from jitnorm.catalogue.encoding_norms import NORM_QUANTIZE
from jitnorm.catalogue.quantizers import QUANTIZE, SILU_AND_MUL_QUANTIZE
from jitnorm.dispatch import Dispatcher, rounded_dispatcher
from jitnorm.interop.dynamo import replace_in_graphs
from jitnorm.kernels.quant_spec import QuantSpec
from jitnorm.ops.forms import Form, Kind, Known
from jitnorm.ops.general import with_kinds, written_names

_ONE_MATRIX = (False, False, False)


def quantize_pair(
    input: Any, spec: QuantSpec, out: Any = None, out_scale: Any = None, scale: Any = None, scale_ub: Any = None,
    global_scale: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """`jitnorm.quantize` of one matrix: its codes and the scales of its blocks, of its rows, or given ones."""
    made: tuple[Any, Any] = _PLAIN.call(input, out, out_scale, scale, scale_ub, global_scale, None, spec)
    return made


def _plain(
    gives_scale: bool, of_scale: Kind, has_bound: bool, of_global: Kind, spec: QuantSpec
) -> tuple[Dispatcher, Form]:
    whole = with_kinds(spec, of_global, of_scale)
    dispatcher = rounded_dispatcher(QUANTIZE, None, "once", whole, "", has_bound, _ONE_MATRIX, False)
    return dispatcher, _form(whole, gives_scale, "scale scale_ub global_scale")


def norm_quantize_pair(
    input: Any, weight: Any, eps: float, spec: QuantSpec, rounding: str, out: Any = None, out_scale: Any = None,
    scale_ub: Any = None, residual: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """`jitnorm.norm_quantize` with computed scales: the codes and the scales of blocks or rows."""
    made: tuple[Any, Any] = _NORMS.call(
        input, out, out_scale, weight, scale_ub, residual, residual, eps, None, spec, rounding
    )
    return made


def _norm(
    gives_scale: bool, has_weight: bool, has_bound: bool, adds: bool, spec: QuantSpec, rounding: str
) -> tuple[Dispatcher, Form]:
    dispatcher = rounded_dispatcher(
        NORM_QUANTIZE, None, rounding, spec, adds, False, False, False, has_bound, _ONE_MATRIX, has_weight, ""
    )
    return dispatcher, _form(spec, gives_scale, "weight scale_ub residual residual_out eps")


def silu_and_mul_quantize_pair(
    input: Any, spec: QuantSpec, rounding: str, out: Any = None, out_scale: Any = None, scale: Any = None,
    scale_ub: Any = None, global_scale: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """`jitnorm.silu_and_mul_quantize` of one matrix: a pair as of `quantize_pair`."""
    made: tuple[Any, Any] = _GATED.call(input, out, out_scale, scale, scale_ub, global_scale, None, spec, rounding)
    return made


def _gated(
    gives_scale: bool, of_scale: Kind, has_bound: bool, of_global: Kind, spec: QuantSpec, rounding: str
) -> tuple[Dispatcher, Form]:
    whole = with_kinds(spec, of_global, of_scale)
    dispatcher = rounded_dispatcher(
        SILU_AND_MUL_QUANTIZE, None, rounding, whole, -1, "silu", False, has_bound, _ONE_MATRIX
    )
    return dispatcher, _form(whole, gives_scale, "scale scale_ub global_scale")


def _form(spec: QuantSpec, gives_scale: bool, others: str) -> Form:
    written = written_names(spec, gives_scale)
    scale = "block_scale" if spec.has_blocks else "row_scale" if spec.needs_row_amax else "scale"
    return Form(f"input {written} {others}", f"({{{written.partition(' ')[0]}}}, {{{scale}}})")


_PLAIN = Known(_plain, "input out out_scale? scale* scale_ub? global_scale*")
_NORMS = Known(_norm, "input out out_scale? weight? scale_ub? residual? residual_out eps")
_GATED = Known(_gated, "input out out_scale? scale* scale_ub? global_scale*")
replace_in_graphs((quantize_pair, norm_quantize_pair, silu_and_mul_quantize_pair))
