"""The command line, `jitnorm`: arguments and exit codes; `jitnorm.commands` has what the commands do."""

from __future__ import annotations

from typing import Annotated

import typer

from jitnorm.commands.arguments import App, ErrorGroup, Json, OneTarget, complete_config, exit_unless
from jitnorm.commands.build_app import warm, wheel
from jitnorm.commands.cache_app import cache_app
from jitnorm.commands.measure_app import bench, tune, tune_comm
from jitnorm.commands.quantize_app import quantize

app = App(
    cls=ErrorGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="JIT-compiled normalization and low-precision quantization kernels: the same bits on every GPU and the CPU.",
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

    Builds four kernels (RMSNorm fused with NVFP4 and MXFP4) for the first GPU, or for the CPU if no GPU is usable, and
    runs them on activations that ship with the package. A second run finds the kernels in the cache.

    Exit code 0: all bits match the reference. 1: some differ, or a kernel could not be built or run.
    """
    from jitnorm.commands.demo import show_demo

    exit_unless(show_demo(only_cpu=cpu))


@app.command()
def doctor(json: Json = False) -> None:
    """Show what jitnorm finds on this machine, and how to get what is missing.

    Covers GPUs, driver, compilers and launcher; the cache folder, its tiers, signing keys and misses; the environment
    variables that are set, and whether they are valid; array frameworks. Waits a few seconds at most for each tier.

    Exit code 0: kernels can be built for at least one target. 1: for none.
    """
    from jitnorm.commands.doctor import show_doctor

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
    target: OneTarget = None,
    backend: Annotated[str, typer.Option(help="cute, or any other for C++ source. Default: C++.")] = "auto",
) -> None:
    """Print the complete source generated for a configuration.

    Fields that CONFIG omits take their defaults.
    """
    from jitnorm.cache.printable import printable
    from jitnorm.commands.place import target_or_default
    from jitnorm.kernel_source import source_for
    from jitnorm.kernels.config import KernelConfig
    from jitnorm.kernels.spelling import did_you_mean
    from jitnorm.toolchains import TOOLCHAIN_NAMES

    if backend not in ("auto", *TOOLCHAIN_NAMES):
        known = ("auto", *TOOLCHAIN_NAMES)
        meant = did_you_mean(backend, known)
        raise ValueError(f"backend: {backend!r} is not known; use one of {', '.join(known)}{meant}")
    parsed = KernelConfig.parse(config)
    chosen, note = target_or_default(target)
    if note:
        typer.echo(f"note: this is the source for {chosen}: {printable(note)}", err=True)
    typer.echo(source_for(parsed, chosen, backend).text, nl=False)


app.command()(warm)
app.command()(wheel)
app.command()(quantize)
app.command()(bench)
app.command()(tune)
app.command()(tune_comm)
app.add_typer(cache_app, name="cache")

if __name__ == "__main__":
    app()
