"""The commands of `jitnorm cache`: arguments and exit codes. What they do is in their modules beside this one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from jitnorm.commands.completion import complete_config, complete_key, complete_kind, complete_target, complete_tier
from jitnorm.commands.group import Json, exit_unless

cache_app = typer.Typer(no_args_is_help=True, help="Look into the cache of kernels, ship it and keep it in order.")

_Key = Annotated[
    str,
    typer.Argument(
        metavar="KEY", help="The key of an entry, or its beginning if no other begins so.", autocompletion=complete_key
    ),
]
_Keys = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEYS]...", help="Keys of entries, or their beginnings; default: all.", autocompletion=complete_key
    ),
]
_Config = Annotated[
    str,
    typer.Argument(
        metavar="CONFIG", help="A KernelConfig as text: rmsnorm:hidden_size=4096.", autocompletion=complete_config
    ),
]
_Kind = Annotated[
    str | None, typer.Option(metavar="KIND", help="Only kernel, or only launcher.", autocompletion=complete_kind)
]
_Targets = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        "--arch",
        metavar="TARGET",
        help="Only kernels for this target, such as sm_90a; several with commas, or given repeatedly.",
        autocompletion=complete_target,
    ),
]
_Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@cache_app.command("ls")
def ls(
    tier: Annotated[
        str | None,
        typer.Option(
            metavar="TIER",
            help="Only this tier: wheel, read-only, user, remote, or its whole name; default: all folders.",
            autocompletion=complete_tier,
        ),
    ] = None,
    kind: _Kind = None,
    target: _Targets = None,
    sort: Annotated[
        str, typer.Option(metavar="FIELD", help="Sort by key, kind, target, size, age, used or config.")
    ] = "age",
    json: Json = False,
) -> None:
    """List what is stored: key, tier, kind, target, backend, payload size, age, last use and configuration.

    Sorted by age the newest is last, by use the one used last. What a remote tier holds is listed with --tier remote
    alone: each entry takes a request.
    """
    from jitnorm.commands.listing import list_cache
    from jitnorm.commands.selection import Filter

    list_cache(Filter(kind, tuple(target or ())), tier=tier, sort=sort, as_json=json)


@cache_app.command()
def info(key: _Key, json: Json = False) -> None:
    """Show all that is known of an entry: its manifest, sizes, tiers, signatures, and whether it is intact.

    What lies in a remote tier alone is found by its whole key.

    Exit code 0: it is intact wherever it lies. 1: it is damaged or not trusted somewhere, or nowhere at all.
    """
    from jitnorm.commands.info import show_info

    exit_unless(show_info(key, as_json=json))


@cache_app.command()
def why(
    config: _Config,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            "--arch",
            metavar="TARGET",
            help="What it is needed for, such as sm_90a; default: the first GPU, else cpu.",
            autocompletion=complete_target,
        ),
    ] = None,
    backend: Annotated[str, typer.Option(help="What would build it, such as nvrtc.")] = "auto",
    nearest: Annotated[int, typer.Option(min=0, help="How many of the entries that come nearest to show.")] = 3,
    json: Json = False,
) -> None:
    """Say whether a kernel is in the cache and in which tier; if not, what the nearest entries differ in.

    What CONFIG leaves open is answered for each kernel that calls want: few rows, many rows, as wide as tensors allow.
    No kernel is built, and none is recorded as missing. Without --target the launcher, which knows the GPUs, is built
    if it is missing.

    Exit code 0: all of them are there. 1: one is not.
    """
    from jitnorm.commands.why_view import show_why

    exit_unless(show_why(config, target, backend=backend, nearest=nearest, as_json=json))


@cache_app.command("dir")
def folder(json: Json = False) -> None:
    """Print the folder of the user's cache, which need not exist; nothing is created."""
    from jitnorm.commands.folder import show_folder

    show_folder(as_json=json)


@cache_app.command("export")
def export_entries(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", dir_okay=False, help="The archive to write, in place of one of that name.")
    ],
    keys: _Keys = None,
    kind: _Kind = None,
    target: _Targets = None,
    json: Json = False,
) -> None:
    """Write entries of the user's cache to one file, with their signatures; the same entries give the same bytes.

    With --target launchers go along, which serve every target; --kind kernel leaves them out.

    Exit code 1: nothing is meant, or the file cannot be written.
    """
    from jitnorm.commands.archives import export_file
    from jitnorm.commands.selection import Filter

    export_file(file, Filter(kind, tuple(target or ()), tuple(keys or ()), launchers_stay=True), as_json=json)


@cache_app.command("import")
def import_entries(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="An archive that export wrote.")
    ],
    json: Json = False,
) -> None:
    """Add the entries of an archive to the user's cache, verified: all of them, or none if one is damaged.

    With JITNORM_TRUSTED_KEYS every entry must be signed by one of these keys.

    Exit code 1: the archive is damaged or not trusted, or the cache cannot be written.
    """
    from jitnorm.commands.archives import import_file

    import_file(file, as_json=json)


