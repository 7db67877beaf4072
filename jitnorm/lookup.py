"""Looking a kernel up: what would serve a call without building, in the order of preference."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from jitnorm.building import Selection, lazy_selection
from jitnorm.cache import Artifact, Cache, Tier
from jitnorm.cache.aliases import source_key_of
from jitnorm.kernel_source import kernel_key, kernel_source_key, recipe_text, source_for, why_not_cute
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.generator import Source
from jitnorm.kernels.target import Target
from jitnorm.misses import jit_mode
from jitnorm.requirements import unmet
from jitnorm.toolchains import Toolchain, requested_backend
from jitnorm.tuning import stand_ins

_LOG = logging.getLogger("jitnorm.cache")
_OTHER_RECIPE = "its recipe is another"


class Candidate(NamedTuple):
    """A candidate to serve a call: the artifact of a key, or any artifact of a source.

    Attributes:
        source: its source, whose configuration or target may stand in for the call's.
        key: the key of the toolchain's artifact; empty if any toolchain's artifact serves.
        source_key: the source key of the artifacts that serve in that case, else empty.
        backend: the backend whose artifacts serve; ``auto`` for all.
    """

    source: Source
    key: str
    source_key: str
    backend: str

    @classmethod
    def of_toolchain(cls, source: Source, toolchain: Toolchain) -> Candidate:
        """The candidate that a toolchain builds from a source."""
        return cls(source, kernel_key(source, toolchain), "", "auto")

    def find(self, cache: Cache) -> Artifact | None:
        """The first artifact in the tiers without an objection, or None."""
        if self.key:
            return cache.load(self.key, self.serves)
        return cache.load_source(self.source_key, self.serves)

    def keys_in(self, tier: Tier) -> Sequence[str]:
        """The keys that `find` looks up in a tier, in order."""
        return (self.key,) if self.key else tier.keys_of(self.source_key)[::-1]

    def serves(self, artifact: Artifact) -> bool:
        """Whether there is no objection to an artifact."""
        objection = self.objection(artifact)
        if objection == _OTHER_RECIPE:
            _LOG.warning("ignoring an artifact of %s for %s: %s", self.source.config, self.source.target, objection)
        return not objection

    def objection(self, artifact: Artifact) -> str:
        """Why a found artifact cannot be used here, in words; empty if it can."""
        if needed := unmet(artifact):
            return f"it needs {needed}, which this machine does not have"
        if self.source_key and source_key_of(artifact) != self.source_key:
            return "an alias leads to another source"
        built_by = artifact.manifest.get("backend")
        if self.backend not in ("auto", built_by):
            return f"built by {built_by}, and {self.backend} is asked for"
        # Whoever stored an artifact chose its key, but a recipe decides what is read and written, so it is checked.
        recipe = recipe_text(self.source.config, self.source.target, self.source.language)
        return "" if artifact.manifest.get("recipe") == recipe else _OTHER_RECIPE


def candidates(config: KernelConfig, target: Target, cache: Cache, backend: str = "auto") -> Iterator[Candidate]:
    """Candidates to serve a call without building, in order of preference.

    First comes the artifact of the toolchain, for the target or else for its family. If the toolchain only stands in
    for others, any toolchain's artifact serves; if compiling is impossible or forbidden, so does one with another
    schedule, which was warmed before or after tuning.

    Args:
        config: the kernel.
        target: what it is needed for.
        cache: the cache whose folder remembers toolchains.
        backend: as for `get_kernel`.
    """
    return _candidates(config, target, backend, lazy_selection(config, target, cache, backend))


def _candidates(
    config: KernelConfig, target: Target, backend: str, select: Callable[[], Selection]
) -> Iterator[Candidate]:
    is_final = jit_mode() == "deny" or not select().toolchain
    serves_any = is_final or ((toolchain := select().toolchain) is not None and toolchain.stands_in)
    for each in chain([config], stand_ins(config, target) if is_final else ()):
        for of in [target] if target.family is None else [target, target.family]:
            if serves_any:
                yield from _built_anywhere(each, of, requested_backend(target, backend))
            if toolchain := select().toolchain:
                yield Candidate.of_toolchain(source_for(each, of, toolchain.name), toolchain)


def _built_anywhere(config: KernelConfig, target: Target, backend: str) -> Iterator[Candidate]:
    """Candidates from the source in any language that the backend allows."""
    if target.is_cpu or why_not_cute(config):
        languages, backend = ["c++"], "auto" if backend == "cute" else backend
    else:
        languages = [*["c++"] * (backend != "cute"), *["cute"] * (backend in ("auto", "cute"))]
    for language in languages:
        source = source_for(config, target, language)
        yield Candidate(source, "", kernel_source_key(source), backend)


def find_artifact(
    config: KernelConfig, target: Target, cache: Cache, backend: str, select: Callable[[], Selection]
) -> Artifact | None:
    """The artifact of the first candidate that has one."""
    found = (each.find(cache) for each in _candidates(config, target, backend, select))
    return next(filter(None, found), None)
