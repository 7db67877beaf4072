"""How the demo shows what it found."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from jitnorm.commands.console import make_console
from jitnorm.commands.demo import Outcome, prepare_launcher, run_demo
from jitnorm.commands.place import Place, find_place
from jitnorm.commands.units import SHORT_KEY, duration, size
from jitnorm.store import user_store


def show_demo(*, only_cpu: bool) -> bool:
    """Run the demo and print it; return whether every bit was the reference's.

    Raises:
        RuntimeError: there is no C++ compiler, the cache cannot be used, or a kernel cannot be built or run.
    """
    console = make_console()
    with console.status("Building the launcher, once for this machine ..."):
        launcher_seconds = prepare_launcher()
    place = find_place(only_cpu=only_cpu)
    _show_place(console, place, launcher_seconds)
    with console.status(f"Building kernels for {place.target} ..."):
        outcomes = list(run_demo(place))
    console.print(_table(outcomes))
    _show_conclusion(console, outcomes, place)
    return all(outcome.is_exact for outcome in outcomes)


def _show_place(console: Console, place: Place, launcher_seconds: float | None) -> None:
    launcher = "from the cache" if launcher_seconds is None else f"built in {duration(launcher_seconds)}"
    console.print(f"Device    {place.name}", highlight=False)
    if place.why_cpu:
        console.print(f"          no GPU: {place.why_cpu}", highlight=False, markup=False)
    console.print(f"Launcher  {launcher}", highlight=False)
    console.print(f"Cache     {user_store().layout.root}", highlight=False, markup=False, soft_wrap=True)


def _table(outcomes: Sequence[Outcome]) -> Table:
    table = Table(
        title=f"RMSNorm + FP4 on real activations, each 256 x 384 bfloat16, {size(outcomes[0].input_bytes)}",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=0,
    )
    for heading in ("input", "format", "scales", "kernel"):
        table.add_column(heading, no_wrap=True)
    for heading in ("build", "load", "bits", "SQNR dB", "FP4", "saved"):
        table.add_column(heading, justify="right", no_wrap=True)
    for outcome in outcomes:
        build = outcome.timing.build
        table.add_row(
            outcome.case.site,
            outcome.case.format,
            outcome.case.quant.scale_layout,
            outcome.timing.key[:SHORT_KEY],
            "[green]cached[/]" if build is None else duration(build),
            duration(outcome.timing.load),
            _verdict(outcome),
            f"{outcome.sqnr:.2f}",
            size(outcome.output_bytes),
            f"{1 - outcome.output_bytes / outcome.input_bytes:.1%}",
        )
    return table


def _verdict(outcome: Outcome) -> str:
    wrong = {"codes": not outcome.codes_equal, "scales": not outcome.scales_equal}
    names = ", ".join(name for name, is_wrong in wrong.items() if is_wrong)
    return f"[bold red]{names} DIFFER[/]" if names else "[green]exact[/]"


def _show_conclusion(console: Console, outcomes: list[Outcome], place: Place) -> None:
    wrong = sum(not outcome.is_exact for outcome in outcomes)
    if wrong:
        console.print(
            f"[bold red]{wrong} of {len(outcomes)} outputs differ from the reference.[/] Please report this, "
            "with the output of `jitnorm doctor --json`.",
            highlight=False,
        )
        return
    compared = sum(outcome.output_bytes for outcome in outcomes)
    built = sum(outcome.timing.build is not None for outcome in outcomes)
    origin = f"{built} built now, {len(outcomes) - built} from the cache"
    console.print(
        f"[bold green]Proven:[/] {len(outcomes)} kernels ({origin}), called through TVM-FFI on {place.name}, "
        f"gave all {compared:,} bytes of codes and scales exactly as the NumPy reference defines them.",
        highlight=False,
    )
    if built and user_store().writable:
        console.print("Run it again: every kernel comes from the cache.", highlight=False)
