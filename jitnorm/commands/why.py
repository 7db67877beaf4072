"""Why a kernel is in the cache or not: the key that is looked up, the tiers, and what comes near."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from jitnorm.cache import Cache, Store, Tier, failed_tiers
from jitnorm.commands.condition import problem_of
from jitnorm.commands.listing import short_config
from jitnorm.commands.selection import Filter, Item, items
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.generator import Source
from jitnorm.kernels.launch_recipe import LAUNCHER_ABI
from jitnorm.kernels.quant_spec import to_text
from jitnorm.kernels.target import Target
from jitnorm.manager import (
    Candidate,
    candidates,
    kernel_key,
    kernel_source_key,
    recipe_text,
    source_digest,
    source_for,
    toolchain_for,
)
from jitnorm.misses import jit_mode, warm_command
from jitnorm.toolchains import Toolchain, ToolchainMissingError

_FOUND, _NOT_THERE = "found", "not there"


@dataclass(frozen=True)
class Difference:
    """A field that an entry has another value in; `found` is None where it has none."""

    field: str
    wanted: str
    found: str | None


@dataclass(frozen=True)
class Near:
    """An entry that would have served, but for the differences."""

    key: str
    tier: str
    config: str
    target: str
    differences: tuple[Difference, ...]


@dataclass(frozen=True)
class Answer:
    """What a lookup finds, and why.

    Attributes:
        config: the configuration, in full.
        target: what it is needed for.
        mode: what JITNORM_JIT says.
        key: what it is looked up under; None if there is no compiler, whose identity is a part of it.
        source_key: what artifacts of the same source share, which serve where nothing can be compiled.
        toolchain: the compiler that the key is made for; None if there is none.
        tier: where it is; None if it is nowhere.
        found_key: the key of what is there.
        found_target: what that was built for: the target or its family; None if it is nowhere.
        found_config: its configuration: the same, or one that is divided by another schedule; None if it is nowhere.
        asked: the tiers in their order, each with what it answered.
        nearest: entries of folders that come nearest, the nearest first; none for a hit.
        command: what warms it.
    """

    config: str
    target: str
    mode: str
    key: str | None
    source_key: str
    toolchain: str | None
    tier: str | None
    found_key: str | None
    found_target: str | None
    found_config: str | None
    asked: Mapping[str, str]
    nearest: tuple[Near, ...]
    command: str

    @property
    def is_hit(self) -> bool:
        """Whether a call would find it."""
        return self.tier is not None


def explain(config: KernelConfig, target: Target, cache: Cache, backend: str = "auto", count: int = 3) -> Answer:
    """Look a kernel up as `load_or_build_kernel` does, without building or recording anything.

    Args:
        config: the kernel.
        target: what it is needed for.
        cache: where to look.
        backend: as of `jitnorm.toolchains.select`.
        count: how many entries that come near to name.

    Raises:
        ValueError: the backend or the value of JITNORM_JIT is not allowed.
    """
    try:
        toolchain: Toolchain | None = toolchain_for(config, target, cache.store, backend)
    except ToolchainMissingError:
        toolchain = None
    source = source_for(config, target, "c++" if toolchain is None else toolchain.name)
    asked: dict[str, str] = {}
    found = _find(candidates(config, target, cache, backend), source, cache, asked)
    return Answer(
        config=str(config),
        target=str(target),
        mode=jit_mode(),
        key=None if toolchain is None else kernel_key(source, toolchain),
        source_key=kernel_source_key(source),
        toolchain=None if toolchain is None else toolchain.identity(),
        tier=found.tier if found else None,
        found_key=found.key if found else None,
        found_target=str(found.source.target) if found else None,
        found_config=str(found.source.config) if found else None,
        asked=asked,
        nearest=() if found else _nearest(source, toolchain, items(cache, Filter("kernel")), count),
        command=warm_command(short_config(str(config)), str(target)),
    )


class _Found(NamedTuple):
    """An artifact that serves: where it is, and what it was built from."""

    tier: str
    key: str
    source: Source


def _find(wanted: Iterable[Candidate], source: Source, cache: Cache, asked: dict[str, str]) -> _Found | None:
    """The first artifact that serves, found as a call finds it; what each tier answered goes to `asked`."""
    for candidate in wanted:
        for tier in cache.tiers:
            for key in candidate.keys_in(tier):
                reply = _ask(candidate, tier, key)
                if reply == _FOUND:
                    asked[tier.name] = _FOUND + _instead(source, candidate.source)
                    return _Found(tier.name, key, candidate.source)
                if reply and asked.get(tier.name, _NOT_THERE) == _NOT_THERE:
                    asked[tier.name] = reply
            asked[tier.name] = failed_tiers().get(tier.name) or asked.get(tier.name, _NOT_THERE)
    return None


def _ask(candidate: Candidate, tier: Tier, key: str) -> str:
    """`_FOUND`, or why not; empty if nothing lies there."""
    if isinstance(tier, Store):
        problem = problem_of(tier, key)
        if problem is None:
            return _quarantined(tier, key)
        if problem:
            return f"there, but refused: {problem}"
    artifact = tier.load(key)
    if artifact is None:
        return ""
    objection = candidate.objection(artifact)
    return f"there, but {objection}" if objection else _FOUND


def _instead(wanted: Source, found: Source) -> str:
    """What was found is for, where that is not what was wanted."""
    target = "" if found.target == wanted.target else f" for {found.target}"
    schedule = found.config.schedule
    return target if schedule == wanted.config.schedule else f"{target} with {_schedule(schedule)}"


def _schedule(schedule: str) -> str:
    return f"schedule {schedule}" if schedule else "the rules' schedule"


def _quarantined(store: Store, key: str) -> str:
    count = len(list(store.layout.quarantine.glob(f"{key}.*")))
    return f"not there; the quarantine has {count} damaged entries of this key" if count else ""


def _nearest(source: Source, toolchain: Toolchain | None, found: Iterable[Item], count: int) -> tuple[Near, ...]:
    ranked: dict[str, tuple[tuple[int, int], Near]] = {}
    for item in found:
        manifest = item.entry.manifest
        config, target = str(manifest.get("config")), str(manifest.get("target"))
        asked = [*_configurations(source.config, config), *_difference("target", str(source.target), target)]
        made = [] if asked else _sources(source, manifest)
        if toolchain is not None and target == str(source.target):
            made += _toolchains(toolchain, toolchain.flags(source.target), manifest)
        near = Near(item.entry.key, item.tier, config, target, (*asked, *made))
        ranked.setdefault(near.key, ((len(asked), len(made)), near))
    return tuple(near for _, near in sorted(ranked.values(), key=lambda each: (each[0], each[1].key))[:count])


def _difference(field: str, wanted: str, found: object) -> list[Difference]:
    return [] if found == wanted else [Difference(field, wanted, None if found is None else str(found))]


def _configurations(wanted: KernelConfig, text: str) -> list[Difference]:
    try:
        found = KernelConfig.parse(text)
    except ValueError:  # of a version with other fields
        return [Difference("config", str(wanted), text)]
    return [
        Difference(f.name, to_text(getattr(wanted, f.name)), to_text(getattr(found, f.name)))
        for f in fields(KernelConfig)
        if getattr(wanted, f.name) != getattr(found, f.name)
    ]


def _sources(source: Source, manifest: Mapping[str, Any]) -> list[Difference]:
    """What differs between two sources of the same kernel: they are by different versions of jitnorm."""
    recipe = str(manifest.get("recipe"))
    return [
        *_difference("launcher_abi", str(LAUNCHER_ABI), _abi(recipe)),
        *_difference("recipe", _digest(recipe_text(source.config, source.target)), _digest(recipe)),
        *_difference("source", source_digest(source), manifest.get("source_sha256")),
    ]


def _toolchains(toolchain: Toolchain, flags: Iterable[str], manifest: Mapping[str, Any]) -> list[Difference]:
    backend = _difference("backend", toolchain.name, manifest.get("backend"))
    identity = _difference("toolchain", toolchain.identity(), manifest.get("toolchain"))
    if backend:
        return [*backend, *identity]  # its flags are others anyway
    return [*identity, *_difference("flags", " ".join(flags), _joined(manifest.get("flags")))]


def _joined(flags: object) -> str:
    return " ".join(map(str, flags)) if isinstance(flags, list) else ""


def _abi(recipe: str) -> str | None:
    try:
        return str(json.loads(recipe)["abi"])
    except (ValueError, TypeError, KeyError):
        return None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
