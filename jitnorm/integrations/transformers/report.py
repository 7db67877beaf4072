"""Report of what was replaced in a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Report:
    """Modules of a model by their names, as in ``model.named_modules()``.

    Attributes:
        norms: those that jitnorm computes now, and the op.
        linears: those that multiply quantized matrices now, and how.
        left_alone: those that stay as they were, and why.
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
