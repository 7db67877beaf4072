"""Collects the jobs of all sources: configurations, ops, specifications, models, presets and records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.target import Target
from jitnorm.warm.entry import Entry, multiply, read_value
from jitnorm.warm.expand import configs_of_text
from jitnorm.warm.model_config import load_model
from jitnorm.warm.models import entries_of, left_out_of
from jitnorm.warm.plan import Job, jobs_of
from jitnorm.warm.record import read_record
from jitnorm.warm.spec import load_entries, preset_file


@dataclass(frozen=True)
class Sources:
    """The sources named by the user.

    Attributes:
        configs: text forms of KernelConfig; each stands for the kernel that `get_kernel` returns, and for every kernel
            that calls need for the fields it leaves open.
        ops: names of ops.
        choices: one or several values for each choice of these ops.
        specs: files of specifications.
        models: ``config.json`` files, or their folders.
        presets: names of built-in specifications.
        records: records of misses.
        formats: encodings that replace those of models; None to keep them.
        row_classes: classes of rows of calls of models; None for the specification's, else all.
        tensor_parallel: numbers of GPUs that share a model; None for the specification's, else 1.
    """

    configs: Sequence[str] = ()
    ops: Sequence[str] = ()
    choices: Mapping[str, Any] = field(default_factory=dict)
    specs: Sequence[Path] = ()
    models: Sequence[Path] = ()
    presets: Sequence[str] = ()
    records: Sequence[Path] = ()
    formats: Sequence[str] | None = None
    row_classes: Sequence[str] | None = None
    tensor_parallel: Sequence[int] | None = None

    @property
    def name_targets(self) -> bool:
        """Whether the sources themselves name targets."""
        return bool(self.records) and not (self.configs or self.ops or self.specs or self.models or self.presets)

    def require_some(self) -> None:
        """Raise ValueError if there is no source, or if choices are given without an op."""
        if not (self.configs or self.ops or self.specs or self.models or self.presets or self.records):
            raise ValueError("no source is given; use --preset, --model, --spec, --op, --config or --from")
        if self.choices and not self.ops:
            raise ValueError(f"{next(iter(self.choices))}: is given without an --op that has it")

    def jobs(self, targets: Sequence[Target]) -> list[Job]:
        """The jobs of all sources, each once.

        Args:
            targets: targets to build for; from records, only their misses. Empty for the targets that records name.

        Raises:
            ValueError: a source is invalid.
        """
        found = [
            Job(config, target)
            for target in targets
            for text in self.configs
            for config in (*configs_of_text(text, target), KernelConfig.parse(text))
        ]
        found += jobs_of(self._entries(), targets)
        recorded = (Job(*pair) for path in self.records for pair in read_record(path))
        found += [job for job in recorded if not targets or job.target in targets]
        return list(dict.fromkeys(found))

    def left_out(self) -> list[str]:
        """The parts of the models without a kernel, or without one in the requested sizes, one line each."""
        parts = self.tensor_parallel or (1,)
        return [
            line for path in self.models for line in left_out_of(load_model(path), self.formats, tensor_parallel=parts)
        ]

    def _entries(self) -> list[Entry]:
        settings: dict[str, Any] = {"formats": self.formats, "row_class": self.row_classes}
        files = [*self.specs, *map(preset_file, self.presets)]
        found = [e for file in files for e in load_entries(file, **settings, tensor_parallel=self.tensor_parallel)]
        for path in self.models:
            found += entries_of(
                load_model(path),
                self.formats,
                row_class=self.row_classes or "all",
                tensor_parallel=self.tensor_parallel or (1,),
            )
        if self.ops:
            found += multiply(self.ops, self.choices)
        return found


def read_choices(named: Mapping[str, str], others: Sequence[str]) -> dict[str, Any]:
    """Parse choices from a command line.

    Args:
        named: choices with options of their own; empty ones are ignored.
        others: ``NAME=VALUE``.

    Raises:
        ValueError: one cannot be read.

    Example:
        >>> read_choices({"hidden_size": "64,128", "quant": ""}, ["residual=true"])
        {'hidden_size': [64, 128], 'residual': True}
    """
    texts = {name: text for name, text in named.items() if text}
    for item in others:
        name, equals, text = item.partition("=")
        if not equals or name in texts:
            raise ValueError(f"set: cannot read {item!r}; write NAME=VALUE once for each name")
        texts[name] = text
    found = {name: [read_value(name, part) for part in text.split(",")] for name, text in texts.items()}
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}
