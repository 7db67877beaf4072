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

from llama import accuracy, memory, report, workers
from llama.arms import ARMS, default_arms
from llama.measure import Bench, Case, Cell
from llama.model import SHAPES
from llama.schedule import Schedule, Task

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
    if options.serve:
        answers, sys.stdout = sys.stdout, sys.stderr  # where what libraries print goes
        workers.serve(_bench(options), _cells(options), sys.stdin, answers)
        return
    torch.manual_seed(0)
    results = report.Results(_setup(options))
    if options.accuracy:
        results.accuracy += accuracy.compared(options.device, options.steps, options.formats, _say)
    else:
        if options.json and options.resume and options.json.exists():
            results.resume(options.json)
        _measure(arguments, options, results, begun + options.seconds)
    _say("\n" + "".join(report.tables(results)))
    if options.device == "cuda":
        _say("\n".join([*report.bars(results.rows), *report.summary(results)]))
    if options.json:
        results.write(options.json)


def _measure(arguments: list[str], options: argparse.Namespace, results: report.Results, end: float) -> None:
    """Measure the cells that are missing, on each GPU those of some models."""
    cells, known = _cells(options), {row.key for row in results.rows}
    missing = [number for number, cell in enumerate(cells) if cell.key not in known]
    if not options.workers:
        found = workers.measured_here(_bench(options), cells, missing, end - time.monotonic())
        _keep(found, cells, results, options.json)
        return
    gpus = max(1, min(torch.cuda.device_count(), len(options.models)))
    names = [{SHAPES[model].name for model in options.models[i::gpus]} for i in range(gpus)]
    with ThreadPoolExecutor(gpus) as threads:
        on_gpus = [
            threads.submit(
                _keep, _measured_on(gpu, arguments, options, cells, numbers, end), cells, results, options.json
            )
            for gpu in range(gpus)
            if (numbers := [number for number in missing if cells[number].shape.name in names[gpu]])
        ]
    for each in on_gpus:
        each.result()


def _measured_on(
    gpu: int, arguments: list[str], options: argparse.Namespace, cells: list[Cell], numbers: list[int], end: float
) -> workers.Results:
    """Measure cells by processes on a GPU."""
    count = min(options.workers, len(numbers))
    schedule = Schedule(
        (_task(number, cells[number], options) for number in numbers), _free(options.device, gpu, count)
    )
    environment = workers.environment_of(gpu, options.workers)
    crew = workers.Crew(arguments, cells, schedule, count, environment, _say)
    yield from crew.results(end - time.monotonic())


def _task(number: int, cell: Cell, options: argparse.Namespace) -> Task:
    layers = options.layers or cell.shape.layers
    to_prepare, to_measure = memory.bytes_to_prepare(cell, layers), memory.bytes_to_measure(cell, layers)
    return Task(number, cell.arm.seconds, to_prepare, to_measure)


def _free(device: str, gpu: int, processes: int) -> int:
    """Bytes of a GPU that cells may have in so many processes."""
    if device == "cpu":
        return sys.maxsize
    return int(torch.cuda.mem_get_info(gpu)[0]) - processes * memory.PROCESS - memory.SPARE


def _keep(found: workers.Results, cells: list[Cell], results: report.Results, path: Path | None) -> None:
    """Add what is measured of cells, or why nothing is; the file has it at once, in case the program is ended."""
    for number, row in found:
        with _RESULTS_LOCK:
            if isinstance(row, str):
                model, phase, batch, arm = cells[number].key
                results.left_out.append(f"{model}, {phase}, batch {batch}, {arm}: {row}")
                _say(f"left out: {results.left_out[-1]}")
            else:
                results.rows.append(row)
                times = "".join(f", {name} {value:.1f}" for name, value in row.parts.items())
                _say(f"{row.model} {row.phase} {row.batch} {row.arm}: {row.layer_us:.1f} us a layer{times}")
            if path:
                results.write(path)


def _bench(options: argparse.Namespace) -> Bench:
    return Bench(options.layers, options.device, options.backend)


def _cells(options: argparse.Namespace) -> list[Cell]:
    """Everything that is measured, the most important first."""
    lengths = {"prefill": options.prompt, "decode": options.context}
    return [
        Cell(SHAPES[model], Case(phase, batch, lengths[phase]), ARMS[arm])
        for batch in options.batches
        for phase in options.phases
        for model in options.models
        for arm in options.arms
    ]


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
    add("--workers", type=int, default=16 if is_gpu else 0, help="processes that prepare cells on each GPU; 0: none")
    add("--serve", action="store_true", help=argparse.SUPPRESS)
    add("--seconds", type=float, default=420, help="when all is over")
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
