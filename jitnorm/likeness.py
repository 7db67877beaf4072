"""Likeness: how much measurements of one kernel say about another."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields

from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.dtypes import DTYPES

# Factors for another kernel, and for each difference in its work, in its widths and in its format. They are small
# because most measurements are of other kernels.
_OTHER_OP, _OTHER_WORK, _OTHER_WIDTH, _OTHER_FORMAT = 0.3, 0.1, 0.2, 0.4
_FIELDS = [each.name for each in fields(KernelConfig)]


def likeness(one: KernelConfig, other: KernelConfig) -> float:
    """How much measurements of a kernel count for another one, by their keys.

    Example:
        >>> norm = KernelConfig("rmsnorm", 4096)
        >>> likeness(norm, norm), likeness(norm, KernelConfig("layernorm", 4096))
        (1.0, 0.006)
    """
    if one == other:
        return 1.0
    found = _OTHER_OP
    for factor, of in ((_OTHER_WORK, _work), (_OTHER_WIDTH, _widths), (_OTHER_FORMAT, _format)):
        found *= factor ** sum(a != b for a, b in zip(of(one), of(other), strict=True))
    return found


def nearest(key: KernelConfig, known: Iterable[KernelConfig]) -> KernelConfig | None:
    """The most similar kernel that computes rows from the same tensors; None if there is none.

    One that does the same work, perhaps in another format, comes first.

    Example:
        >>> wanted = KernelConfig("rmsnorm", 4096, weight="none", input="float32")
        >>> nearest(wanted, [KernelConfig("layernorm", 4096), KernelConfig("rmsnorm", 4096)]).op
        'rmsnorm'
    """

    def closeness(other: KernelConfig) -> tuple[bool, float, int]:
        alike = sum(getattr(key, each) == getattr(other, each) for each in _FIELDS)
        return _work(key) == _work(other), likeness(key, other), alike

    return max((each for each in known if _source(each) == _source(key)), key=closeness, default=None)


def _source(key: KernelConfig) -> tuple[object, ...]:
    """The tensors that a kernel computes rows from, and what for."""
    kind = key.sinkhorn > 0, key.prenorm, key.amax_parts > 0, key.second_size > 0, key.backward
    return key.op, key.combine, key.streams, kind


def _work(key: KernelConfig) -> tuple[object, ...]:
    """The same, and all that takes more instructions, or another pass over the row."""
    activation = key.activation if key.normalizes else ""
    four_over_six = key.quant is not None and bool(key.quant.four_over_six)
    return *_source(key), activation, four_over_six, key.needs_row_amax, key.counts_rows


def _widths(key: KernelConfig) -> tuple[object, ...]:
    """The widths that determine how many registers a row and its parameters take, and how they are loaded."""
    return DTYPES[key.input].bytes, key.weight == "float32", key.vector_bytes


def _format(key: KernelConfig) -> tuple[object, ...]:
    quant = key.quant
    if quant is None:
        return False, "", ""
    return quant.has_blocks, quant.element, quant.block_size if quant.has_blocks else ""
