"""Ships entries: `cache export` and `import`, `push` and `pull`, `sign` and `keygen`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from jitnorm.cache.archive import export_archive, import_archive
from jitnorm.cache.key import is_key
from jitnorm.cache.opening import (
    KEYS_VARIABLE,
    REMOTE_VARIABLE,
    SIGNING_VARIABLE,
    publishing_check,
    remote_tier,
    signature_check,
    signature_days,
)
from jitnorm.cache.revocation import revoke
from jitnorm.cache.signature import SigningKey, generate_keys, sign_entries
from jitnorm.cache.transfer import Transfer, pull, push
from jitnorm.commands.console import entries, make_error_console, print_json, say, size
from jitnorm.commands.selection import SHORT_KEY, Filter, remote_entries, select, select_some
from jitnorm.store import user_store

if TYPE_CHECKING:
    from jitnorm.cache.remote import RemoteTier
    from jitnorm.cache.transfer import Progress


def export_file(path: Path, wanted: Filter, *, as_json: bool) -> None:
    """Write entries of the user's cache to an archive, and print a summary.

    Raises:
        CacheError: no entry is selected, or one is damaged.
        ValueError: a key is malformed or ambiguous.
        OSError: the file cannot be written.
    """
    store = user_store()
    keys = export_archive(store, path, select_some(store, wanted))
    count = path.stat().st_size
    if as_json:
        print_json({"file": path, "bytes": count, "keys": keys})
    else:
        print(f"{entries(len(keys))}, {size(count)}, in {path}")


def import_file(path: Path, *, as_json: bool) -> None:
    """Add the entries of an archive to the user's cache, and print a summary.

    Raises:
        CacheError: the file is not an archive, is damaged or not trusted, or the cache cannot be written.
        OSError: the archive cannot be read, or an entry cannot be written.
    """
    store = user_store()
    done = import_archive(store, path, signature_check(store))
    if as_json:
        print_json({"file": path, "added": done.added, "present": done.present})
    else:
        print(f"{entries(len(done.added))} added to {store.layout.root}, {len(done.present)} already there")


def push_entries(wanted: Filter, url: str | None, *, replace: bool, as_json: bool) -> bool:
    """Copy entries of the user's cache to a remote one, and print a summary; return whether none was refused.

    Raises:
        ValueError: no remote cache is named, or a key is malformed or ambiguous.
        CacheError: no entry is selected, or the remote cache does not respond.
    """
    store, remote = user_store(), _remote(url, "--to")
    keys = select_some(store, wanted)
    with _progress("pushing") as progress:
        done = push(store, remote, keys, check=publishing_check(), replace=replace, progress=progress)
    return _show(done, remote, "pushed to", as_json)


def pull_entries(wanted: Filter, url: str | None, *, everything: bool, as_json: bool) -> bool:
    """Copy entries of a remote cache into the user's, and print a summary; return whether none was refused.

    Raises:
        ValueError: no remote cache or no entry is named, or a key is malformed or ambiguous.
        CacheError: the remote cache does not respond or cannot list, or the user's cannot be written.
    """
    if everything != wanted.is_everything:
        raise ValueError("pull: name what to copy: keys, --target, --kind or --all")
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
    store = user_store()
    found = remote_tier(signature_check(store), url, store=store)
    if found is None:
        raise ValueError(f"no remote cache is configured: set {REMOTE_VARIABLE} to its URL, or pass {option}")
    return found


@contextmanager
def _progress(verb: str) -> Iterator[Progress | None]:
    """A progress bar of a transfer; None unless stderr is a terminal."""
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
            f"{entries(len(done.moved))}, {size(done.bytes)}, {verb} {remote.name}; "
            f"{len(done.present)} already there{refused}"
        )
    return not done.refused


def sign_some(wanted: Filter, path: Path | None, *, as_json: bool) -> bool:
    """Sign entries of the user's cache, and print a summary; return whether none of them is damaged.

    Raises:
        ValueError: no private key is named, or the key of an entry is malformed or ambiguous.
        CacheError: the private key cannot be read, or no entry is selected.
        OSError: a signature cannot be written.
    """
    named = path or os.environ.get(SIGNING_VARIABLE)
    if not named:
        raise ValueError(f"no private key is named: pass --key, or set {SIGNING_VARIABLE}")
    store, key = user_store(), SigningKey.load(os.path.expanduser(named), signature_days())
    keys = select_some(store, wanted)
    signed = sign_entries(store, key, keys)
    damaged = sorted(set(keys) - set(signed))
    if as_json:
        print_json({"key_id": key.key_id, "signed": signed, "damaged": damaged})
    else:
        for each in damaged:
            print(f"not signed, damaged: {each[:SHORT_KEY]}")
        print(f"{entries(len(signed))} of {store.layout.root} signed by the key {key.key_id}")
    return not damaged


def revoke_some(
    path: Path, signers: tuple[str, ...], revoked: tuple[str, ...], url: str | None, days: float, *, as_json: bool
) -> None:
    """Publish the next revocation list of a remote cache, and print a summary.

    Raises:
        ValueError: no remote cache is named, an id or a key is malformed, or the term is not above 0.
        CacheError: the private key cannot be read, the remote cache does not respond, or its list has another key.
    """
    remote = remote_tier(url=url)
    if remote is None:
        raise ValueError(f"no remote cache is configured: set {REMOTE_VARIABLE} to its URL, or pass --to")
    done = revoke(remote, SigningKey.load(path.expanduser()), signers=signers, entries=revoked, days=days)
    if as_json:
        print_json({"tier": remote.name, **asdict(done)})
    else:
        revoked_now = f"{len(done.signers)} signing keys and {entries(len(done.entries))}"
        print(f"list number {done.number} of {remote.name} revokes {revoked_now}; renew it within {days:g} days")


def make_keys(private: Path, public: Path | None, *, as_json: bool) -> None:
    """Write a new key pair, and print its files.

    Raises:
        OSError: one of the files exists or cannot be written.
        CacheError: cryptography is not installed.
    """
    public = public or private.with_suffix(".pub.pem")
    key_id = generate_keys(private, public)
    if as_json:
        print_json({"key_id": key_id, "private": private, "public": public})
    else:
        print(f"private key {private}: keep it secret; set {SIGNING_VARIABLE} to it where kernels are built")
        print(f"public key  {public}: set {KEYS_VARIABLE} to it where kernels are used")
        print(f"key id      {key_id}")
