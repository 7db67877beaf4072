"""The demonstration's command; docs/demonstration.md describes it.

python -m llama                       # measures, on a GPU, and prints tables
python -m llama --accuracy            # trains a small model, and compares formats in it
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

import torch

from llama import accuracy, report, workers
from llama.arms import ARMS, default_arms
from llama.measure import Bench, Case, Cell, Row
from llama.model import SHAPES

_RESULTS_LOCK = Lock()
PAGE = Path(__file__).parents[2] / "docs" / "demonstration.md"


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    arguments = sys.argv[1:] if arguments is None else arguments
    begun, options = time.monotonic(), _parser().parse_args(arguments)
    if options.write_docs:
        report.write_docs(PAGE, [report.Results.read(path) for path in options.write_docs])
        return
    torch.backends.cuda.enable_cudnn_sdp(False)  # all arms have flash attention
    if options.cells is not None:
        _work(options)
        return
    torch.manual_seed(0)
    results = report.Results(_setup(options))
    if options.accuracy:
        results.accuracy += accuracy.compared(options.device, options.steps, options.formats, _say)
    else:
        if options.json and options.resume and options.json.exists():
            results.rows += report.Results.read(options.json).rows
        _measure(arguments, options, results, begun + options.seconds)
    _say("\n" + "".join(report.tables(results)))
    if options.device == "cuda":
        _say("\n".join(report.bars(results.rows)))
    if options.json:
        results.write(options.json)


def _measure(arguments: list[str], options: argparse.Namespace, results: report.Results, end: float) -> None:
    """Measure all cells, on each GPU those of some models."""
    gpus = max(1, min(torch.cuda.device_count(), len(options.models))) if options.workers else 1
    with ThreadPoolExecutor(gpus) as threads:
        on_gpus = [
            threads.submit(_measure_models, arguments, options, results, end, options.models[i::gpus], i)
            for i in range(gpus)
        ]
    for each in on_gpus:
        each.result()


def _measure_models(
    arguments: list[str], options: argparse.Namespace, results: report.Results, end: float, models: list[str], gpu: int
) -> None:
    """Measure models on a GPU; the file is written after each cell, so that it has them if the program is ended."""
    for done, model in enumerate(models):
        shape, cells = SHAPES[model], _cells(options)
        has = {(row.model, row.phase, row.batch, row.arm) for row in results.rows}
        missing = [
            number
            for number, (case, arm) in enumerate(cells)
            if (shape.name, case.phase, case.batch, arm.name) not in has
        ]
        seconds = (end - time.monotonic()) / (len(models) - done)
        if options.workers:
            own, environment = [*arguments, "--models", model], workers.environment_of(gpu, options.workers)
            found = workers.measured_by_workers(own, missing, options.workers, environment, seconds)
        else:
            found = workers.measured_here(
                _bench(options, model), {number: cells[number] for number in missing}, seconds
            )
        for number, row in found:
            _keep(row, cells[number], shape.name, results, options.json)


def _keep(row: Row | str, cell: Cell, model: str, results: report.Results, path: Path | None) -> None:
    """Add what was measured of a cell, or why nothing was."""
    case, arm = cell
    with _RESULTS_LOCK:
        if isinstance(row, str):
            results.left_out.append(f"{model}, {case.phase}, batch {case.batch}, {arm.name}: {row}")
            _say(f"left out: {results.left_out[-1]}")
            return
        results.rows.append(row)
        times = "".join(f", {name} {value:.1f}" for name, value in row.parts.items())
        _say(f"{model} {case.phase} {case.batch} {arm.name}: {row.layer_us:.1f} us a layer{times}")
        if path:
            results.write(path)


def _work(options: argparse.Namespace) -> None:
    """Be one of the processes that measure cells; what libraries print goes elsewhere."""
    answers, sys.stdout = sys.stdout, sys.stderr
    cells = _cells(options)
    bench = _bench(options, *options.models)
    workers.serve(bench, {number: cells[number] for number in options.cells}, sys.stdin, answers)


def _bench(options: argparse.Namespace, model: str) -> Bench:
    shape = SHAPES[model]
    return Bench(shape, options.layers or shape.layers, options.device, options.backend)


def _cells(options: argparse.Namespace) -> list[Cell]:
    """Everything that is measured of a model, the most important first."""
    lengths = {"prefill": options.prompt, "decode": options.context}
    cases = [Case(phase, batch, lengths[phase]) for batch in options.batches for phase in options.phases]
    return [(case, ARMS[name]) for case in cases for name in options.arms]


def _say(text: str) -> None:
    print(text, flush=True)


def _setup(options: argparse.Namespace) -> dict[str, object]:
    if options.accuracy:
        return report.setup_of(options.device, steps=options.steps)
    layers = {f"layers of {name}": options.layers or SHAPES[name].layers for name in options.models}
    return report.setup_of(options.device, prompt=options.prompt, context=options.context, **layers)


def _parser() -> argparse.ArgumentParser:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    is_gpu = device == "cuda"
    parser = argparse.ArgumentParser(
        prog="python -m llama",
        description=__doc__.partition("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    measuring = parser.add_argument_group("measuring")
    add = measuring.add_argument
    add(
        "--models",
        type=_names_of(SHAPES),
        default=["llama", "qwen3"] if is_gpu else ["tiny"],
        help="of " + ", ".join(SHAPES),
    )
    add("--arms", type=_names_of(ARMS), default=default_arms(device), help="of " + ", ".join(ARMS))
    add(
        "--phases", type=_names_of(("decode", "prefill")), default=["decode", "prefill"], help="decode, prefill or both"
    )
    add("--batches", type=_numbers, default=[1, 32, 256] if is_gpu else [1, 2], help="how many sequences")
    add("--prompt", type=int, default=256 if is_gpu else 8, help="tokens of a sequence in prefill")
    add("--context", type=int, default=1024 if is_gpu else 8, help="tokens of a sequence in decode")
    add("--layers", type=int, default=2, help="layers that are measured; 0: all that the model has")
    add("--workers", type=int, default=12 if is_gpu else 0, help="processes that prepare cells on each GPU; 0: none")
    add("--cells", type=_numbers, help=argparse.SUPPRESS)
    add("--seconds", type=float, default=270, help="when nothing else is begun")
    add("--device", choices=("cuda", "cpu"), default=device, help="where to run")
    add("--backend", default="inductor", help="of torch.compile")
    trained = parser.add_argument_group("accuracy")
    trained.add_argument("--accuracy", action="store_true", help="train a small model, and compare formats in it")
    trained.add_argument("--steps", type=int, default=400, help="of training")
    trained.add_argument(
        "--formats",
        type=_names_of(accuracy.FORMATS),
        default=list(accuracy.FORMATS),
        help="of " + ", ".join(accuracy.FORMATS),
    )
    files = parser.add_argument_group("files")
    files.add_argument("--json", type=Path, help="where to write results")
    files.add_argument("--resume", action="store_true", help="measure only what the file of results does not have yet")
    files.add_argument(
        "--write-docs", type=Path, nargs="+", metavar="JSON", help="results to put into docs/demonstration.md"
    )
    return parser


def _names_of(known: Collection[str]) -> Callable[[str], list[str]]:
    """A type of argument: names, with commas between them."""

    def names(text: str) -> list[str]:
        found = text.split(",")
        unknown = [name for name in found if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is not known; allowed are {', '.join(known)}")
        return found

    return names


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")
