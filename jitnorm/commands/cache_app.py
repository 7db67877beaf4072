"""The arguments of `jitnorm cache ...`; other modules in this folder implement the commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from jitnorm.commands.arguments import (
    App,
    Group,
    Json,
    OneTarget,
    complete_config,
    complete_key,
    complete_kind,
    complete_tier,
    exit_unless,
    target_option,
)

cache_app = App(cls=Group, no_args_is_help=True, help="Inspect, ship and maintain the kernel cache.")

_Key = Annotated[
    str,
    typer.Argument(metavar="KEY", help="The key of an entry, or a unique prefix of it.", autocompletion=complete_key),
]
_Keys = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEYS]...", help="Keys of entries, or unique prefixes. Default: all.", autocompletion=complete_key
    ),
]
_Config = Annotated[
    str,
    typer.Argument(
        metavar="CONFIG", help="A KernelConfig as text: rmsnorm:hidden_size=4096.", autocompletion=complete_config
    ),
]
_Kind = Annotated[
    str | None,
    typer.Option(metavar="KIND", help="Only entries of this kind: kernel or launcher.", autocompletion=complete_kind),
]
_Targets = Annotated[list[str] | None, target_option("Only kernels for these targets: sm_90a,cpu. May be repeated.")]
_Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


@cache_app.command("ls")
def ls(
    tier: Annotated[
        str | None,
        typer.Option(
            metavar="TIER",
            help="Only this tier: wheel, read-only, user, remote, or a full name. Default: all folders.",
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
    """List entries: key, tier, kind, target, backend, payload size, age, last use and configuration.

    Sorting by age puts the newest entry last; by use, the most recently used. Entries of a remote tier are listed only
    with --tier remote, since each takes a request.
    """
    from jitnorm.commands.listing import list_cache
    from jitnorm.commands.selection import Filter

    list_cache(Filter(kind, tuple(target or ())), tier=tier, sort=sort, as_json=json)


@cache_app.command()
def info(key: _Key, json: Json = False) -> None:
    """Show an entry in full: its manifest, sizes, tiers and signatures, and whether it is intact.

    An entry that only a remote tier has needs its full key.

    Exit code 0: every copy is intact. 1: a copy is damaged or not trusted, or there is none.
    """
    from jitnorm.commands.listing import show_info

    exit_unless(show_info(key, as_json=json))


@cache_app.command()
def why(
    config: _Config,
    target: OneTarget = None,
    backend: Annotated[str, typer.Option(help="Backend that would build it, such as nvrtc.")] = "auto",
    nearest: Annotated[int, typer.Option(min=0, help="Number of nearest entries to show.")] = 3,
    json: Json = False,
) -> None:
    """Explain why a kernel is or is not in the cache: which tier has it, or how the nearest entries differ.

    For fields that CONFIG omits, every kernel that calls use is looked up: for few and many rows, and each alignment.
    No kernel is built or recorded as missing. Without --target, a missing launcher is built to detect the GPU.

    Exit code 0: all kernels are in the cache. 1: one is missing.
    """
    from jitnorm.commands.why import show_why

    exit_unless(show_why(config, target, backend=backend, nearest=nearest, as_json=json))


@cache_app.command("dir")
def folder(json: Json = False) -> None:
    """Print the path of the user's cache folder, without creating it."""
    from jitnorm.commands.listing import show_folder

    show_folder(as_json=json)


@cache_app.command("export")
def export_entries(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", dir_okay=False, help="Archive to write; an existing one is replaced.")
    ],
    keys: _Keys = None,
    kind: _Kind = None,
    target: _Targets = None,
    json: Json = False,
) -> None:
    """Write entries of the user's cache, with their signatures, to one file; the same entries give the same bytes.

    With --target, launchers are included, as they serve every target; --kind kernel omits them.

    Exit code 1: no entry is selected, or the file cannot be written.
    """
    from jitnorm.commands.selection import Filter
    from jitnorm.commands.shipping import export_file

    export_file(file, Filter(kind, tuple(target or ()), tuple(keys or ()), launchers_stay=True), as_json=json)


@cache_app.command("import")
def import_entries(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="Archive written by export.")
    ],
    json: Json = False,
) -> None:
    """Verify the entries of an archive and add them to the user's cache: all, or none if one is damaged.

    With JITNORM_TRUSTED_KEYS, every entry must be signed by one of these keys.

    Exit code 1: the archive is damaged or not trusted, or the cache cannot be written.
    """
    from jitnorm.commands.shipping import import_file

    import_file(file, as_json=json)


@cache_app.command()
def push(
    keys: _Keys = None,
    kind: _Kind = None,
    target: _Targets = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="URL", help="Destination. Default: JITNORM_REMOTE_CACHE.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Overwrite entries that are already there.")] = False,
    json: Json = False,
) -> None:
    """Copy entries of the user's cache to the remote cache.

    With JITNORM_TRUSTED_KEYS or JITNORM_SIGNING_KEY set, entries signed by none of these keys are refused. Pushing
    signs nothing: builds sign with JITNORM_SIGNING_KEY, and jitnorm cache sign signs the rest. With --target, launchers
    are included.

    Exit code 1: an entry was refused, or the remote cache does not respond. 2: no remote cache is configured.
    """
    from jitnorm.commands.selection import Filter
    from jitnorm.commands.shipping import push_entries

    wanted = Filter(kind, tuple(target or ()), tuple(keys or ()), launchers_stay=True)
    exit_unless(push_entries(wanted, to, replace=replace, as_json=json))


