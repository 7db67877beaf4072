"""Connects to a Ray cluster."""

from __future__ import annotations

from typing import Any

# How often a task is rerun if its worker dies; a rerun skips what was already done.
RETRIES = 3


def connected(address: str) -> Any:
    """Connect to a cluster, and return the module `ray`.

    Args:
        address: the cluster's address; ``auto`` for the running one, or ``local`` for a cluster of this process alone.

    Raises:
        RuntimeError: Ray is not installed, or the cluster does not exist.
    """
    try:
        import ray
    except ImportError:
        raise RuntimeError('ray: is not installed; pip install "jitnorm[ray]"') from None
    if not ray.is_initialized():
        try:
            ray.init(address=address, include_dashboard=False, log_to_driver=False)
        except ConnectionError as error:
            raise RuntimeError(f"ray: no cluster at {address!r}: {error}; start one, or pass its address") from None
    return ray
