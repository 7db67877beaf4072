"""`jitnorm demo`: FP4 quantization of real activations, compared with the reference byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table

from jitnorm import reference
from jitnorm.cache import Artifact
from jitnorm.cache.events import subscribe
from jitnorm.commands.console import duration, kernels, make_console, size
from jitnorm.commands.place import Place, find_place
from jitnorm.commands.selection import SHORT_KEY
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.quant_spec import QuantSpec
from jitnorm.kernels.row_classes import class_of
from jitnorm.kernels.target import Target
from jitnorm.launcher import launcher, load_or_build_launcher
from jitnorm.manager import load_or_build_kernel
from jitnorm.ops.norm_fp4 import rmsnorm_fp4quant
from jitnorm.store import user_cache, user_store
from jitnorm.warm.expand import configs_of_text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


EPS = 1e-6
_ACTIVATIONS = Path(__file__).parents[1] / "data" / "activations.npz"


@dataclass(frozen=True)
class Case:
    """One row of the demo: activations and their encoding."""

    site: str
    format: str
    quant: QuantSpec


CASES = (
    Case("l3_mlp", "NVFP4", QuantSpec("e2m1", 16, "e4m3", "linear", "given")),
    Case("l3_mlp", "MXFP4", QuantSpec("e2m1", 32, "ue8m0", "linear")),
    Case("l5_mlp", "NVFP4", QuantSpec("e2m1", 16, "e4m3", "128x4", "given")),
    Case("l5_mlp", "MXFP4", QuantSpec("e2m1", 32, "ue8m0", "128x4")),
)


@dataclass(frozen=True)
class Timing:
    """The time to get a kernel ready to run, in seconds.

    Attributes:
        key: the cache key of the artifact.
        build: time to compile it; None if it was in the cache.
        load: time to load it from the cache, as every later process does.
    """

    key: str
    build: float | None
    load: float


@dataclass(frozen=True)
class Outcome:
    """The result of one case.

    Attributes:
        case: the case.
        timing: the time that its kernel took.
        codes_equal: whether all codes match the reference.
        scales_equal: whether all scales match the reference, padding included.
        sqnr: signal-to-quantization-noise ratio of the decoded output against the float32 norm, in dB.
        input_bytes: size of the input, which is also that of a plain norm's output.
        output_bytes: size of codes and scales, padding included.
    """

    case: Case
    timing: Timing
    codes_equal: bool
    scales_equal: bool
    sqnr: float
    input_bytes: int
    output_bytes: int

    @property
    def is_exact(self) -> bool:
        """Whether every output bit matches the reference."""
        return self.codes_equal and self.scales_equal


def prepare_launcher() -> float | None:
    """Get the launcher ready; return its build time in seconds, or None if it was in the cache.

    Raises:
        RuntimeError: the launcher cannot be built.
    """
    start = perf_counter()
    _, _, built = _obtain(lambda: load_or_build_launcher(user_cache()))
    elapsed = perf_counter() - start
    launcher()
    return elapsed if built else None


def run_demo(place: Place) -> Iterator[Outcome]:
    """Run the cases one by one.

    Raises:
        RuntimeError: a kernel cannot be built or run.
    """
    for case in CASES:
        x, weight = activations(case.site)
        rows, hidden_size = x.shape
        timing = time_kernel(config_of(case, rows, hidden_size, place.target), place.target)
        yield compare(case, timing, place, x, weight)


def activations(site: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """The input (256, 384) and weight (384,) of one site, in bfloat16; see jitnorm/data/README.md."""
    import ml_dtypes
    import numpy as np

    with np.load(_ACTIVATIONS) as arrays:
        return arrays[f"x_{site}"].view(ml_dtypes.bfloat16), arrays[f"gamma_{site}"].view(ml_dtypes.bfloat16)


def config_of(case: Case, rows: int, hidden_size: int, target: Target) -> KernelConfig:
    """The configuration that the op dispatches to."""
    text = f"rmsnorm:hidden_size={hidden_size},input=bfloat16,quant={case.quant}"
    (config,) = configs_of_text(text, target, [class_of(rows, hidden_size)])
    return config


def time_kernel(config: KernelConfig, target: Target) -> Timing:
    """Build a kernel unless it is cached, and load it."""
    cache = user_cache()
    start = perf_counter()
    artifact, key, built = _obtain(lambda: load_or_build_kernel(config, target, cache))
    obtained = perf_counter()
    if cache.store.writable:
        artifact = load_or_build_kernel(config, target, cache)
    launcher().load_kernel(artifact.manifest["recipe"], artifact.payload)
    return Timing(key, obtained - start if built else None, perf_counter() - obtained)


def _obtain(load_or_build: Callable[[], Artifact]) -> tuple[Artifact, str, bool]:
    """Get an artifact, its key, and whether it was built."""
    seen: dict[str, str] = {}
    unsubscribe = subscribe(lambda kind, fields: seen.update({kind: str(fields.get("key", ""))}))
    try:
        artifact = load_or_build()
    finally:
        unsubscribe()
    return artifact, seen.get("build") or seen.get("hit", ""), "build" in seen


def compare(case: Case, timing: Timing, place: Place, x: NDArray[Any], weight: NDArray[Any]) -> Outcome:
    """Run the op through its public interface and compare every byte with the reference."""
    import numpy as np

    quant = case.quant
    y = reference.rmsnorm_f32(x, weight, EPS)
    global_scale = encode_scale(y) if quant.global_scale == "given" else None
    codes, scales = map(
        place.memory.bytes_of,
        rmsnorm_fp4quant(
            place.memory.put(x),
            place.memory.put(weight),
            global_scale=None if global_scale is None else place.memory.put(global_scale),
            eps=EPS,
            block_size=int(quant.block_size),
            scale_format=quant.scale_format,
            is_sf_swizzled_layout=quant.is_swizzled,
        ),
    )
    options: dict[str, Any] = {
        "block_size": int(quant.block_size),
        "scale_format": quant.scale_format,
        "global_scale": None if global_scale is None else float(global_scale[0]),
    }
    layout: Any = quant.scale_layout
    wanted_codes, wanted_scales = reference.quantize_fp4(y, **options)
    columns = x.shape[1] // int(quant.block_size)
    linear = scales if layout == "linear" else reference.unswizzle_scales(scales, x.shape[0], columns, layout)
    return Outcome(
        case,
        timing,
        np.array_equal(codes, wanted_codes),
        np.array_equal(scales, reference.swizzle_scales(wanted_scales, layout)),
        sqnr(y, reference.dequantize_fp4(codes, linear, **options)),
        x.nbytes,
        codes.nbytes + scales.nbytes,
    )


def encode_scale(y: NDArray[np.float32]) -> NDArray[np.float32]:
    """NVFP4's global scale, which makes the largest block scale 448, the largest E4M3 value."""
    import numpy as np

    largest = np.float32(448 * 6)
    return np.array([largest / np.abs(y).max()], np.float32)


def sqnr(signal: NDArray[np.float32], decoded: NDArray[np.float32]) -> float:
    """The signal-to-quantization-noise ratio in dB."""
    import numpy as np

    wanted = signal.astype(np.float64)
    return float(10 * np.log10(np.sum(wanted**2) / np.sum((wanted - decoded) ** 2)))


def show_demo(*, only_cpu: bool) -> bool:
    """Run the demo and print its results; return whether every bit matches the reference.

    Raises:
        RuntimeError: there is no C++ compiler, the cache is unusable, or a kernel cannot be built or run.
    """
    console = make_console()
    with console.status("Building the launcher, once per machine ..."):
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
        f"[bold green]Proven:[/] {kernels(len(outcomes))} ({origin}), called through TVM-FFI on {place.name}, "
        f"gave all {compared:,} bytes of codes and scales exactly as the NumPy reference defines them.",
        highlight=False,
    )
    if built and user_store().writable:
        console.print("Run it again: every kernel comes from the cache.", highlight=False)
