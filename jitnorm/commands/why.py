"""`cache why`: which tier of the cache has a kernel, or how the nearest entries differ from it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from itertools import chain
from typing import Any, NamedTuple

from jitnorm.building import toolchain_for
from jitnorm.cache import Cache, Store, Tier, failed_tiers
from jitnorm.commands.console import print_facts, print_json
from jitnorm.commands.listing import short_config
from jitnorm.commands.place import target_or_default
from jitnorm.commands.selection import SHORT_KEY, Filter, Item, items, problem_of
from jitnorm.kernel_source import kernel_key, kernel_source_key, recipe_text, source_digest, source_for
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.generator import Source
from jitnorm.kernels.launch_recipe import LAUNCHER_ABI
from jitnorm.kernels.quant_spec import to_text
from jitnorm.kernels.target import Target
from jitnorm.lookup import Candidate, candidates
from jitnorm.misses import jit_mode, warm_command
from jitnorm.store import user_cache
from jitnorm.toolchains import Toolchain, ToolchainMissingError
from jitnorm.warm.expand import configs_of_text

_FOUND, _NOT_THERE = "found", "not there"
_OF_A_VERSION = ("launcher_abi", "recipe", "source")  # fields that change with the version of jitnorm
_DIGESTS = ("recipe", "source")


@dataclass(frozen=True)
class Difference:
    """A field in which an entry differs; `found` is None if the entry lacks it."""

    field: str
    wanted: str
    found: str | None


@dataclass(frozen=True)
class Near:
    """An entry that would serve if not for the differences."""

    key: str
    tier: str
    config: str
    target: str
    differences: tuple[Difference, ...]


@dataclass(frozen=True)
class Answer:
    """The result of a lookup, and the reasons for it.

    Attributes:
        config: the full configuration.
        target: the target that needs the kernel.
        mode: the value of JITNORM_JIT.
        key: the key that is looked up; None without a compiler, whose identity is part of the key.
        source_key: the key shared by all artifacts of this source, any of which serves where nothing can be compiled.
        toolchain: the compiler that the key names; None without one.
        tier: the tier that has the kernel; None for a miss.
        found_key: the key of the artifact found; None for a miss.
        found_target: the target that it was built for, or that target's family; None for a miss.
        found_config: its configuration, which may have another schedule; None for a miss.
        asked: the tiers in lookup order, each with its answer.
        nearest: the nearest entries of folders, nearest first; empty for a hit.
        command: the command that warms the kernel.
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
        """Whether a call would find the kernel."""
        return self.tier is not None


def explain(config: KernelConfig, target: Target, cache: Cache, backend: str = "auto", count: int = 3) -> Answer:
    """Look a kernel up as `load_or_build_kernel` does, without building or recording anything.

    Args:
        config: the kernel's configuration.
        target: the target that needs the kernel.
        cache: the cache to search.
        backend: as in `jitnorm.toolchains.select`.
        count: how many of the nearest entries to list.

    Raises:
        ValueError: the backend or the value of JITNORM_JIT is invalid.
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
    """An artifact that serves: its tier and key, and the source that it was built from."""

    tier: str
    key: str
    source: Source


def _find(wanted: Iterable[Candidate], source: Source, cache: Cache, asked: dict[str, str]) -> _Found | None:
    """The first artifact that serves, found in the same way as by a call; `asked` receives each tier's answer."""
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
    """`_FOUND`, or why the artifact does not serve; empty if there is none."""
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
    """The target and schedule of the found kernel, if they differ from those wanted."""
    target = "" if found.target == wanted.target else f" for {found.target}"
    schedule = found.config.schedule
    return target if schedule == wanted.config.schedule else f"{target} with {_schedule(schedule)}"


def _schedule(schedule: str) -> str:
    return f"schedule {schedule}" if schedule else "the rules' schedule"


