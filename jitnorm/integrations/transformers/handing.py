"""Codes on their way from a norm to linears: they travel with the tensor that they encode.

A norm does not know who reads its result. The first linear that does has it encode from then on, so norms that feed
none, such as those of heads, never do. Bits do not depend on who encodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from jitnorm.integrations.transformers.formats import Format
from jitnorm.ops.general import quantize
from jitnorm.quantized import QuantizedTensor

_ATTRIBUTE = "_jitnorm_handed"


@dataclass
class Handed:
    """Codes that a norm gives along with its result, or leaves to its readers.

    Attributes:
        norm: the norm, which is told if a linear reads it.
        q: the result's codes, once someone has computed them.
        version: how often the result had been written then.
    """

    norm: Any
    q: QuantizedTensor | None
    version: int = -1


def hand_over(y: torch.Tensor, handed: Handed) -> torch.Tensor:
    """A norm's result with what goes along."""
    handed.version = y._version
    setattr(y, _ATTRIBUTE, handed)
    return y


def codes_of(x: torch.Tensor, to: Format) -> QuantizedTensor:
    """The codes of what a linear reads: those that came along, or new ones."""
    handed: Handed | None = getattr(x, _ATTRIBUTE, None)
    if handed is None or x._version != handed.version:
        return quantize(x.contiguous(), spec=to.spec, **to.scales)
    if handed.q is None:
        handed.norm.feeds_linears = True
        handed.q = quantize(x, spec=to.spec, **to.scales)
    return handed.q
