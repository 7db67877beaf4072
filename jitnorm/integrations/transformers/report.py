"""Report of what was replaced in a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Report:
    """The modules of a model, by their names in ``model.named_modules()``.

    Attributes:
        norms: the norms that jitnorm now computes, and their ops.
        linears: the linears that now multiply quantized matrices, and how.
        left_alone: modules that were left alone, and why.
    """

    norms: Mapping[str, str]
    linears: Mapping[str, str]
    left_alone: Mapping[str, str]

    def __str__(self) -> str:
        counted = [
            f"{count} {kind}: {what}"
            for kind, found in (("norms", self.norms), ("linears", self.linears))
            for what, count in Counter(found.values()).items()
        ]
        return "\n".join(
            [*counted, *(f"left alone: {name or 'the model'}: {why}" for name, why in self.left_alone.items())]
        )
