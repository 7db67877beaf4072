"""Scales that are found from the largest magnitude of a row or tensor: those of FP8, and global ones of NVFP4."""

from __future__ import annotations

from cutlass._mlir.dialects import nvvm
from cutlass.cutlass_dsl import T

from ..numerics import AMAX_PARTS
from ..quant_spec import MAX_CODE
from ..row_schedule import WARP_LANES
from .arguments import Arguments
from .constants import Constants
from .intrinsics import MAX_FLOAT, div_rn, f32, is_equal, is_less, max_magnitude, reciprocal_rn, with_canonical_nan
from .row_reduce import butterfly_max
from .values import UInt, Value, select_value, when
from .vector_access import load_f32, store_f32


def amax_bound(constants: Constants, arguments: Arguments) -> Value | None:
    """The upper bound of an amax, if one is given."""
    return load_f32(arguments.address("scale_ub")) if constants.config.scale_ub else None


def bounded(amax: Value, bound: Value | None) -> Value:
    """amax, but at most the bound; NaN stays, and a bound that is NaN is none."""
    return amax if bound is None else select_value(is_less(bound, amax), bound, amax)


def tensor_amax(arguments: Arguments) -> Value:
    """The largest magnitude of the tensor, of whose parts another launch has found theirs; whole warps call it."""
    lane = UInt(nvvm.read_ptx_sreg_tid_x(T.i32())) % WARP_LANES
    own, amax = arguments.address("amax_parts") + lane.wide() * 4, f32(0.0)
    for first in range(0, AMAX_PARTS, WARP_LANES):
        amax = max_magnitude(amax, load_f32(own + first * 4))
    return butterfly_max(amax, WARP_LANES)


def fp8_scale_of(
    constants: Constants, arguments: Arguments, row: UInt, row_amax: Value | None, is_writer: UInt
) -> Value:
    """The scale of FP8 for the tensor, given or found, or for a row; what is found is stored by the writer."""
    quant = constants.quant
    if quant.block_size == "row":
        scale = fp8_scale_from(constants, bounded(row_amax, amax_bound(constants, arguments)))
        with when(is_writer):
            store_f32(arguments.address("row_scale") + row * 4, scale)
        return scale
    if not quant.needs_tensor_amax:
        return load_f32(arguments.address("scale"))
    amax = tensor_amax(arguments)
    scale = fp8_scale_from(constants, amax)
    with when(is_writer & row.equals(0)):
        store_f32(arguments.address("tensor_scale"), scale)
        store_f32(arguments.address("amax"), amax)
    return scale


def global_scale_of(
    constants: Constants, arguments: Arguments, row: UInt, row_amax: Value | None, is_writer: UInt
) -> Value | None:
    """The global encode scale, None for 1; the inverse of one that is found is stored by the writer."""
    kind = constants.quant.global_scale
    if kind == "none":
        return None
    if kind == "given":
        given = load_f32(arguments.address("global_scale"))
        return reciprocal_rn(given) if constants.config.inverse_global_scale else given
    of_row = kind == "row"
    amax = row_amax if of_row else tensor_amax(arguments)
    scale = _global_scale_from(amax)
    with when(is_writer if of_row else is_writer & row.equals(0)):
        decode = select_value(is_equal(amax, f32(0.0)), f32(0.0), with_canonical_nan(reciprocal_rn(scale)))
        store_f32(arguments.address("row_scale") + row * 4 if of_row else arguments.address("tensor_scale"), decode)
        if not of_row:
            store_f32(arguments.address("amax"), amax)
    return scale


def fp8_scale_from(constants: Constants, amax: Value) -> Value:
    """Amax / (largest code), bounded so that it can be divided by."""
    exact = div_rn(amax, f32(constants.max_code))
    smallest = f32(constants.quant.smallest_scale)
    return with_canonical_nan(select_value(is_less(exact, smallest), smallest, exact))


def _global_scale_from(amax: Value) -> Value:
    """The largest scale times the largest code / amax, finite."""
    limit = f32(MAX_FLOAT)
    exact = div_rn(f32(MAX_CODE["e4m3"] * MAX_CODE["e2m1"]), select_value(is_less(limit, amax), limit, amax))
    return select_value(is_less(limit, exact), limit, exact)
