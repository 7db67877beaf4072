"""The demonstration's command; docs/demonstration.md describes it.

python -m llama                       # measures, on a GPU, and prints tables
python -m llama --accuracy            # trains a small model, and compares formats in it
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import torch

from llama import accuracy, ahead, report
from llama.arms import ARMS, default_arms
from llama.measure import Bench, Case
from llama.model import SHAPES

PAGE = Path(__file__).parents[2] / "docs" / "demonstration.md"


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    arguments = sys.argv[1:] if arguments is None else arguments
    options, deadline = _parser().parse_args(arguments), time.monotonic()
    deadline += options.seconds
    if options.write_docs:
        report.write_docs(PAGE, [report.Results.read(path) for path in options.write_docs])
        return
    torch.manual_seed(0)
    torch.backends.cuda.enable_cudnn_sdp(False)  # all arms have flash attention
    if options.part:
        with torch.no_grad():
            ahead.compile_all(ahead.part_of(_jobs(options), options.part), options.device, options.backend)
        return
    results = report.Results(_setup(options))
    if options.accuracy:
        results.accuracy += accuracy.compared(options.device, options.steps, options.formats, _say)
    else:
        if options.workers:
            ahead.run_workers(arguments, options.workers, deadline - options.seconds / 2)  # leaves time to measure
        with torch.no_grad():
            _measure(options, results, deadline)
    _say("\n" + "".join(report.tables(results)))
    if options.device == "cuda":
        _say("\n".join(report.bars(results.rows)))
    if options.json:
        results.write(options.json)


def _measure(options: argparse.Namespace, results: report.Results, deadline: float) -> None:
    """Measure all cases; the file is written after each, so that it has them if the program is ended."""
    for model in options.models:
        shape = SHAPES[model]
        bench = Bench(shape, options.layers or shape.layers, options.device, options.backend)
        for case in _cases(options):
            for row in bench.rows(case, [ARMS[name] for name in options.arms], deadline, results.left_out.append):
                results.rows.append(row)
                _say(f"{row.model} {row.phase} {row.batch} {row.arm}: {row.layer_us:.1f} us a layer")
            if options.json:
                results.write(options.json)
    for each in results.left_out:
        _say(f"left out: {each}")


def _cases(options: argparse.Namespace) -> Iterator[Case]:
    for phase in options.phases:
        length = options.prompt if phase == "prefill" else options.context
        yield from (Case(phase, batch, length) for batch in options.batches)


def _jobs(options: argparse.Namespace) -> list[ahead.Job]:
    """Everything that is compiled."""
    models, arms = [SHAPES[name] for name in options.models], [ARMS[name] for name in options.arms]
    return [(shape, case, arm) for shape in models for case in _cases(options) for arm in arms if arm.compiles(shape)]


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
    add("--layers", type=int, default=4 if is_gpu else 2, help="layers that are measured; 0: all that the model has")
    add(
        "--workers", type=int, default=min(8, os.cpu_count() or 1) if is_gpu else 0, help="processes that compile first"
    )
    add("--part", help=argparse.SUPPRESS)
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
