"""Scans a shard for the largest magnitudes of its weights, and writes quantized shards."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from jitnorm.checkpoint.encode import Encoder, rows_of
from jitnorm.checkpoint.layouts import Layout
from jitnorm.checkpoint.pipeline import Block, blocks_of_bytes, blocks_of_rows, flow, write_at
from jitnorm.checkpoint.plan import ShardPlan, Step

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Means:
    """The means to read and encode shards.

    Attributes:
        folder: of the checkpoint.
        layout: the format, and its tensors.
        device: ``cpu``, or ``cuda`` for the first GPU.
        threads: how many encode.
    """

    folder: Path
    layout: Layout
    device: str
    threads: int

    def encoder(self) -> Encoder:
        """Create an encoder for the format."""
        return Encoder(self.layout.format.spec, self.device)


def scan(means: Means, shard: ShardPlan) -> Generator[int, None, dict[str, float]]:
    """Find the largest magnitude of each weight, by module; yields the bytes of each block that is done."""
    encoder = means.encoder()
    found: dict[str, float] = {}

    def work(item: tuple[Step, Block, Bytes]) -> tuple[str, float, int]:
        step, block, data = item
        return step.module, encoder.amax(rows_of(data, step.tensor)), block.size

    def keep(result: tuple[str, float, int]) -> int:
        module, amax, size = result
        found[module] = float(np.maximum(found.get(module, 0.0), amax))  # NaN if one is
        return size

    def blocks(step: Step) -> Iterator[Block]:
        return blocks_of_rows(step.tensor, 1) if step.module else iter(())

    with (means.folder / shard.file).open("rb", buffering=0) as file:
        yield from flow(_read(file.fileno(), shard, blocks), work, keep, means.threads)
    return found


def write(means: Means, shard: ShardPlan, part: Path, scales: Mapping[str, float]) -> Generator[int, None, None]:
    """Write a quantized shard; yields the bytes of each finished block.

    Args:
        means: how to read and encode.
        shard: what to write.
        part: the file to write and sync; the caller renames it.
        scales: the encode scales of modules that have one.
    """
    encoder, block_rows = means.encoder(), means.layout.format.spec.block_rows

    def blocks(step: Step) -> Iterator[Block]:
        return blocks_of_rows(step.tensor, block_rows) if step.module else blocks_of_bytes(step.tensor)

    def work(item: tuple[Step, Block, Bytes]) -> tuple[int, list[tuple[int, Bytes]]]:
        step, block, data = item
        if not step.module:
            return block.size, [(step.outputs[0].begin + block.begin, data)]
        codes, block_scales = encoder.encoded(rows_of(data, step.tensor), scales.get(step.module))
        rows, row = step.tensor.shape[0], block.first
        # Each row has codes; each row of blocks has scales.
        places = (
            step.outputs[0].begin + row * (step.outputs[0].size // rows),
            step.outputs[1].begin + row // block_rows * (step.outputs[1].size // -(-rows // block_rows)),
        )
        return block.size, list(zip(places, (codes, block_scales), strict=True))

    with (means.folder / shard.file).open("rb", buffering=0) as file, part.open("wb", buffering=0) as out:
        descriptor = out.fileno()

        def keep(result: tuple[int, list[tuple[int, Bytes]]]) -> int:
            size, pieces = result
            for position, data in pieces:
                write_at(descriptor, data.reshape(-1).data, position)
            return size

        out.truncate(shard.size)
        write_at(descriptor, shard.begin, 0)
        for step in shard.weights:
            for output in step.outputs[2:]:
                stored = means.layout.stored_global_scale(scales[step.module])
                write_at(descriptor, stored, output.begin)
        yield from flow(_read(file.fileno(), shard, blocks), work, keep, means.threads)
        os.fsync(descriptor)


def _read(
    descriptor: int, shard: ShardPlan, blocks: Callable[[Step], Iterator[Block]]
) -> Iterator[tuple[Step, Block, Bytes]]:
    for step in shard.steps:
        for block in blocks(step):
            yield step, block, block.read(descriptor)
