"""Gates of norms in a separate tensor: their choices, and the options of functions."""

from __future__ import annotations

from typing import Any

from jitnorm.catalogue.op import WITHOUT_WEIGHT, Choices, Fields

GATE: dict[str, Any] = {"gate": "norm", "activation": "silu", "bias": False, "weight_rows": 1}


def gated(activation: str, norm_before_gate: bool, has_bias: bool, groups: int, has_weight: bool) -> Fields:
    """The fields of a norm with gates; without a weight, groups are ordinary rows."""
    weight = {"weight_rows": groups} if has_weight else {"weight_rows": 1, **WITHOUT_WEIGHT}
    return {"gate": "norm" if norm_before_gate else "input", "activation": activation, "bias": has_bias, **weight}


def gated_options(_: Choices, fields: Fields) -> dict[str, Any]:
    """The options of a function for such a norm; if rows are groups, the caller's own rows are longer."""
    return {"activation": fields["activation"], "norm_before_gate": fields["gate"] == "norm"}
