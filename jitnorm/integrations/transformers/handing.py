"""Hands codes from a norm to linears, along with the tensor that they encode.

A norm does not know who reads its result. The first linear that does so makes it encode from then on, so norms that
feed no linear, such as those of heads, never encode. The bits do not depend on who encodes.
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
    """Codes that a norm passes along with its result, or leaves to its readers.

    Attributes:
        norm: the norm, which is told if a linear reads it.
        q: the result's codes, once they have been computed.
        version: the version of the result at that time.
    """

    norm: Any
    q: QuantizedTensor | None
    version: int = -1


def hand_over(y: torch.Tensor, handed: Handed) -> torch.Tensor:
    """Attach codes to a norm's result."""
    handed.version = y._version
    setattr(y, _ATTRIBUTE, handed)
    return y


def codes_of(x: torch.Tensor, to: Format) -> QuantizedTensor:
    """The codes of a linear's input: those passed along, or new ones."""
    handed: Handed | None = getattr(x, _ATTRIBUTE, None)
    if handed is None or x._version != handed.version:
        return quantize(x.contiguous(), spec=to.spec, **to.scales)
    if handed.q is None:
        handed.norm.feeds_linears = True
        handed.q = quantize(x, spec=to.spec, **to.scales)
    return handed.q
