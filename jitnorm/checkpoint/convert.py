"""Quantizes a checkpoint: checks everything, scans its weights, writes its shards, then what refers to them."""

from __future__ import annotations

import json
import math
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jitnorm.checkpoint.encode import encode_scale
from jitnorm.checkpoint.layouts import Layout
from jitnorm.checkpoint.output import Output
from jitnorm.checkpoint.plan import Plan, ShardPlan, plan_of
from jitnorm.checkpoint.shard import Means, scan, write
from jitnorm.checkpoint.source import CONFIG, INDEX, open_source

_SHOWN = 5


@dataclass
class Progress:
    """The progress of a run.

    Attributes:
        plan: what is done.
        resumed: the number of files written by an earlier run.
        to_scan: bytes of weights whose magnitudes this run must find.
        to_write: bytes of the source that this run must read and convert.
        scanned: how many of `to_scan` are done.
        written: how many of `to_write` are done.
    """

    plan: Plan
    resumed: int
    to_scan: int
    to_write: int
    scanned: int = 0
    written: int = 0


def quantize_checkpoint(
    source: Path,
    out: Path,
    layout: Layout,
    *,
    ignore: Sequence[str] = (),
    device: str = "cpu",
    threads: int = 2,
    ray: str | None = None,
) -> Generator[Progress, None, Progress]:
    """Quantize the linear layers of a checkpoint; yields the progress after each block of a tensor.

    Nothing is written before everything is checked, including the values of all weights. Repeating an interrupted run
    continues where it stopped.

    Args:
        source: the folder of a checkpoint: ``config.json``, and ``model.safetensors`` or an index and its files.
        out: the folder to write to.
        layout: the format, and its tensors.
        ignore: patterns of modules that stay as they are, besides heads, embeddings, norms and routers.
        device: ``cpu``, or ``cuda`` for the first GPU; the bytes are the same.
        threads: how many threads encode, on each machine.
        ray: the address of a Ray cluster whose nodes share both folders, one shard for each task; None: here.

    Raises:
        ValueError: the checkpoint is incomplete or unsuitable, an option is wrong, a weight is NaN or infinite, or
            `out` holds something else.
        OSError: the disk is full, or a file cannot be read or written.
        RuntimeError: another process writes to `out`.
    """
    if out.resolve() == source.resolve() or source.resolve() in out.resolve().parents:
        raise ValueError(f"out: {out} is in the checkpoint's folder; name another one")
    plan = plan_of(open_source(source), layout, ignore)
    means = Means(source.resolve(), layout, device, threads)
    output = Output(out, _identity(plan, ignore))
    scales = output.scales()
    left = [shard for shard in plan.shards if scales is None or not output.has(shard.file, shard.size)]
    output.check_space(plan.size - sum(shard.size for shard in plan.shards if shard not in left))
    progress = Progress(
        plan, len(plan.shards) - len(left),
        sum(step.tensor.size for shard in plan.shards for step in shard.weights) if scales is None else 0,
        sum(map(_size, left)),
    )  # fmt: skip
    yield progress
    if scales is None:
        scales = _scales(plan, (yield from _scanned(means, progress, ray)))
    with output.locked():
        output.begin(scales)
        yield from _written(means, progress, left, output, scales, ray)
        _finish(plan, output)
        output.end()
    return progress


def _size(shard: ShardPlan) -> int:
    return sum(step.tensor.size for step in shard.steps)


def _identity(plan: Plan, ignore: Sequence[str]) -> dict[str, Any]:
    """The identity of a run: everything that its bytes depend on."""
    import jitnorm

    files = [plan.source.folder / shard.file for shard in plan.shards]
    return {
        "jitnorm": jitnorm.__version__,
        "source": [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files],
        "format": plan.layout.format.name,
        "layout": plan.layout.convention,
        "ignore": list(ignore),
    }


def _scanned(means: Means, progress: Progress, ray: str | None) -> Generator[Progress, None, dict[str, float]]:
    """Find the largest magnitude of every weight."""
    amaxes: dict[str, float] = {}
    if ray is not None:
        from jitnorm.checkpoint.ray_shards import scan_on_ray

        for shard, found in scan_on_ray(means, progress.plan.shards, ray):
            amaxes |= found
            progress.scanned += sum(step.tensor.size for step in shard.weights)
            yield progress
        return amaxes
    for shard in progress.plan.shards:
        steps = scan(means, shard)
        while True:
            try:
                progress.scanned += next(steps)
            except StopIteration as end:
                amaxes |= end.value
                break
            yield progress
    return amaxes


def _scales(plan: Plan, amaxes: dict[str, float]) -> dict[str, float]:
    """The encode scales of all weights, shared by those that engines fuse.

    Raises:
        ValueError: a weight holds a NaN or an infinity.
    """
    bad = sorted(module for module, amax in amaxes.items() if not math.isfinite(amax))
    if bad:
        more = f", and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
        names = ", ".join(f"{module}.weight" for module in bad[:_SHOWN])
        raise ValueError(f"in: {names}{more}: a value is NaN or infinite, which has no code; repair the checkpoint")
    if not plan.layout.has_global_scale:
        return {}
    groups = plan.selection.groups.values()
    return {module: encode_scale(max(amaxes[each] for each in group)) for group in groups for module in group}


def _written(
    means: Means, progress: Progress, left: Iterable[ShardPlan], output: Output, scales: dict[str, float],
    ray: str | None,
) -> Generator[Progress, None, None]:  # fmt: skip
    if ray is not None:
        from jitnorm.checkpoint.ray_shards import write_on_ray

        for shard in write_on_ray(means, list(left), output, scales, ray):
            progress.written += _size(shard)
            yield progress
        return
    for shard in left:
        for size in write(means, shard, output.part(shard.file), scales):
            progress.written += size
            yield progress
        output.finish(shard.file)


def _finish(plan: Plan, output: Output) -> None:
    """Write the files that refer to the shards; the configuration comes last, because loading depends on it."""
    for path in plan.source.others:
        output.copy(plan.source.folder / path, str(path))
    ignored = plan.selection.ignored
    if plan.source.index is not None:
        output.put(INDEX, _json(_index(plan)))
    beside = plan.layout.beside_configuration(ignored)
    if beside is not None:
        output.put("hf_quant_config.json", _json(beside))
    output.put(CONFIG, _json({**plan.source.config, "quantization_config": plan.layout.configuration(ignored)}))


def _index(plan: Plan) -> dict[str, Any]:
    files = {output.name: shard.file for shard in plan.shards for step in shard.steps for output in step.outputs}
    size = sum(output.size for shard in plan.shards for step in shard.steps for output in step.outputs)
    given = (plan.source.index or {}).get("metadata")
    return {"metadata": {**(given or {}), "total_size": size}, "weight_map": dict(sorted(files.items()))}


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
