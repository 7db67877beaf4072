"""Tables of results, the bars they are held to, and their files."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from llama.accuracy import Accuracy
from llama.arms import ARMS
from llama.measure import Row

_HEAD = "| arm | tokens/s | layer, us | launches a layer | GEMMs | attention | outside | copy | error |\n"
BEGIN, END = "<!-- python -m llama --write-docs writes what follows -->\n", "<!-- to here -->\n"
_OURS = ("fp8-jitnorm", "fp8-jitnorm-compiled")
_COMPILED_FP8 = ("fp8-compiled", "fp8-torchao")
_FEW_TOKENS = 128


@dataclass
class Results:
    """A run.

    Attributes:
        setup: the machine, the libraries, and what was measured of how much.
        rows: what was measured of models.
        accuracy: what formats lose in a model that was trained.
        left_out: what was not measured, and why.
    """

    setup: dict[str, Any]
    rows: list[Row] = field(default_factory=list)
    accuracy: list[Accuracy] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def write(self, path: Path) -> None:
        """Write JSON, all of it or nothing."""
        (new := path.with_name(path.name + ".new")).write_text(json.dumps(asdict(self), indent=1) + "\n", "utf-8")
        new.replace(path)

    def resume(self, path: Path) -> None:
        """Go on with the rows of a run that has written a file.

        Raises:
            ValueError: the file holds no results, or those of another setup.
        """
        held = self.read(path)
        for name, value in self.setup.items():
            if name != "date" and held.setup.get(name, value) != value:
                raise ValueError(
                    f"{path}: was measured with {name} {held.setup[name]!r}, which is {value!r} now; a table has the "
                    "same throughout: give another file, or leave out --resume"
                )
        self.rows += held.rows

    @classmethod
    def read(cls, path: Path) -> Results:
        """Read JSON.

        Raises:
            ValueError: the file holds no results.
        """
        try:
            held = json.loads(path.read_text(encoding="utf-8"))
            rows, accuracy = [Row(**row) for row in held["rows"]], [Accuracy(**each) for each in held["accuracy"]]
            return cls(held["setup"], rows, accuracy, held["left_out"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}: holds no results of this example ({error!r}); write them with --json") from None


def setup_of(device: str, **options: Any) -> dict[str, Any]:
    """The facts of a run that starts now."""
    packages = {
        "jitnorm": _version("jitnorm"),
        "torch": torch.__version__,
        "triton": _version("triton"),
        "torchao": _version("torchao"),
    }
    name = torch.cuda.get_device_name() if device == "cuda" else platform.machine()
    return {"date": date.today().isoformat(), "device": name, **packages, **options}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def tables(results: Results) -> Iterator[str]:
    """What was measured, as Markdown."""
    cases = dict.fromkeys((row.model, row.phase, row.batch, row.tokens) for row in results.rows)
    for case in cases:
        model, phase, batch, tokens = case
        yield f"**{model}, {phase}, batch {batch}** ({tokens} tokens)\n\n{_HEAD}| --- |{' ---: |' * 8}\n"
        yield from (f"{_cells(row)}\n" for row in _of_case(results.rows, case))
        yield "\n"
    if results.accuracy:
        yield "| format | loss | perplexity | logits, dB | " + " | ".join(results.accuracy[0].snr) + " |\n"
        yield "| --- |" + " ---: |" * (3 + len(results.accuracy[0].snr)) + "\n"
        yield from (f"{_accuracy_cells(each)}\n" for each in results.accuracy)


def _of_case(rows: Iterable[Row], case: tuple[str, str, int, int]) -> list[Row]:
    return [row for row in rows if (row.model, row.phase, row.batch, row.tokens) == case]


def _cells(row: Row) -> str:
    times = (row.gemm_us, row.attention_us, row.outside_us, row.copy_us)
    launches = _number(row.launches, ".1f")
    cells = [
        f"{row.tokens_per_second:,.0f}",
        f"{row.layer_us:.1f}",
        launches,
        *(_number(each, ".1f") for each in times),
    ]
    return " | ".join([f"| {ARMS[row.arm].title}", *cells, f"{row.error:.4f} |"])


def _accuracy_cells(each: Accuracy) -> str:
    cells = [f"{each.loss:.4f}", f"{each.perplexity:.4f}", _number(each.logits_snr, ".1f")]
    return " | ".join([f"| {each.format}", *cells, *(_number(snr, ".1f") for snr in each.snr.values())]) + " |"


def _number(value: float | None, style: str) -> str:
    return "" if value is None else format(value, style)


def bars(rows: Sequence[Row]) -> Iterator[str]:
    """What each arm of jitnorm reaches of what it is held to, a line for each case."""
    for case in dict.fromkeys((row.model, row.phase, row.batch, row.tokens) for row in rows):
        of_case = _of_case(rows, case)
        others = [row for row in of_case if row.arm not in (*_OURS, "fp8-fused")]
        for row in of_case:
            if row.arm in _OURS:
                name = f"{row.model}, {row.phase}, batch {row.batch}, {row.arm}"
                yield f"{name}: {'; '.join(_reached(row, others)) or 'nothing to compare with'}"


def _reached(row: Row, others: Sequence[Row]) -> Iterator[str]:
    if others:
        best = min(others, key=lambda other: other.layer_us)
        speed = best.layer_us / row.layer_us
        yield f"{speed:.3f} times the speed of {best.arm}, the best other arm{_verdict(speed >= 1)}"
    outside, few = row.outside_us, row.tokens <= _FEW_TOKENS
    compiled = [other.outside_us for other in others if other.arm in _COMPILED_FP8 and other.outside_us]
    if outside and compiled:
        share = outside / min(compiled)
        yield f"{share:.2f} of compiled FP8's time outside{_verdict(share <= 0.5) if few else ''}"
    if outside and row.copy_us:
        share = outside / row.copy_us
        yield f"{share:.2f} of a copy's{'' if few else _verdict(share <= 1.1)}"


def _verdict(is_reached: bool) -> str:
    return "" if is_reached else " (MISSED)"


def write_docs(page: Path, all_results: Sequence[Results]) -> None:
    """Put results between the markers of a page.

    Raises:
        ValueError: the page has no markers.
    """
    text = page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page}: has no lines {BEGIN.strip()!r} and {END.strip()!r}")
    blocks = "".join(
        f"\n{_said(results)}{''.join(tables(results))}{_listed(bars(results.rows))}" for results in all_results
    )
    page.write_text(f"{before}{begin}{blocks.rstrip()}\n\n{end}{after}" if blocks else text, encoding="utf-8")


def _said(results: Results) -> str:
    """The setup in words, and what was left out."""
    setup = ", ".join(f"{name} {value}" for name, value in results.setup.items() if value not in ("none", None))
    return f"{setup}.\n\n{_listed(f'not measured: {each}' for each in results.left_out)}"


def _listed(lines: Iterable[str]) -> str:
    items = "".join(f"- {line}\n" for line in lines)
    return f"{items}\n" if items else ""
