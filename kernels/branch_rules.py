"""Rules on the fields of a KernelConfig for branches of a network that are gated, and for norms that are modulated."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .config import KernelConfig

BRANCH = ("branch_gate", "gate_bias", "branch_scale", "modulated", "modulation_bias")


def check_branch(config: KernelConfig) -> None:
    """Raise ValueError if one of `BRANCH` is not allowed with the other fields."""
    if config.modulation_bias and not config.modulated:
        raise ValueError("modulation_bias: is True, which needs modulated=True")
    if config.modulated and config.weight != "none":
        raise ValueError(f"modulated: is True, which takes the place of a weight; it is {config.weight!r}, use 'none'")
    others = ("streams", "gate_columns", "activation", "backward", "masked")
    if config.combine == "branch" and any(getattr(config, name) for name in others):
        raise ValueError(f"branch_gate, branch_scale, modulated: cannot be combined with any of {', '.join(others)}")
