"""What the shell offers to complete; called at every press of Tab, so nothing here imports much."""

from __future__ import annotations


def complete_config(incomplete: str) -> list[str]:
    """Ops, then the names of their fields."""
    from dataclasses import fields

    from jitnorm.kernels.config import KernelConfig
    from jitnorm.kernels.config_rules import OPS

    op, colon, given = incomplete.partition(":")
    if not colon:
        return [f"{name}:hidden_size=" for name in OPS if name.startswith(op)]
    known, _, started = given.rpartition(",")
    taken = {item.partition("=")[0] for item in known.split(",")}
    begin = f"{op}:{known}," if known else f"{op}:"
    names = (field.name for field in fields(KernelConfig)[1:])
    return [f"{begin}{name}=" for name in names if name.startswith(started) and name not in taken]


def complete_target(incomplete: str) -> list[str]:
    """Targets; after a comma one more."""
    from jitnorm.kernels.target import TARGET_NAMES

    known, comma, started = incomplete.rpartition(",")
    return [f"{known}{comma}{name}" for name in TARGET_NAMES if name.startswith(started)]


def complete_key(incomplete: str) -> list[str]:
    """Keys in the folder of the user's cache, which is only listed: nothing is loaded from it."""
    from jitnorm.cache import default_root
    from jitnorm.cache.layout import Layout

    return [key for key, _ in Layout(default_root()).entries() if key.startswith(incomplete)]


def complete_kind(incomplete: str) -> list[str]:
    """Kinds of entries."""
    from jitnorm.commands.selection import KINDS

    return [kind for kind in KINDS if kind.startswith(incomplete)]


def complete_tier(incomplete: str) -> list[str]:
    """Kinds of tiers."""
    from jitnorm.commands.selection import TIER_KINDS

    return [kind for kind in TIER_KINDS if kind.startswith(incomplete)]
