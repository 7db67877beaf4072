"""The gates of norms, a tensor of their own: what is chosen of them, and the options of functions."""

from __future__ import annotations

from typing import Any

from jitnorm.catalogue.op import Choices, Fields

GATE: dict[str, Any] = {"gate": "norm", "activation": "silu", "bias": False, "weight_rows": 1}


def gated(activation: str, norm_before_gate: bool, has_bias: bool, groups: int) -> Fields:
    """The fields of a norm with gates."""
    gate = "norm" if norm_before_gate else "input"
    return {"gate": gate, "activation": activation, "bias": has_bias, "weight_rows": groups}


def gated_options(_: Choices, fields: Fields) -> dict[str, Any]:
    """The options of a function of such a norm; of rows that are groups, its caller has longer ones."""
    return {"activation": fields["activation"], "norm_before_gate": fields["gate"] == "norm"}
