"""Exit codes, errors, options and completion, shared by the declarations of commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

FAILED = 1
WRONG_USAGE = 2
INTERRUPTED = 130

HOW = "How"

_Function = TypeVar("_Function", bound=Callable[..., Any])

# Both names mean the same in all commands; several targets are separated by commas.
_TARGET = ("--target", "--arch")
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Jobs = Annotated[
    int | None,
    typer.Option(
        "-j", "--jobs", min=1, help="Parallel builds. Default: as many as fit in cores and memory.", rich_help_panel=HOW
    ),
]


def option(help: str, *names: str, panel: str, complete: Callable[[str], list[str]] | None = None, **more: Any) -> Any:
    """An option in a panel of the help page; pass `names` only if they differ from the parameter's."""
    return typer.Option(*names, help=help, rich_help_panel=panel, autocompletion=complete, **more)


class _Plain:
    """A command whose help page names values as this project does, and shows none for flags."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters, including ``--help``, with the names of their values on the help page."""
        found: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for each in found:
            if getattr(each, "is_flag", False):
                each.metavar = ""
            elif each.metavar is None:
                each.metavar = each.name.upper()
        return found


class Command(_Plain, TyperCommand):
    """A command."""


class App(typer.Typer):
    """An application of such commands."""

    def command(self, *names: Any, **options: Any) -> Callable[[_Function], _Function]:
        """Declare a command, as Typer does."""
        return super().command(*names, **{"cls": Command, **options})


class Group(_Plain, TyperGroup):
    """A group of commands."""


class ErrorGroup(Group):
    """A group of commands that prints the library's errors as one line; only unexpected errors show a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; a ValueError exits with the code for wrong usage, other errors with that for failure."""
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort, BrokenPipeError):  # the first two are RuntimeErrors; a pipe's reader may leave
            raise
        except (RuntimeError, ValueError, OSError) as error:
            from jitnorm.cache.printable import printable_lines

            typer.echo(f"error: {printable_lines(error)}", err=True)
            raise typer.Exit(WRONG_USAGE if isinstance(error, ValueError) else FAILED) from None


def exit_unless(is_fine: bool) -> None:
    """Exit with the code for failure if something failed."""
    if not is_fine:
        raise typer.Exit(FAILED)


# These run at every press of Tab, so they import little.


def complete_config(incomplete: str) -> list[str]:
    """Complete ops, then the names of their fields."""
    from dataclasses import fields

    from jitnorm.kernels.config import KernelConfig
    from jitnorm.kernels.config_rules import OPS

    op, colon, given = incomplete.partition(":")
    if not colon:
        return [f"{name}:hidden_size=" for name in OPS if name.startswith(op)]
    known, _, started = given.rpartition(",")
    taken = {item.partition("=")[0] for item in known.split(",")}
    begin = f"{op}:{known}," if known else f"{op}:"
    names = (field.name for field in fields(KernelConfig)[1:])
    return [f"{begin}{name}=" for name in names if name.startswith(started) and name not in taken]


def complete_target(incomplete: str) -> list[str]:
    """Complete targets, which may form a comma-separated list."""
    from jitnorm.kernels.target import TARGET_NAMES

    known, comma, started = incomplete.rpartition(",")
    return [f"{known}{comma}{name}" for name in TARGET_NAMES if name.startswith(started)]


def target_option(help: str, panel: str | None = None) -> Any:
    """The option that names one or more targets."""
    return typer.Option(*_TARGET, help=help, metavar="TARGET", rich_help_panel=panel, autocompletion=complete_target)


OneTarget = Annotated[str | None, target_option("Target, such as sm_90a. Default: the first GPU, else cpu.")]


def complete_key(incomplete: str) -> list[str]:
    """Complete keys in the user's cache, by listing its folder without loading anything."""
    from jitnorm.cache import default_root
    from jitnorm.cache.layout import Layout

    return [key for key, _ in Layout(default_root()).entries() if key.startswith(incomplete)]


def complete_kind(incomplete: str) -> list[str]:
    """Kinds of entries."""
    from jitnorm.commands.selection import KINDS

    return [kind for kind in KINDS if kind.startswith(incomplete)]


def complete_tier(incomplete: str) -> list[str]:
    """Kinds of tiers."""
    from jitnorm.commands.selection import TIER_KINDS

    return [kind for kind in TIER_KINDS if kind.startswith(incomplete)]
