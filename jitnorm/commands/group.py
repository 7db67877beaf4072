"""What the declarations of all commands share: exit codes, errors, options."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

FAILED = 1
WRONG_USAGE = 2
INTERRUPTED = 130

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs to read.")]


class ErrorGroup(TyperGroup):
    """Shows the errors of the library as a line on stderr; a traceback is for errors nobody foresaw."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; a ValueError is the caller's, the other errors are not."""
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort, BrokenPipeError):  # RuntimeErrors, too; a reader may stop reading
            raise
        except (RuntimeError, ValueError, OSError) as error:
            from jitnorm.cache.printable import printable_lines

            typer.echo(f"error: {printable_lines(error)}", err=True)
            raise typer.Exit(WRONG_USAGE if isinstance(error, ValueError) else FAILED) from None


def exit_unless(is_fine: bool) -> None:
    """End with the exit code of what went wrong, unless nothing did."""
    if not is_fine:
        raise typer.Exit(FAILED)
