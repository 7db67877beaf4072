"""The plan of a checkpoint's quantization: the place of every byte, known before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jitnorm.checkpoint.layouts import Layout
from jitnorm.checkpoint.selection import Selection, select
from jitnorm.checkpoint.source import Source
from jitnorm.checkpoint.stored import StoredTensor, arranged


@dataclass(frozen=True)
class Step:
    """A tensor, and what it becomes.

    Attributes:
        tensor: the tensor in its file.
        outputs: codes, scales and perhaps a global scale at their places; if `module` is empty, the tensor's copy.
        module: the module whose weight it is, if it is quantized.
    """

    tensor: StoredTensor
    outputs: tuple[StoredTensor, ...]
    module: str = ""


@dataclass(frozen=True)
class ShardPlan:
    """A file, and what it becomes.

    Attributes:
        file: the name of the file, and of the one to write.
        begin: the beginning of the new file.
        size: bytes of the new file.
        steps: its tensors, in reading order.
    """

    file: str
    begin: bytes
    size: int
    steps: tuple[Step, ...]

    @property
    def weights(self) -> list[Step]:
        """The steps that quantize."""
        return [step for step in self.steps if step.module]


@dataclass(frozen=True)
class Plan:
    """A checkpoint, and what it becomes.

    Attributes:
        source: the checkpoint.
        layout: the format, and its tensors.
        selection: what is quantized.
        shards: the files.
    """

    source: Source
    layout: Layout
    selection: Selection
    shards: tuple[ShardPlan, ...]

    @property
    def size(self) -> int:
        """Bytes of all files to write, including copies."""
        copied = sum((self.source.folder / path).stat().st_size for path in self.source.others)
        return sum(shard.size for shard in self.shards) + copied


def plan_of(source: Source, layout: Layout, ignore: Sequence[str] = ()) -> Plan:
    """Plan the quantization of a checkpoint.

    Args:
        source: the checkpoint.
        layout: the format to encode weights in, and its tensors.
        ignore: see `select`.

    Raises:
        ValueError: a weight cannot be encoded, or two tensors would have the same name.
    """
    selection = select([tensor for tensors in source.shards.values() for tensor in tensors], ignore)
    for weight in selection.weights.values():
        layout.check(weight)
    shards = tuple(_planned(source, file, layout, selection) for file in source.shards)
    _check_names(shards)
    return Plan(source, layout, selection, shards)


def _planned(source: Source, file: str, layout: Layout, selection: Selection) -> ShardPlan:
    modules = {weight.name: module for module, weight in selection.weights.items()}
    tensors = source.shards[file]
    made = {
        tensor.name: layout.outputs(modules[tensor.name], tensor.shape)
        if tensor.name in modules
        else [StoredTensor(tensor.name, tensor.dtype, tensor.shape)]
        for tensor in tensors
    }
    begin, placed = arranged([output for outputs in made.values() for output in outputs], source.metadata[file])
    places = {output.name: output for output in placed}
    steps = tuple(
        Step(tensor, tuple(places[output.name] for output in made[tensor.name]), modules.get(tensor.name, ""))
        for tensor in tensors
    )
    return ShardPlan(file, begin, len(begin) + sum(output.size for output in placed), steps)


def _check_names(shards: Sequence[ShardPlan]) -> None:
    owners: dict[str, str] = {}
    for step in (step for shard in shards for step in shard.steps):
        for output in step.outputs:
            other = owners.setdefault(output.name, step.tensor.name)
            if other != step.tensor.name:
                raise ValueError(
                    f"in: {other} and {step.tensor.name} would both become {output.name}; the checkpoint seems to be "
                    "quantized already, at least in part"
                )
