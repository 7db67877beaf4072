"""Activations, plain and as gates: SiLU, GELU, the square of ReLU, the clamped SwiGLU of gpt-oss."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from jitnorm.reference.checks import as_float32, require_member
from jitnorm.reference.elements import Rounding, round_to
from jitnorm.reference.float32 import ONE, canonical, fma
from jitnorm.reference.sigmoid import F32, normal_tail, rest_of_square, sigmoid_of_product

# Values below these, or beyond them in magnitude, are clamped: only the sign would be left of their activations.
_GELU_LIMIT = np.float32(12.75)
_GELU_TANH_LIMIT = np.float32(9.96875)
_SWIGLUOAI_LEAST = np.float32(-51)
_SWIGLUOAI_LIMIT = np.float32(7)
# sqrt(8 / pi) / ln 2, that times 0.044715, and 1.702 (as a float32) / ln 2, each in two parts. The first of the first
# is a multiple of 2^-20: its difference from the factor below is exact.
_LINEAR, _LINEAR_LOW = np.float32(float.fromhex("0x1.26aecp+1")), np.float32(float.fromhex("0x1.0de73ap-22"))
_CUBIC, _CUBIC_LOW = np.float32(float.fromhex("0x1.a5a7dp-4")), np.float32(float.fromhex("-0x1.151aaep-29"))
_ALPHA, _ALPHA_LOW = np.float32(float.fromhex("0x1.3a4cbep+1")), np.float32(float.fromhex("0x1.7c622ep-28"))


@np.errstate(all="ignore")
def silu_f32(x: NDArray[Any]) -> F32:
    """Return ``x / (1 + exp(-x))`` by float32 operations only, which have the same bits on every target.

    Below -125 ln 2, x counts as that.

    Args:
        x: float32 (float16, bfloat16 and E4M3 are widened), any shape.

    Returns:
        float32 in the shape of x, a few ulp off from that bound on; a NaN for a NaN.

    Raises:
        TypeError: x has another dtype.

    Example:
        >>> silu_f32(np.array([0, 1], np.float32)).tolist()
        [0.0, 0.7310585379600525]
    """
    return swish_f32(x, 1.0)


@np.errstate(all="ignore")
def gelu_f32(x: NDArray[Any]) -> F32:
    """Return x times the probability that a standard normal variable is below it, ``x / 2 (1 + erf(x / sqrt(2)))``.

    With a = |x|, it is ``max(x, 0) - a tail(a)``, where a counts as at most 12.75. Arguments, result and errors are
    those of `silu_f32`.

    Example:
        >>> gelu_f32(np.array([0, 1], np.float32)).tolist()
        [0.0, 0.8413447737693787]
    """
    x = as_float32(x, "x")
    a = _at_most(np.abs(x), _GELU_LIMIT)
    return canonical(fma(-a, normal_tail(a), np.where(x < 0, np.float32(-0.0), x)))


@np.errstate(all="ignore")
def gelu_tanh_f32(x: NDArray[Any]) -> F32:
    """Return GELU by tanh, ``x / 2 (1 + tanh u)`` with ``u = sqrt(2 / pi) (x + 0.044715 x^3)``, as ``x / (1 + e^-2u)``.

    Below -9.96875, x counts as -9.96875. Arguments, result and errors are those of `silu_f32`.

    Example:
        >>> gelu_tanh_f32(np.array([0, 1], np.float32)).tolist()
        [0.0, 0.8411920070648193]
    """
    bounded = np.maximum(as_float32(x, "x"), -_GELU_TANH_LIMIT)
    t = _at_most(bounded, _GELU_TANH_LIMIT)
    square = t * t
    factor = fma(square, _CUBIC, _LINEAR)
    low = fma(rest_of_square(t, square), _CUBIC, fma(square, _CUBIC, _LINEAR - factor))
    low = fma(square, _CUBIC_LOW, low) + _LINEAR_LOW
    return canonical(bounded * sigmoid_of_product(t, factor, low))


@np.errstate(all="ignore")
def relu2_f32(x: NDArray[Any]) -> F32:
    """Return ``max(x, 0)^2``. Arguments, result and errors are those of `silu_f32`.

    Example:
        >>> relu2_f32(np.array([-2, 3], np.float32)).tolist()
        [0.0, 9.0]
    """
    positive = np.maximum(as_float32(x, "x"), np.float32(0))
    return canonical(positive * positive)


@np.errstate(all="ignore")
def swish_f32(x: NDArray[Any], alpha: float) -> F32:
    """Return ``x / (1 + exp(-alpha x))``, which is SiLU if alpha is 1.

    Below ``-125 ln 2 / alpha``, x counts as that. Arguments, result and errors are those of `silu_f32`.

    Args:
        x: as there.
        alpha: from 0.01 to 100, rounded to float32.

    Example:
        >>> swish_f32(np.array([0, 1], np.float32), 1.702).tolist()
        [0.0, 0.845795750617981]
    """
    x = as_float32(x, "x")
    high, low, bound = swish_constants(alpha)
    bounded = np.maximum(x, -bound)
    return canonical(bounded * sigmoid_of_product(_at_most(bounded, bound), high, low))


def swish_constants(alpha: float) -> tuple[F32, F32, F32]:
    """Return ``alpha / ln 2`` in two parts, and the magnitude up to which x counts.

    Example:
        >>> swish_constants(1.0)[2].item()
        86.64340209960938
    """
    with localcontext(Context(prec=60)):
        exponent = Decimal(float(np.float32(alpha))) / Decimal(2).ln()
        high = np.array(float(exponent), np.float32)
        low = np.array(float(exponent - Decimal(float(high))), np.float32)
    return high, low, np.array(125 / float(high), np.float32)


def fatrelu_f32(x: NDArray[Any], threshold: float) -> F32:
    """Return x where it is above a threshold, rounded to float32, and 0 elsewhere; a NaN stays.

    Example:
        >>> fatrelu_f32(np.array([1, 2, 3], np.float32), 2).tolist()
        [0.0, 0.0, 3.0]
    """
    x = as_float32(x, "x")
    return canonical(np.where(x <= np.float32(threshold), np.float32(0), x))


_ACTIVATIONS: dict[str, Callable[[NDArray[Any]], F32]] = {
    "silu": silu_f32, "gelu": gelu_f32, "gelu_tanh": gelu_tanh_f32, "relu2": relu2_f32,
}  # fmt: skip


def activated_f32(x: NDArray[Any], activation: str) -> F32:
    """Return an activation of x: ``silu``, ``gelu``, ``gelu_tanh``, ``relu2``, ``swish:ALPHA``, ``fatrelu:THRESHOLD``.

    See the functions of these names.

    Raises:
        ValueError: there is no such activation.

    Example:
        >>> activated_f32(np.array([-2, 3], np.float32), "relu2").tolist()
        [0.0, 9.0]
    """
    name, _, number = activation.partition(":")
    if name in ("swish", "fatrelu"):
        return swish_f32(x, float(number)) if name == "swish" else fatrelu_f32(x, float(number))
    if activation not in _ACTIVATIONS:
        raise ValueError(f"activation is {activation!r}; allowed are {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[activation](x)


@np.errstate(all="ignore")
def gated_f32(
    x: NDArray[Any],
    activation: str,
    granularity: int | None = None,
    *,
    rounding: Rounding = "once",
    values_first: bool = False,
) -> F32:
    """Return gated values of gates and ups, which alternate in runs of `granularity` columns, gates first.

    They are ``activation(gate) * up``, for ``swigluoai`` ``gate / (1 + exp(-1.702 gate)) * (up + 1)``, as in gpt-oss,
    with the gate clamped to -51 to 7 and the up to -7 to 7. For ``swiglu:LIMIT:ALPHA:BETA`` they are
    `swish_f32` of a gate of at most the limit, times the sum of an up, clamped to the limit in magnitude, and beta,
    which is not added if it is 0.

    Args:
        x: (M, 2H) float32 (float16, bfloat16 and E4M3 are widened).
        activation: of gates: one of `activated_f32`'s, ``swigluoai`` or ``swiglu:LIMIT:ALPHA:BETA``.
        granularity: Columns of a run; it divides H. None is H: all gates, then all ups.
        rounding: What is rounded to the dtype of x: nothing ("once"), the product ("output"), or the activation, too
            ("hf").
        values_first: Whether ups come before gates.

    Returns:
        (M, H) float32, by default not rounded to the dtype of x.

    Raises:
        TypeError: x has another dtype.
        ValueError: x is not 2-D or has an odd number of columns, granularity does not divide H, or there is no such
            activation or rounding.

    Example:
        >>> x = np.array([[1, 2, 10, 20]], np.float32)
        >>> (gated_f32(x, "gelu") == gelu_f32(x[:, :2]) * x[:, 2:]).all().item()
        True
        >>> (gated_f32(x, "gelu", granularity=1) == gelu_f32(x[:, 0::2]) * x[:, 1::2]).all().item()
        True
    """

    def rounded(values: F32, *, is_needed: bool) -> F32:
        return round_to(values, dtype).astype(np.float32) if is_needed else values

    require_member(rounding, get_args(Rounding)[:3], "rounding")
    dtype = x.dtype
    x = as_float32(x, "x", ndim=2)
    rows, columns = x.shape
    if columns % 2:
        raise ValueError(f"x has rows of {columns} elements; their number must be even, with a gate for each up")
    if granularity is None:
        granularity = max(columns // 2, 1)
    if granularity < 1 or columns // 2 % granularity:
        raise ValueError(f"granularity is {granularity}; it must divide {columns // 2}, half of the columns of x")
    runs = x.reshape(rows, columns // (2 * granularity), 2, granularity)
    gate, up = (runs[:, :, half] for half in ((1, 0) if values_first else (0, 1)))
    activated, factor = _of_gates(gate, up, activation)
    h = rounded(activated, is_needed=rounding == "hf") * factor
    return canonical(rounded(h, is_needed=rounding != "once")).reshape(rows, columns // 2)


def swiglu_f32(x: NDArray[Any], granularity: int | None = None) -> F32:
    """Return ``silu(gate) * up``: `gated_f32` with SiLU.

    Example:
        >>> x = np.array([[1, 2, 10, 20]], np.float32)
        >>> (swiglu_f32(x) == silu_f32(x[:, :2]) * x[:, 2:]).all().item()
        True
    """
    return gated_f32(x, "silu", granularity)


def _of_gates(gate: F32, up: F32, activation: str) -> tuple[F32, F32]:
    """The activation of gates, and its factor."""
    name, *texts = activation.split(":")
    if name == "swigluoai":
        return _swigluoai(gate), np.clip(up, -_SWIGLUOAI_LIMIT, _SWIGLUOAI_LIMIT) + ONE
    if name != "swiglu":
        return activated_f32(gate, activation), up
    limit, _, beta = map(np.float32, texts)
    clamped = np.clip(up, -limit, limit)
    return swish_f32(np.minimum(gate, limit), float(texts[1])), clamped + beta if beta else clamped


def _swigluoai(gate: F32) -> F32:
    bounded = np.maximum(np.minimum(gate, _SWIGLUOAI_LIMIT), _SWIGLUOAI_LEAST)
    activated: F32 = bounded * sigmoid_of_product(_at_most(bounded, _SWIGLUOAI_LIMIT), _ALPHA, _ALPHA_LOW)
    return activated


def _at_most(x: F32, limit: F32 | np.float32) -> F32:
    """The smaller one; the limit for a NaN, which has no exponent to split."""
    return np.where(np.isnan(x), limit, np.minimum(x, limit))
