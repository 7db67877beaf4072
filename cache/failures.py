"""Records which tiers failed in this process and why, with one warning for each."""

from __future__ import annotations

import logging

from jitnorm.cache.events import emit
from jitnorm.cache.printable import printable

_LOG = logging.getLogger("jitnorm.cache")
# Each with a mark of the thread that saw it fail first, so that concurrent failures log one warning.
_reasons: dict[str, tuple[object, str]] = {}


def tier_failed(tier: str, reason: str) -> None:
    """Record that a tier failed; log a warning on its first failure in this process."""
    mine, reason = object(), printable(reason)
    first, _ = _reasons.setdefault(tier, (mine, reason))
    _reasons[tier] = first, reason
    emit("tier_failed", tier=tier, reason=reason)
    if first is mine:
        _LOG.warning("skipping the cache tier %s: %s", tier, reason)


def failed_tiers() -> dict[str, str]:
    """Return the tiers that failed in this process, each with the latest reason.

    Example:
        >>> failed_tiers()
        {}
    """
    return {tier: reason for tier, (_, reason) in tuple(_reasons.items())}  # other threads may add to it
