"""Rules on the fields of a KernelConfig for activations, gates, norms around a norm and several weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .activations import ACTIVATIONS, GATES, NORM_GATES, is_activation
from .quant_spec import require_one_of

if TYPE_CHECKING:
    from .config import KernelConfig

FINISHED = ("activates_norm", "gate", "weight_rows", "sandwich", "weights")
MAX_WEIGHTS = 4
# What gates in a separate tensor multiply.
GATED = ("", "input", "norm")


def check_activation(config: KernelConfig) -> None:
    """Raise ValueError if there is no such activation for the input, its gates or separate gates."""
    require_one_of("gate", config.gate, GATED)
    forms = GATES if config.gate_columns else NORM_GATES if config.gate else ACTIVATIONS
    if config.activation and not is_activation(config.activation, forms):
        require_one_of("activation", config.activation, forms)


def check_finish(config: KernelConfig) -> None:
    """Raise ValueError if one of `FINISHED` has a value that is not allowed, or not allowed with the others."""
    if config.activates_norm and (not config.activation or config.gate_columns or config.gate):
        raise ValueError("activates_norm: is True, which takes an activation, and no gate or gate_columns")
    if config.gate and config.gate_columns:
        raise ValueError("op: can have only one of gate and gate_columns")
    if config.sandwich and (not config.residual or config.weight_rows > 1 or config.weight == "none"):
        raise ValueError("sandwich: is True, which takes a residual and weights, and no weight_rows")
    rows = config.weight_rows
    if type(rows) is not int or rows < 1:
        raise ValueError(f"weight_rows: is {rows!r}; expected a positive int")
    if rows > 1 and (config.batched or config.pair or config.backward or config.weight == "none"):
        raise ValueError(f"weight_rows: is {rows}, which needs a weight and excludes batched, pair and backward")
    require_one_of("weights", config.weights, tuple(range(1, MAX_WEIGHTS + 1)))
    others = (
        "quant", "keep_norm", "keep_rstd", "amax_parts", "bias", "pair", "batched", "backward", "streams",
        "gate_columns", "activation", "sandwich",
    )  # fmt: skip
    is_plain = config.weight != "none" and rows == 1 and not any(getattr(config, name) for name in others)
    if config.weights > 1 and not is_plain:
        raise ValueError(f"weights: is {config.weights}, which needs a plain rmsnorm or one with a residual")
