"""Tiers that failed in this process, and why: each is warned about once and remembered for whoever asks."""

from __future__ import annotations

import logging

from jitnorm.cache.events import emit

_LOG = logging.getLogger("jitnorm.cache")
_reasons: dict[str, str] = {}


def tier_failed(tier: str, reason: str) -> None:
    """Remember that a tier failed; log a warning if it is the tier's first failure in this process."""
    is_first = tier not in _reasons
    _reasons[tier] = reason
    emit("tier_failed", tier=tier, reason=reason)
    if is_first:
        _LOG.warning("going on without the cache tier %s: %s", tier, reason)


def failed_tiers() -> dict[str, str]:
    """The tiers that have failed in this process, each with its latest reason.

    Example:
        >>> failed_tiers()
        {}
    """
    return dict(_reasons)
