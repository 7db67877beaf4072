"""Entries to fill caches with, for tests of the commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jitnorm.cache import Artifact, Store, make_key
from jitnorm.cache.uses import release_uses
from jitnorm.kernels.config import KernelConfig
from typer.testing import Result

Invoke = Callable[..., Result]
Answer = Callable[..., Any]


def manifest_of(target: str, **fields: Any) -> dict[str, Any]:
    """A builder's manifest of a kernel."""
    config = str(KernelConfig.parse("rmsnorm:hidden_size=4096,quant=e2m1/16"))
    return {"kind": "kernel", "config": config, "target": target, "backend": "nvrtc", **fields}


SM90, SM100, CPU = (make_key({"target": name}) for name in ("sm_90a", "sm_100a", "cpu"))
LAUNCHER = make_key({"kind": "launcher"})
ENTRIES = {
    SM90: Artifact(b"x" * 2048, manifest_of("sm_90a")),
    SM100: Artifact(b"y" * 4096, manifest_of("sm_100a")),
    CPU: Artifact(b"z" * 1024, manifest_of("cpu", backend="cxx")),
    LAUNCHER: Artifact(b"l" * 10, {"kind": "launcher"}),
}


def fill(store: Store) -> None:
    """Publish all `ENTRIES`, none of which count as used by this process."""
    for key, artifact in ENTRIES.items():
        store.publish(key, artifact)
    release_uses(store.layout)
