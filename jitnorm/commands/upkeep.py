"""Keeps the cache intact and within bounds: `cache verify`, `prune` and `clear`."""

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
from jitnorm.commands.console import entries, print_json, say, size
from jitnorm.commands.selection import SHORT_KEY, distrust_of, find_key, folder_tiers, uncollected
from jitnorm.store import user_cache, user_store


@dataclass(frozen=True)
class Checked:
    """The result of verifying one entry in one tier.

    Attributes:
        tier: the name of the tier.
        key: the entry's key.
        problem: what is wrong with the entry; empty if it is usable.
        quarantined: whether it was moved to quarantine.
    """

    tier: str
    key: str
    problem: str
    quarantined: bool


def verify_entries(texts: tuple[str, ...], *, repair: bool, as_json: bool) -> bool:
    """Verify every byte of entries in all folders, and print what is wrong; return whether nothing is.

    With trusted keys, an entry signed by none of them counts as wrong, even in the user's cache, which loads it.

    Args:
        texts: keys or unique prefixes; none for all entries.
        repair: move damaged entries of the user's cache to quarantine.
        as_json: print JSON.

    Raises:
        ValueError: a key is malformed or ambiguous.
        CacheError: no entry has such a key, or the cache is unusable.
    """
    cache = user_cache()
    tiers, trusted = folder_tiers(cache), signature_check(cache.store)
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
            moved = "; moved to quarantine, the next call rebuilds it" if each.quarantined else ""
            say(f"{each.key[:SHORT_KEY]} in {each.tier}: {each.problem}{moved}")
        print(f"{entries(len(checked))} verified, {len(wrong)} wrong")
    return not wrong


def _check(store: Store, keys: list[str], trusted: SignatureCheck | None, *, repair: bool) -> list[Checked]:
    """Verify entries of a store; `trusted` also checks signatures where loading does not."""
    found = []
    for result in verify(store, keys, repair=repair and store.writable):
        # An entry that has vanished since it was listed was removed by another process, which is fine.
        if not result.is_there:
            continue
        problem = result.problem or ""
        if not problem and trusted is not None and (distrust := distrust_of(store, result.key, trusted)):
            problem = f"{distrust}. It is loaded anyway: {store.name} needs no signatures"
        found.append(Checked(store.name, result.key, problem, result.quarantined))
    return found


def prune_cache(max_bytes: str | None, *, dry_run: bool, as_json: bool) -> bool:
    """Remove the least recently used entries, and print a summary; return whether the cache fits its bound.

    Args:
        max_bytes: the bound, in the form of JITNORM_CACHE_MAX_BYTES, which is the default.
        dry_run: remove nothing.
        as_json: print JSON.

    Raises:
        ValueError: the size cannot be read.
        CacheError: the cache is unusable or read-only.
    """
    bound = _bound(max_bytes)
    store = user_store()
    with uncollected():
        done = prune(store, bound, dry_run=dry_run)
    _show(done, store, dry_run=dry_run, as_json=as_json)
    return done.complete and done.bytes_after <= bound


def clear_cache(*, yes: bool, force: bool, dry_run: bool, as_json: bool) -> bool:
    """Remove everything, and print a summary; return whether nothing is left.

    Args:
        yes: do not ask for confirmation, which happens only if stdin is a terminal.
        force: also remove entries loaded by running processes.
        dry_run: remove nothing.
        as_json: print JSON.

    Raises:
        CacheError: the cache is unusable or read-only.
    """
    store = user_store()
    if not (yes or dry_run) and sys.stdin.isatty():
        import typer

        held = usage(store)
        question = f"Remove {entries(held.entries)}, {size(held.total_bytes)}, from {store.layout.root}?"
        typer.confirm(question, abort=True, err=True)
    with uncollected():
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
        f"{entries(len(done.evicted))} {removed}, and {done.quarantine_removed} from quarantine; "
        f"{size(done.bytes_before)} of disk space before, {size(done.bytes_after)} after, in {store.layout.root}"
    )
    if done.spared:
        print(f"kept because running processes use them: {entries(done.spared)}")
    if not done.complete:
        print("unfinished: another process is removing entries, or time ran out")