def _quarantined(store: Store, key: str) -> str:
    count = len(list(store.layout.quarantine.glob(f"{key}.*")))
    return f"not there; quarantine holds {count} damaged entries with this key" if count else ""


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
    except ValueError:  # written by a version with other fields
        return [Difference("config", str(wanted), text)]
    return [
        Difference(f.name, to_text(getattr(wanted, f.name)), to_text(getattr(found, f.name)))
        for f in fields(KernelConfig)
        if getattr(wanted, f.name) != getattr(found, f.name)
    ]


def _sources(source: Source, manifest: Mapping[str, Any]) -> list[Difference]:
    """How the sources of one kernel by two versions of jitnorm differ."""
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
        return [*backend, *identity]  # whose flags always differ
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


def show_why(config: str, target: str | None, *, backend: str, nearest: int, as_json: bool) -> bool:
    """Print which kernels of a configuration are cached, and why others are not; return whether all are.

    Raises:
        ValueError: the configuration, target or backend is invalid.
        CacheError: the cache is unusable.
    """
    KernelConfig.parse(config)  # raises before a GPU is looked for
    of, _ = target_or_default(target)
    answers = [explain(each, of, user_cache(), backend, nearest) for each in configs_of_text(config, of)]
    missing = [each for each in answers if not each.is_hit]
    first = (missing or answers)[0]
    if as_json:
        print_json({**_record(first), "calls": [_record(each) for each in answers]})
        return not missing
    others = [each for each in answers if each is not first]
    remedy = warm_command(config, str(of)) if others else first.command
    also = (("also", f"{short_config(each.config)}: {_verdict(each)}") for each in others)
    print_facts(chain(_lines(first), also, [("remedy", remedy)] if missing else ()))
    return not missing


def _record(answer: Answer) -> dict[str, Any]:
    return {**asdict(answer), "is_hit": answer.is_hit}


def _lines(answer: Answer) -> Iterator[tuple[str, str]]:
    yield "config", answer.config
    yield "target", answer.target
    yield "key", answer.key or "none without a compiler; any artifact of the same source serves"
    yield "source key", answer.source_key
    if answer.toolchain:
        yield "toolchain", answer.toolchain
    yield "answer", _verdict(answer)
    if answer.is_hit and answer.found_target != answer.target:
        yield "", f"as {answer.found_key}, which was built for {answer.found_target}"
    elif answer.is_hit and answer.found_config != answer.config:
        yield "", f"as {answer.found_key}, {short_config(str(answer.found_config))}: only its schedule differs"
    elif answer.is_hit and answer.found_key != answer.key:
        yield "", f"as {answer.found_key}, which another compiler built from the same source"
    for tier, reply in answer.asked.items():
        yield "asked", f"{tier}: {reply}"
    for near in answer.nearest:
        yield "near", f"{near.key[:SHORT_KEY]} {short_config(near.config)} for {near.target}, in {near.tier}"
        for line in _difference_lines(near):
            yield "", f"  {line}"


def _verdict(answer: Answer) -> str:
    return f"hit in {answer.tier}" if answer.is_hit else f"miss: {_meaning(answer)}"


def _meaning(answer: Answer) -> str:
    if answer.mode == "deny":
        return "a call raises KernelNotWarmError, because JITNORM_JIT is 'deny'"
    return "a call compiles it" if answer.toolchain else "a call raises ToolchainMissingError: no compiler is installed"


def _difference_lines(near: Near) -> Iterator[str]:
    if any(each.field in _OF_A_VERSION for each in near.differences):
        yield "generated by another version of jitnorm"
    for each in near.differences:
        wanted, found = each.wanted, "not recorded" if each.found is None else each.found
        if each.field in _DIGESTS:
            wanted, found = wanted[:SHORT_KEY], found[:SHORT_KEY]
        yield f"{each.field}: {found}, wanted: {wanted}"
    if not near.differences:
        yield "equal in every field, but unusable; see the tiers above"
