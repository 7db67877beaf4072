"""The gates of norms, a tensor of their own: what is chosen of them, and the options of functions."""

from __future__ import annotations

from typing import Any

from jitnorm.catalogue.op import WITHOUT_WEIGHT, Choices, Fields

GATE: dict[str, Any] = {"gate": "norm", "activation": "silu", "bias": False, "weight_rows": 1}


def gated(activation: str, norm_before_gate: bool, has_bias: bool, groups: int, has_weight: bool) -> Fields:
    """The fields of a norm with gates; groups without a weight are rows like others."""
    weight = {"weight_rows": groups} if has_weight else {"weight_rows": 1, **WITHOUT_WEIGHT}
    return {"gate": "norm" if norm_before_gate else "input", "activation": activation, "bias": has_bias, **weight}


def gated_options(_: Choices, fields: Fields) -> dict[str, Any]:
    """The options of a function of such a norm; of rows that are groups, its caller has longer ones."""
    return {"activation": fields["activation"], "norm_before_gate": fields["gate"] == "norm"}
