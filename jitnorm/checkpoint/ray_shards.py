"""Processes shards on a Ray cluster whose nodes share the folders; each task scans or writes one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jitnorm.checkpoint.output import Output
from jitnorm.checkpoint.plan import ShardPlan
from jitnorm.checkpoint.shard import Means, scan, write
from jitnorm.ray_cluster import RETRIES, connected


def scan_on_ray(
    means: Means, shards: Sequence[ShardPlan], address: str
) -> Iterator[tuple[ShardPlan, dict[str, float]]]:
    """Find the largest magnitude of each weight; yields the result of each shard, in any order."""
    yield from _done(means, shards, address, _scan, lambda shard: (means, shard))


def write_on_ray(
    means: Means, shards: Sequence[ShardPlan], output: Output, scales: Mapping[str, float], address: str
) -> Iterator[ShardPlan]:
    """Write quantized shards; yields each one that is in place, in any order.

    A task that is rerun after its worker died writes its file again.
    """

    def arguments(shard: ShardPlan) -> tuple[Any, ...]:
        own = {step.module: scales[step.module] for step in shard.weights if step.module in scales}
        return means, shard, output.part(shard.file).absolute(), own

    for shard, _ in _done(means, shards, address, _write, arguments):
        output.finish(shard.file)
        yield shard


def _done(
    means: Means, shards: Sequence[ShardPlan], address: str, work: Callable[..., Any],
    arguments: Callable[[ShardPlan], tuple[Any, ...]],
) -> Iterator[tuple[ShardPlan, Any]]:  # fmt: skip
    ray = connected(address)
    task = ray.remote(num_cpus=means.threads, num_gpus=float(means.device == "cuda"), max_retries=RETRIES)(work)
    pending = {task.remote(*arguments(shard)): shard for shard in shards}
    try:
        while pending:
            ready, _ = ray.wait(list(pending), num_returns=1)
            for reference in ready:
                shard = pending.pop(reference)
                try:
                    yield shard, ray.get(reference)
                except ray.exceptions.RayError as error:
                    raise RuntimeError(f"ray: {shard.file}: {error}; nodes must share both folders") from None
    finally:
        for reference in pending:
            ray.cancel(reference, force=True)


def _scan(means: Means, shard: ShardPlan) -> dict[str, float]:
    steps = scan(means, shard)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: dict[str, float] = end.value
            return found


def _write(means: Means, shard: ShardPlan, part: Path, scales: Mapping[str, float]) -> None:
    for _ in write(means, shard, part, scales):
        pass