@cache_app.command()
def pull(
    keys: _Keys = None,
    kind: _Kind = None,
    target: _Targets = None,
    everything: Annotated[bool, typer.Option("--all", help="Copy every entry of the remote cache.")] = False,
    source: Annotated[
        str | None, typer.Option("--from", metavar="URL", help="Source. Default: JITNORM_REMOTE_CACHE.")
    ] = None,
    json: Json = False,
) -> None:
    """Copy entries of the remote cache into the user's cache and verify them: KEYS, a target or kind, or --all.

    With --target, launchers are included. Full KEYS work even if the remote cache cannot list its entries, as with
    plain web servers.

    Exit code 1: an entry was refused, or the remote cache does not respond. 2: no remote cache or no entry is named.
    """
    from jitnorm.commands.selection import Filter
    from jitnorm.commands.shipping import pull_entries

    wanted = Filter(kind, tuple(target or ()), tuple(keys or ()), launchers_stay=True)
    exit_unless(pull_entries(wanted, source, everything=everything, as_json=json))


@cache_app.command()
def sign(
    keys: _Keys = None,
    kind: _Kind = None,
    target: _Targets = None,
    key: Annotated[
        Path | None,
        typer.Option("--key", dir_okay=False, metavar="FILE", help="Private key. Default: JITNORM_SIGNING_KEY."),
    ] = None,
    json: Json = False,
) -> None:
    """Sign entries of the user's cache; existing signatures are replaced.

    A signature vouches for an entry, even one that was imported or came from a remote cache: name only entries whose
    origin you know. With --target, launchers are signed, too.

    Exit code 1: the key cannot be read, or an entry is damaged. 2: no key is named.
    """
    from jitnorm.commands.selection import Filter
    from jitnorm.commands.shipping import sign_some

    wanted = Filter(kind, tuple(target or ()), tuple(keys or ()), launchers_stay=True)
    exit_unless(sign_some(wanted, key, as_json=json))


@cache_app.command()
def revoke(
    key: Annotated[
        Path,
        typer.Option("--key", dir_okay=False, metavar="FILE", help="Private key that signs lists, and nothing else."),
    ],
    signers: Annotated[
        list[str] | None, typer.Option("--signer", metavar="ID", help="Signing key to revoke. Can be repeated.")
    ] = None,
    revoked: Annotated[
        list[str] | None, typer.Option("--entry", metavar="KEY", help="Entry to revoke. Can be repeated.")
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="URL", help="Remote cache. Default: JITNORM_REMOTE_CACHE.")
    ] = None,
    days: Annotated[float, typer.Option("--days", help="Term of the list, within which it must be renewed.")] = 30.0,
    json: Json = False,
) -> None:
    """Publish the next revocation list of the remote cache: everything revoked before, and what is named.

    Machines with JITNORM_REVOCATION_KEY load nothing that it revokes, and use the remote cache only while its list has
    not expired. Without --signer and --entry, the list is only renewed.

    Exit code 1: the key cannot be read, or the remote cache does not respond. 2: no remote cache is configured.
    """
    from jitnorm.commands.shipping import revoke_some

    revoke_some(key, tuple(signers or ()), tuple(revoked or ()), to, days, as_json=json)


@cache_app.command()
def keygen(
    private: Annotated[Path, typer.Argument(metavar="PRIVATE", dir_okay=False, help="File for the private key.")],
    public: Annotated[
        Path | None,
        typer.Argument(
            metavar="[PUBLIC]", dir_okay=False, help="File for the public key. Default: beside it, ending in .pub.pem."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Generate an Ed25519 key pair for signatures, as PEM files; existing files are never overwritten.

    Exit code 1: a file exists or cannot be written.
    """
    from jitnorm.commands.shipping import make_keys

    make_keys(private, public, as_json=json)


@cache_app.command()
def verify(
    keys: _Keys = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Move damaged entries of the user's cache to quarantine.")
    ] = False,
    json: Json = False,
) -> None:
    """Check every byte and every signature in all folders of the cache.

    Loading finds and rebuilds damaged entries as well; this command finds them in advance. With JITNORM_TRUSTED_KEYS
    set, it reports entries signed by none of these keys, even in the user's cache, which loads them; wheels need no
    signatures.

    Exit code 0: everything is intact. 1: something is not, whether or not it was repaired.
    """
    from jitnorm.commands.upkeep import verify_entries

    exit_unless(verify_entries(tuple(keys or ()), repair=repair, as_json=json))


@cache_app.command()
def prune(
    max_bytes: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Disk space that the cache may keep, such as 500M or 4G. Default: JITNORM_CACHE_MAX_BYTES.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be removed, and remove nothing.")] = False,
    json: Json = False,
) -> None:
    """Remove the least recently used entries until the user's cache fits a size.

    Entries loaded by running processes stay, and launchers go last. A size of 0 or none sets no limit: this removes
    only leftovers of dead processes, and entries quarantined for 30 days.

    Exit code 0: the cache fits. 1: it does not, because the rest is in use or another process is pruning.
    """
    from jitnorm.commands.upkeep import prune_cache

    exit_unless(prune_cache(max_bytes, dry_run=dry_run, as_json=json))


@cache_app.command()
def clear(
    yes: _Yes = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Also remove entries loaded by running processes, which keep them in memory."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be removed, and remove nothing.")] = False,
    json: Json = False,
) -> None:
    """Remove every entry of the user's cache, and its quarantine.

    Asks for confirmation if stdin is a terminal.

    Exit code 0: nothing is left. 1: running processes use some entries, or another process is pruning.
    """
    from jitnorm.commands.upkeep import clear_cache

    exit_unless(clear_cache(yes=yes, force=force, dry_run=dry_run, as_json=json))