@cache_app.command()
def push(
    keys: _Keys = None,
    kind: _Kind = None,
    target: _Targets = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="URL", help="Where to; default: JITNORM_REMOTE_CACHE.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Write what is there already, too.")] = False,
    json: Json = False,
) -> None:
    """Copy entries of the user's cache to the remote cache.

    While JITNORM_TRUSTED_KEYS or JITNORM_SIGNING_KEY is set, what none of these keys has signed is refused. Nothing is
    signed on the way: what is built with JITNORM_SIGNING_KEY is signed then, the rest by jitnorm cache sign. With
    --target launchers go along.

    Exit code 1: an entry was refused, or the remote cache does not answer. 2: none is configured.
    """
    from jitnorm.commands.selection import Filter
    from jitnorm.commands.transfers import push_entries

    wanted = Filter(kind, tuple(target or ()), tuple(keys or ()), launchers_stay=True)
    exit_unless(push_entries(wanted, to, replace=replace, as_json=json))


@cache_app.command()
def pull(
    keys: _Keys = None,
    kind: _Kind = None,
    target: _Targets = None,
    everything: Annotated[bool, typer.Option("--all", help="All that the remote cache lists.")] = False,
    source: Annotated[
        str | None, typer.Option("--from", metavar="URL", help="Where from; default: JITNORM_REMOTE_CACHE.")
    ] = None,
    json: Json = False,
) -> None:
    """Copy entries of the remote cache into the user's cache, verified: KEYS, those of a target or kind, or --all.

    With --target launchers go along. Whole KEYS need no listing, which a web server may not give.

    Exit code 1: an entry was refused, or the remote cache does not answer. 2: none is configured, or nothing is named.
    """
    from jitnorm.commands.selection import Filter
    from jitnorm.commands.transfers import pull_entries

    wanted = Filter(kind, tuple(target or ()), tuple(keys or ()), launchers_stay=True)
    exit_unless(pull_entries(wanted, source, everything=everything, as_json=json))


@cache_app.command()
def sign(
    keys: _Keys = None,
    kind: _Kind = None,
    target: _Targets = None,
    key: Annotated[
        Path | None,
        typer.Option("--key", dir_okay=False, metavar="FILE", help="The private key; default: JITNORM_SIGNING_KEY."),
    ] = None,
    json: Json = False,
) -> None:
    """Sign entries of the user's cache, in place of the signatures that they have.

    A signature vouches for an entry, also for one that was imported or came from a remote cache: name those whose
    origin you know. With --target launchers are signed, too.

    Exit code 1: the key cannot be read, or an entry is damaged. 2: no key is named.
    """
    from jitnorm.commands.selection import Filter
    from jitnorm.commands.signing import sign_some

    wanted = Filter(kind, tuple(target or ()), tuple(keys or ()), launchers_stay=True)
    exit_unless(sign_some(wanted, key, as_json=json))


@cache_app.command()
def keygen(
    private: Annotated[
        Path, typer.Argument(metavar="PRIVATE", dir_okay=False, help="The file of the private key, which signs.")
    ],
    public: Annotated[
        Path | None,
        typer.Argument(
            metavar="[PUBLIC]", dir_okay=False, help="That of the public key; default: beside it, ending in .pub.pem."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Make a pair of keys (Ed25519, PEM) for signatures. Files that exist are left alone.

    Exit code 1: a file exists or cannot be written.
    """
    from jitnorm.commands.signing import make_keys

    make_keys(private, public, as_json=json)


@cache_app.command()
def verify(
    keys: _Keys = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Move damaged entries of the user's cache to the quarantine.")
    ] = False,
    json: Json = False,
) -> None:
    """Read every byte in all folders of the cache and compare it with what was published; check signatures.

    What is damaged is found by every load, too, and built anew; this finds it beforehand. While JITNORM_TRUSTED_KEYS is
    set, entries that none of these keys has signed are wrong, those of the user's cache included, although they are
    loaded; wheels need no signatures.

    Exit code 0: everything is intact. 1: something is not, repaired or not.
    """
    from jitnorm.commands.upkeep import verify_entries

    exit_unless(verify_entries(tuple(keys or ()), repair=repair, as_json=json))


@cache_app.command()
def prune(
    max_bytes: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="The disk space that may stay taken, such as 500M or 4G; default: JITNORM_CACHE_MAX_BYTES.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    json: Json = False,
) -> None:
    """Remove what was used least recently until the user's cache holds no more than a number of bytes.

    What living processes have loaded stays; launchers go last. 0 and none stand for no bound: then only what dead
    processes left behind goes, and what has been in quarantine for 30 days.

    Exit code 0: it is within the bound. 1: it is not, as the rest is in use, or another process is pruning.
    """
    from jitnorm.commands.upkeep import prune_cache

    exit_unless(prune_cache(max_bytes, dry_run=dry_run, as_json=json))


@cache_app.command()
def clear(
    yes: _Yes = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also remove what living processes have loaded; they keep it in memory.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    json: Json = False,
) -> None:
    """Remove every entry of the user's cache, and its quarantine.

    Asks first if somebody is there to answer: if stdin is a terminal.

    Exit code 0: nothing is left. 1: living processes use some, or another process is pruning.
    """
    from jitnorm.commands.upkeep import clear_cache

    exit_unless(clear_cache(yes=yes, force=force, dry_run=dry_run, as_json=json))
