"""Tiers that failed in this process, and why: each is warned about once and remembered for whoever asks."""

from __future__ import annotations

import logging

from jitnorm.cache.events import emit
from jitnorm.cache.printable import printable

_LOG = logging.getLogger("jitnorm.cache")
# Each with a mark of whoever was first to see it fail: threads that fail together give one warning.
_reasons: dict[str, tuple[object, str]] = {}


def tier_failed(tier: str, reason: str) -> None:
    """Remember that a tier failed; log a warning if it is the tier's first failure in this process."""
    mine, reason = object(), printable(reason)
    first, _ = _reasons.setdefault(tier, (mine, reason))
    _reasons[tier] = first, reason
    emit("tier_failed", tier=tier, reason=reason)
    if first is mine:
        _LOG.warning("going on without the cache tier %s: %s", tier, reason)


def failed_tiers() -> dict[str, str]:
    """The tiers that have failed in this process, each with its latest reason.

    Example:
        >>> failed_tiers()
        {}
    """
    return {tier: reason for tier, (_, reason) in _reasons.items()}
