"""What is to be warmed: configurations, ops, specifications, models, families and records, as one list of jobs."""

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
from jitnorm.warm.spec import family_file, load_entries


@dataclass(frozen=True)
class Sources:
    """What the user has named.

    Attributes:
        configs: text forms of KernelConfig: each stands for itself, as `get_kernel` takes it, and for what calls have
            of all that it leaves open.
        ops: names of ops.
        choices: for each choice of these ops a value, or several.
        specs: files of specifications.
        models: ``config.json`` files, or their folders.
        families: built-in specifications.
        records: records of misses.
        formats: encodings of models, in place of their own; None for these.
        calls: which calls of models are meant; None for what a specification says, else all.
        tensor_parallel: over how many GPUs models are divided; None for what a specification says, else 1.
    """

    configs: Sequence[str] = ()
    ops: Sequence[str] = ()
    choices: Mapping[str, Any] = field(default_factory=dict)
    specs: Sequence[Path] = ()
    models: Sequence[Path] = ()
    families: Sequence[str] = ()
    records: Sequence[Path] = ()
    formats: Sequence[str] | None = None
    calls: str | None = None
    tensor_parallel: Sequence[int] | None = None

    @property
    def name_targets(self) -> bool:
        """Whether they say themselves what to build for."""
        return bool(self.records) and not (self.configs or self.ops or self.specs or self.models or self.families)

    def require_some(self) -> None:
        """Raise ValueError if nothing is named, or choices are given without an op that could have them."""
        if not (self.configs or self.ops or self.specs or self.models or self.families or self.records):
            raise ValueError("nothing is named; use --family, --model, --spec, --op, --config or --from")
        if self.choices and not self.ops:
            raise ValueError(f"{next(iter(self.choices))}: is given, but no --op that has it")

    def jobs(self, targets: Sequence[Target]) -> list[Job]:
        """All that is named, each once.

        Args:
            targets: what to build for; of records, only what was missing for these. Empty: whatever records name.

        Raises:
            ValueError: something that is named is not allowed.
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
        """What of the models that are named has no kernel, or none of the sizes that are asked for, a line each."""
        parts = self.tensor_parallel or (1,)
        return [
            line for path in self.models for line in left_out_of(load_model(path), self.formats, tensor_parallel=parts)
        ]

    def _entries(self) -> list[Entry]:
        settings: dict[str, Any] = {"formats": self.formats, "calls": self.calls}
        files = [*self.specs, *map(family_file, self.families)]
        found = [e for file in files for e in load_entries(file, **settings, tensor_parallel=self.tensor_parallel)]
        for path in self.models:
            found += entries_of(
                load_model(path), self.formats, calls=self.calls or "all", tensor_parallel=self.tensor_parallel or (1,)
            )
        if self.ops:
            found += multiply(self.ops, self.choices)
        return found


def read_choices(named: Mapping[str, str], others: Sequence[str], calls: str) -> dict[str, Any]:
    """Choices as they are written on a command line.

    Args:
        named: those with options of their own; empty ones are left out.
        others: ``NAME=VALUE``.
        calls: which calls are meant; empty for all.

    Raises:
        ValueError: one cannot be read.

    Example:
        >>> read_choices({"hidden_size": "64,128", "quant": ""}, ["residual=true"], "")
        {'hidden_size': [64, 128], 'residual': True}
    """
    texts = {name: text for name, text in named.items() if text}
    for item in others:
        name, equals, text = item.partition("=")
        if not equals or name in texts:
            raise ValueError(f"set: cannot read {item!r}; write NAME=VALUE once for each name")
        texts[name] = text
    if calls:
        texts["calls"] = calls
    found = {name: [read_value(name, part) for part in text.split(",")] for name, text in texts.items()}
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}
