"""Entries to a remote cache and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

from jitnorm.cache.key import is_key
from jitnorm.cache.opening import REMOTE_VARIABLE, publishing_check, remote_tier, signature_check
from jitnorm.cache.transfer import Transfer, pull, push
from jitnorm.commands.console import make_error_console, print_json, say
from jitnorm.commands.selection import Filter, remote_entries, select, select_some
from jitnorm.commands.units import SHORT_KEY, size
from jitnorm.store import user_store

if TYPE_CHECKING:
    from jitnorm.cache.remote import RemoteTier
    from jitnorm.cache.transfer import Progress


def push_entries(wanted: Filter, url: str | None, *, replace: bool, as_json: bool) -> bool:
    """Copy entries of the user's cache to a remote one, and print which; return whether none was refused.

    Raises:
        ValueError: no remote cache is named, or a key is not one.
        CacheError: nothing is meant, or the remote cache does not answer.
    """
    store, remote = user_store(), _remote(url, "--to")
    keys = select_some(store, wanted)
    with _progress("pushing") as progress:
        done = push(store, remote, keys, check=publishing_check(), replace=replace, progress=progress)
    return _show(done, remote, "pushed to", as_json)


def pull_entries(wanted: Filter, url: str | None, *, everything: bool, as_json: bool) -> bool:
    """Copy entries of a remote cache into the user's, and print which; return whether none was refused.

    Raises:
        ValueError: no remote cache is named, nothing is, or a key is not one.
        CacheError: the remote cache does not answer or list, or the user's cannot be written.
    """
    if everything != wanted.is_everything:
        raise ValueError("pull: name what to copy, either keys, --target, --kind, or --all")
    store, remote = user_store(), _remote(url, "--from")
    keys = _keys_there(remote, wanted)
    with _progress("pulling") as progress:
        done = pull(store, remote, keys, progress=progress)
    return _show(done, remote, "pulled from", as_json)


def _keys_there(remote: RemoteTier, wanted: Filter) -> list[str]:
    if wanted.is_everything:
        return remote.keys()
    if all(map(is_key, wanted.keys)) and wanted == Filter(keys=wanted.keys, launchers_stay=wanted.launchers_stay):
        return list(wanted.keys)
    return [entry.key for entry in select(remote_entries(remote), wanted)]


def _remote(url: str | None, option: str) -> RemoteTier:
    found = remote_tier(signature_check(), url)
    if found is None:
        raise ValueError(f"no remote cache is configured: set {REMOTE_VARIABLE} to its URL, or name it with {option}")
    return found


@contextmanager
def _progress(verb: str) -> Iterator[Progress | None]:
    """What shows how far a transfer is, on terminals alone."""
    console = make_error_console()
    if not console.is_terminal:
        yield None
        return
    from rich.progress import Progress as Bar

    with Bar(console=console, transient=True) as bar:
        task = bar.add_task(verb, total=None)
        update: Callable[[int, int, str, int], None] = lambda done, total, key, count: bar.update(  # noqa: E731
            task, completed=done, total=total
        )
        yield update


def _show(done: Transfer, remote: RemoteTier, verb: str, as_json: bool) -> bool:
    if as_json:
        print_json({"tier": remote.name, **asdict(done)})
    else:
        for key, reason in done.refused.items():
            say(f"refused {key[:SHORT_KEY]}: {reason}")
        refused = f", {len(done.refused)} refused" if done.refused else ""
        say(
            f"{len(done.moved)} entries, {size(done.bytes)}, {verb} {remote.name}; "
            f"{len(done.present)} were there already{refused}"
        )
    return not done.refused
