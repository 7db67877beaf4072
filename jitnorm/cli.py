"""The command line, `jitnorm`: arguments and exit codes. What commands do is in `jitnorm.commands`."""

from __future__ import annotations

from typing import Annotated

import typer

from jitnorm.commands.bench_app import bench
from jitnorm.commands.cache_app import cache_app
from jitnorm.commands.completion import complete_config, complete_target
from jitnorm.commands.group import ErrorGroup, Json, exit_unless
from jitnorm.commands.tune_app import tune
from jitnorm.commands.warm_app import warm
from jitnorm.commands.wheel_app import wheel

app = typer.Typer(
    cls=ErrorGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="JIT-compiled RMSNorm and FP4 quantization kernels: the same bits on every GPU and on the CPU.",
)


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

    exit_unless(show_demo(only_cpu=cpu))


@app.command()
def doctor(json: Json = False) -> None:
    """Show what jitnorm finds on this machine, and how to get what is missing.

    GPUs, driver, compilers, launcher; the cache folder, tiers, keys of signatures, misses; the variables in effect and
    whether they are valid; array frameworks. No tier is waited for longer than a few seconds.

    Exit code 0: kernels can be built for at least one target. 1: for none.
    """
    from jitnorm.commands.doctor_view import show_doctor

    exit_unless(show_doctor(as_json=json))


@app.command()
def source(
    config: Annotated[
        str,
        typer.Argument(
            metavar="CONFIG",
            help="A KernelConfig as text: rmsnorm:hidden_size=4096,quant=e2m1/16/e4m3/128x4/given",
            autocompletion=complete_config,
        ),
    ],
    target: Annotated[
        str | None,
        typer.Option(
            help="What to build for, such as sm_90a; default: the first GPU, else cpu.", autocompletion=complete_target
        ),
    ] = None,
    backend: Annotated[
        str, typer.Option(help="What builds it: nvrtc, nvcc or cxx, whose source is C++, or cute; default: C++.")
    ] = "auto",
) -> None:
    """Print the complete source that is generated for a configuration.

    Fields left out of CONFIG take their defaults.
    """
    from jitnorm.cache.printable import printable
    from jitnorm.commands.place import target_or_default
    from jitnorm.kernels.config import KernelConfig
    from jitnorm.manager import source_for
    from jitnorm.toolchains import TOOLCHAIN_NAMES

    if backend not in ("auto", *TOOLCHAIN_NAMES):
        raise ValueError(f"backend: {backend!r} is not known; use one of {', '.join(('auto', *TOOLCHAIN_NAMES))}")
    parsed = KernelConfig.parse(config)
    chosen, note = target_or_default(target)
    if note:
        typer.echo(f"note: this is the source for {chosen}: {printable(note)}", err=True)
    typer.echo(source_for(parsed, chosen, backend).text, nl=False)


app.command()(warm)
app.command()(wheel)
app.command()(bench)
app.command()(tune)
app.add_typer(cache_app, name="cache")

if __name__ == "__main__":
    app()
