"""Finds FP8 quantization of given values: with a given scale, one per row, or one per group of a row."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.fx import Node

from jitnorm.kernels.quant_spec import MAX_CODE, QuantSpec
from jitnorm.torch.fusion.nodes import args_of, aten, below, cast_source, fake, is_float32, largest_of, same_shape

_ELEMENTS = {torch.float8_e4m3fn: "e4m3", torch.float8_e5m2: "e5m2"}
_GROUPS = (64, 128)


@dataclass(frozen=True)
class Encoding:
    """A quantization in a graph.

    Attributes:
        spec: the encoding.
        values: what the codes and the scale are computed from.
        codes: the node of the codes.
        scale: the given scale, or None.
        scales: the nodes of the computed scales.
    """

    spec: QuantSpec
    values: tuple[Node, ...]
    codes: Node
    scale: Node | None
    scales: tuple[Node, ...]


class _Scaled(NamedTuple):
    """An interpretation of codes as values that are scaled, then rounded.

    Attributes:
        codes: the node of the codes.
        element: their format.
        value: the given node that the values are derived from.
        factor: what they are divided or multiplied by, after broadcasting.
        source: what the factor is computed from.
        kind: what the source is: the ``scale``, or the corresponding ``amax``.
        is_clamped: whether the product is clamped to the range of the format.
    """

    codes: Node
    element: str
    value: Node
    factor: Node
    source: Node
    kind: str
    is_clamped: bool


def find_encoding(codes: Node, values: Container[Node]) -> Encoding | None:
    """The quantization whose codes a node computes, if an op computes it.

    Args:
        codes: the node.
        values: forms of one norm, rounded or not, whose quantization is searched for.
    """
    for scaled in _scaled(codes, values):
        # Without clamping, torch turns values that are too large into NaN; only a computed scale prevents that.
        found = _with_found_scale(scaled, values) or (_with_given_scale(scaled) if scaled.is_clamped else None)
        if found is not None:
            return found
    return None


def quantized_value(codes: Node, values: Container[Node]) -> Node | None:
    """The value whose codes a node computes, by any formula."""
    return next((scaled.value for scaled in _scaled(codes, values)), None)


def _scaled(codes: Node, values: Container[Node]) -> Iterator[_Scaled]:
    for dtype, element in _ELEMENTS.items():
        converted = cast_source(codes, dtype)
        if converted is None:
            continue
        product, is_clamped = _unclamped(converted, MAX_CODE[element])
        for rows, factor, source, kind in _factors(product, MAX_CODE[element]):
            value = next((node for node in below(rows) if node in values), None)
            if value is not None and same_shape(fake(rows).shape, fake(codes).shape):
                yield _Scaled(codes, element, value, factor, source, kind, is_clamped)


def _unclamped(node: Node, largest: float) -> tuple[Node, bool]:
    """Values before they are clamped to the range of the codes, and whether they are."""
    for outer, inner, bound in ((aten.clamp_max, aten.clamp_min, largest), (aten.clamp_min, aten.clamp_max, -largest)):
        args = args_of(node, outer.default)
        deeper = args_of(args[0], inner.default) if args else ()
        if deeper and args[1] == bound and deeper[1] == -bound:
            return deeper[0], True
    return node, False


def _factors(product: Any, largest: float) -> Iterator[tuple[Node, Node, Node, str]]:
    """The ways to read a node as a product: rows, then factor, source and kind of `_Scaled`."""
    if not is_float32(product):
        return
    quotient = args_of(product, aten.div.Tensor)
    if quotient and isinstance(quotient[1], Node):
        yield quotient[0], quotient[1], quotient[1], "scale"
    pair = args_of(product, aten.mul.Tensor)
    for rows, factor in (pair, pair[::-1]) if pair else ():
        for node in below(factor):
            inverse = args_of(node, aten.reciprocal.default)
            times = args_of(node, aten.mul.Tensor)
            if times and times[1] in (1, largest):
                inverse = args_of(times[0], aten.reciprocal.default)
            if inverse:
                yield rows, factor, inverse[0], "amax" if times and times[1] == largest else "scale"


def _with_given_scale(scaled: _Scaled) -> Encoding | None:
    scale = fake(scaled.source)
    is_one = is_float32(scaled.source) and all(size == 1 for size in scale.shape)
    if not is_one or scaled.kind != "scale" or scale.device != fake(scaled.value).device:
        return None
    return Encoding(QuantSpec(scaled.element, "tensor", "f32"), (scaled.value,), scaled.codes, scaled.source, ())


def _with_found_scale(scaled: _Scaled, values: Container[Node]) -> Encoding | None:
    amax = _amax_below(scaled.source)
    magnitudes = None if amax is None else largest_of(amax)
    value = None if magnitudes is None else next((node for node in below(_signed(magnitudes)) if node in values), None)
    if amax is None or value is None:
        return None
    *rows, size = fake(scaled.codes).shape
    if not same_shape(fake(scaled.factor).shape, (*rows, 1)):
        return None  # otherwise there are as many scales as blocks, which gives their size
    formulas = dict(_formulas(amax, np.float32(MAX_CODE[scaled.element])))
    for block, least in _blocks(scaled.element, size, fake(value).shape[-1]):
        if formulas.get(scaled.source) == (scaled.kind, least):
            scales = tuple(node for node, formula in formulas.items() if formula == ("scale", least))
            return Encoding(QuantSpec(scaled.element, block, "f32"), (scaled.value, value), scaled.codes, None, scales)
    return None


def _blocks(element: str, size: int, hidden_size: int) -> Iterator[tuple[int | str, np.float32]]:
    """The blocks of this size that ops support, with their smallest scale."""
    if size == hidden_size:
        yield "row", np.float32(QuantSpec(element, "row", "f32").smallest_scale)
    if element == "e4m3" and size in _GROUPS and hidden_size % size == 0:
        yield size, np.float32(QuantSpec(element, size, "f32").smallest_scale)


def _signed(magnitudes: Node) -> Node | None:
    """The values whose magnitudes a node holds."""
    return next((args[0] for node in below(magnitudes) if (args := args_of(node, aten.abs.default))), None)


def _amax_below(node: Any) -> Node | None:
    """The largest magnitude from which a scale is computed."""
    while isinstance(node, Node) and largest_of(node) is None:
        args = args_of(node, aten.div.Tensor, aten.clamp_min.default)
        node = args[0] if args else next(islice(below(node), 1, None), None)
    return node if isinstance(node, Node) else None


def _formulas(amax: Node, largest: np.float32) -> Iterator[tuple[Node, tuple[str, np.float32]]]:
    """The nodes that are an amax with a lower bound, or its scale, with the smallest scale."""
    found: list[tuple[Node, bool, np.float32 | None]] = [(amax, False, None)]
    for node, is_divided, least in found:  # grows while it is read
        if least is not None:
            yield node, ("scale" if is_divided else "amax", least)
        for user in node.users:
            by, bound = args_of(user, aten.div.Tensor), args_of(user, aten.clamp_min.default)
            if next(islice(below(user), 1, None), None) is node:
                found.append((user, is_divided, least))
            elif is_float32(node) and by and by[1] == largest and not is_divided:
                found.append((user, True, least))
            elif is_float32(node) and bound and isinstance(bound[1], (int, float)) and least is None:
                smallest = np.float32(bound[1])
                found.append((user, is_divided, smallest if is_divided else smallest / largest))
