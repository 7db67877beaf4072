"""The command line, `jitnorm`: arguments and exit codes. What commands do is in `jitnorm.commands`."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

FAILED = 1
WRONG_USAGE = 2


class _Group(TyperGroup):
    """Shows the errors of the library as a line on stderr; a traceback is for errors nobody foresaw."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort):  # RuntimeErrors, too
            raise
        except (RuntimeError, ValueError) as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(WRONG_USAGE if isinstance(error, ValueError) else FAILED) from None


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="JIT-compiled RMSNorm and FP4 quantization kernels: the same bits on every GPU and on the CPU.",
)
cache_app = typer.Typer(no_args_is_help=True, help="Look into the cache of built kernels.")
app.add_typer(cache_app, name="cache")

_Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs to read.")]


def _print_version(wanted: bool) -> None:
    if wanted:
        import jitnorm

        typer.echo(f"jitnorm {jitnorm.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    cpu: Annotated[bool, typer.Option("--cpu", help="Run on the CPU even if there is a GPU.")] = False,
) -> None:
    """Quantize real activations and compare every bit with the reference.

    Builds four kernels (RMSNorm fused with NVFP4 and MXFP4) for the first GPU, or for the CPU if there is
    none it can use, and runs them on activations that ship with the package. A second run finds the kernels
    in the cache.

    Exit code 0: all bits are the reference's. 1: some differ, or a kernel could not be built or run.
    """
    from jitnorm.commands.demo_table import show_demo

    if not show_demo(only_cpu=cpu):
        raise typer.Exit(FAILED)


@app.command()
def doctor(json: _Json = False) -> None:
    """Show what jitnorm finds on this machine, and how to get what is missing.

    GPUs, driver, compilers, launcher, cache folder and array frameworks.

    Exit code 0: kernels can be built for at least one target. 1: for none.
    """
    from jitnorm.commands.doctor_view import show_doctor

    if not show_doctor(as_json=json):
        raise typer.Exit(FAILED)


@app.command()
def source(
    config: Annotated[
        str,
        typer.Argument(help="A KernelConfig as text: rmsnorm:hidden_size=4096,quant=e2m1/16/e4m3/128x4/given"),
    ],
    target: Annotated[
        str | None, typer.Option(help="What to build for, such as sm_90a; default: the first GPU, else cpu.")
    ] = None,
) -> None:
    """Print the complete source that is generated for a configuration.

    Fields left out of CONFIG take their defaults.
    """
    from jitnorm.commands.place import first_gpu
    from jitnorm.kernels.config import KernelConfig
    from jitnorm.kernels.generator import generate
    from jitnorm.kernels.target import Target

    parsed = KernelConfig.parse(config)
    if target is not None:
        chosen = Target(target)
    else:
        try:
            chosen = first_gpu()
        except (RuntimeError, ValueError) as error:
            typer.echo(f"note: this is the source for cpu: {error}", err=True)
            chosen = Target("cpu")
    typer.echo(generate(parsed, chosen).text, nl=False)


@cache_app.command("ls")
def cache_ls(json: _Json = False) -> None:
    """List what is stored: key, kind, target, backend, payload size, age and configuration."""
    from jitnorm.commands.listing import list_cache

    list_cache(as_json=json)


if __name__ == "__main__":
    app()
