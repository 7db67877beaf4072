"""Keeping the cache intact and within bounds."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass

from jitnorm.cache import Store
from jitnorm.cache.budget import byte_budget, parse_size
from jitnorm.cache.check import verify
from jitnorm.cache.opening import signature_check
from jitnorm.cache.removal import Pruned
from jitnorm.cache.space import clear, prune, usage
from jitnorm.cache.store import SignatureCheck
from jitnorm.commands.condition import distrust_of
from jitnorm.commands.console import print_json, say
from jitnorm.commands.selection import find_key, folder_tiers
from jitnorm.commands.units import SHORT_KEY, size
from jitnorm.store import user_cache, user_store


@dataclass(frozen=True)
class Checked:
    """What was found of one entry in one tier.

    Attributes:
        tier: the name of the tier.
        key: its key.
        problem: what is wrong with it; empty if it can be used.
        quarantined: whether it has been moved to the quarantine.
    """

    tier: str
    key: str
    problem: str
    quarantined: bool


def verify_entries(texts: tuple[str, ...], *, repair: bool, as_json: bool) -> bool:
    """Read every byte of entries in all folders, and print what is wrong; return whether nothing is.

    With trusted keys an entry that none of them has signed is wrong, in the user's cache, too, where it is loaded and
    left alone.

    Args:
        texts: keys or their beginnings; none for all entries.
        repair: move damaged entries of the user's cache to the quarantine.
        as_json: for programs.

    Raises:
        ValueError: a key is not one, or the beginning of several.
        CacheError: no entry has such a key, or the cache cannot be used.
    """
    cache = user_cache()
    tiers, trusted = folder_tiers(cache), signature_check()
    there = {store.name: [key for key, _ in store.layout.entries()] for store in tiers}
    known = [key for keys in there.values() for key in keys]
    wanted = {find_key(known, text) for text in texts} if texts else set(known)
    checked = [
        each
        for store in tiers
        for each in _check(
            store,
            [key for key in there[store.name] if key in wanted],
            trusted if store is cache.store else None,
            repair=repair,
        )
    ]
    wrong = [each for each in checked if each.problem]
    if as_json:
        print_json({"checked": len(checked), "wrong": [asdict(each) for each in wrong]})
    else:
        for each in wrong:
            moved = "; moved to the quarantine, to be built again" if each.quarantined else ""
            say(f"{each.key[:SHORT_KEY]} in {each.tier}: {each.problem}{moved}")
        print(f"{len(checked)} entries verified, {len(wrong)} wrong")
    return not wrong


def _check(store: Store, keys: list[str], trusted: SignatureCheck | None, *, repair: bool) -> list[Checked]:
    """What is wrong with entries; `trusted` is what signatures must pass that loading does not ask for."""
    found = []
    for result in verify(store, keys, repair=repair and store.writable):
        # What is not there was there when it was listed: another process has removed it, which is nobody's fault.
        if not result.is_there:
            continue
        problem = result.problem or ""
        if not problem and trusted is not None and (distrust := distrust_of(store, result.key, trusted)):
            problem = f"{distrust}. It is loaded all the same: {store.name} needs no signatures"
        found.append(Checked(store.name, result.key, problem, result.quarantined))
    return found


def prune_cache(max_bytes: str | None, *, dry_run: bool, as_json: bool) -> bool:
    """Remove what was used least recently, and print what; return whether the cache is within its bounds.

    Args:
        max_bytes: what may stay, as ``JITNORM_CACHE_MAX_BYTES`` has it, which is the default.
        dry_run: only say what would be removed.
        as_json: for programs.

    Raises:
        ValueError: the size is not one.
        CacheError: the cache cannot be used or written.
    """
    bound = _bound(max_bytes)
    store = user_store()
    done = prune(store, bound, dry_run=dry_run)
    _show(done, store, dry_run=dry_run, as_json=as_json)
    return done.complete and done.bytes_after <= bound


def clear_cache(*, yes: bool, force: bool, dry_run: bool, as_json: bool) -> bool:
    """Remove everything, and print how much that was; return whether nothing is left.

    Args:
        yes: do not ask, as where nobody can answer.
        force: also remove what living processes have loaded.
        dry_run: only say what would be removed.
        as_json: for programs.

    Raises:
        CacheError: the cache cannot be used or written.
    """
    store = user_store()
    if not (yes or dry_run) and sys.stdin.isatty():
        import typer

        held = usage(store)
        question = f"Remove {held.entries} entries, {size(held.total_bytes)}, from {store.layout.root}?"
        typer.confirm(question, abort=True, err=True)
    done = clear(store, force=force, dry_run=dry_run)
    _show(done, store, dry_run=dry_run, as_json=as_json)
    return done.complete and not done.spared


def _bound(text: str | None) -> int:
    try:
        bound = byte_budget() if text is None else parse_size(text)
    except ValueError as error:
        raise ValueError(f"max-bytes: is {error}") from error
    return sys.maxsize if bound is None else bound


def _show(done: Pruned, store: Store, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        print_json({"path": store.layout.root, "dry_run": dry_run, **asdict(done)})
        return
    removed = "would be removed" if dry_run else "removed"
    print(
        f"{len(done.evicted)} entries {removed} and {done.quarantine_removed} from the quarantine; "
        f"{size(done.bytes_before)} of disk space before, {size(done.bytes_after)} after, in {store.layout.root}"
    )
    if done.spared:
        print(f"{done.spared} entries stay: living processes use them")
    if not done.complete:
        print("not finished: another process is removing entries, or the time ran out")
