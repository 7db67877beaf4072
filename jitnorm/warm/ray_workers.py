"""Workers on a Ray cluster, which do on other machines what worker processes do on this one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from jitnorm.cache import Artifact, Cache
from jitnorm.ray_cluster import RETRIES, connected
from jitnorm.warm.plan import Job, Outcome
from jitnorm.warm.worker import read_job, read_outcome, write_job, write_outcome

# Cache settings that nodes take from the driver. The driver's folders are not among them.
_VARIABLES = (
    "JITNORM_REMOTE_CACHE", "JITNORM_REMOTE_MODE", "JITNORM_REMOTE_TIMEOUT", "JITNORM_BACKEND",
    "JITNORM_COMPILE_TIMEOUT", "JITNORM_LOCK_TIMEOUT",
)  # fmt: skip


def run_on_ray(jobs: Sequence[Job], cache: Cache, address: str, backend: str = "auto") -> Iterator[Outcome]:
    """Build kernels on a Ray cluster, and yield outcomes as they become known.

    Each task builds into its node's cache, where a task that is rerun after its worker died finds earlier results. The
    artifact is sent back as bytes and published to this machine's cache, unless nodes write to a remote cache, from
    which it is then read.

    Args:
        jobs: the kernels to build.
        cache: this machine's cache.
        address: the cluster's address; ``auto`` for the running one, or ``local`` for a cluster only of this process.
        backend: see `jitnorm.toolchains.select`.

    Raises:
        RuntimeError: Ray is not installed, or the cluster does not exist.
    """
    ray = connected(address)
    has_remote = _nodes_write_to_remote()
    settings = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    # A failed build is an outcome; Ray reruns tasks whose worker died.
    task = ray.remote(num_cpus=1, max_retries=RETRIES, runtime_env={"env_vars": {**settings, "JITNORM_JIT": "auto"}})(
        _build_on_node
    )
    pending = {task.remote(write_job(job, backend), has_remote): job for job in jobs}
    try:
        while pending:
            ready, _ = ray.wait(list(pending), num_returns=1)
            for reference in ready:
                job = pending.pop(reference)
                yield _received(ray, reference, job, cache)
    finally:
        for reference in pending:
            ray.cancel(reference, force=True)


def _nodes_write_to_remote() -> bool:
    return bool(os.environ.get("JITNORM_REMOTE_CACHE")) and os.environ.get("JITNORM_REMOTE_MODE") == "readwrite"


def _build_on_node(asked: str, has_remote: bool) -> tuple[str, bytes, dict[str, Any]]:
    """Build a kernel on a node; return the outcome, with payload and manifest unless the remote cache has them."""
    import json

    from jitnorm.store import user_cache
    from jitnorm.warm.build import build

    job, cache = read_job(json.loads(asked)), user_cache()
    outcome = build(job, cache, json.loads(asked)["backend"])
    found = None
    if outcome.status != "failed" and not (has_remote and _remote_has(cache, outcome.key)):
        found = cache.load(outcome.key)
    if found is None:
        return write_outcome(outcome), b"", {}
    return write_outcome(outcome), found.payload, dict(found.manifest)


def _remote_has(cache: Cache, key: str) -> bool:
    """Whether the remote cache has an artifact, after flushing everything this process publishes."""
    from jitnorm.cache.publisher import flush

    try:
        return flush() and cache.remote is not None and cache.remote.has(key)
    except RuntimeError:
        return False


def _received(ray: Any, reference: Any, job: Job, cache: Cache) -> Outcome:
    try:
        text, payload, manifest = ray.get(reference)
    except ray.exceptions.RayError as error:
        return Outcome(job, "failed", error=f"{type(error).__name__}: {error}")
    outcome = read_outcome(job, text)
    if outcome.status == "failed":
        return outcome
    try:
        if manifest:
            cache.store.publish(outcome.key, Artifact(payload, manifest))
        is_here = cache.load(outcome.key) is not None
    except OSError as error:
        return Outcome(job, "failed", outcome.seconds, 0, outcome.key, f"cannot be stored here: {error}")
    if not is_here:
        lost = "a node built it, but it is in neither this machine's cache nor the remote one"
        return Outcome(job, "failed", outcome.seconds, 0, outcome.key, lost)
    return outcome
