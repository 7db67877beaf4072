"""Tables of results, the bars they are held to, and their files."""

from __future__ import annotations

import json
import platform
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

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
    for of_case in _cases(results.rows):
        first = of_case[0]
        yield f"**{first.model}, {first.phase}, batch {first.batch}** ({first.tokens} tokens)\n\n"
        yield f"{_HEAD}| --- |{' ---: |' * 8}\n"
        yield from (f"{_cells(row)}\n" for row in of_case)
        yield "\n"
    if results.accuracy:
        yield "| format | loss | perplexity | logits, dB | " + " | ".join(results.accuracy[0].snr) + " |\n"
        yield "| --- |" + " ---: |" * (3 + len(results.accuracy[0].snr)) + "\n"
        yield from (f"{_accuracy_cells(each)}\n" for each in results.accuracy)


def _cases(rows: Iterable[Row]) -> list[list[Row]]:
    """The rows of each case, in the order of arms; rows come in any order, as they were measured."""
    arms = list(ARMS)
    ordered = sorted(rows, key=lambda row: (row.model, row.phase, row.tokens, row.batch, arms.index(row.arm)))
    return [list(of_case) for _, of_case in groupby(ordered, lambda row: (row.model, row.phase, row.tokens, row.batch))]


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


class _Figure(NamedTuple):
    """What an arm reaches in a case.

    Attributes:
        bar: what it is held to.
        value: the ratio that it reaches.
        text: the ratio in words.
        is_reached: None where the bar does not hold, or where an arm that could be better was not measured.
    """

    bar: str
    value: float
    text: str
    is_reached: bool | None


def bars(rows: Sequence[Row]) -> Iterator[str]:
    """What each arm of jitnorm reaches of what it is held to, a line for each case."""
    for row, figures in _figures(rows):
        reached = [f"{each.text}{' (MISSED)' if each.is_reached is False else ''}" for each in figures]
        name = f"{row.model}, {row.phase}, batch {row.batch}, {row.arm}"
        yield f"{name}: {'; '.join(reached) or 'nothing to compare with'}"


def summary(results: Results) -> Iterator[str]:
    """How many cells were measured, and of each bar how often it is reached."""
    if results.rows:
        yield f"{len(results.rows)} of {len(results.rows) + len(results.left_out)} cells are measured"
    held: dict[str, list[_Figure]] = {}
    for _, figures in _figures(results.rows):
        for each in figures:
            if each.is_reached is not None:
                held.setdefault(each.bar, []).append(each)
    for bar, figures in held.items():
        values, missed = [each.value for each in figures], sum(not each.is_reached for each in figures)
        yield f"{bar}: {min(values):.2f} to {max(values):.2f}; {missed or 'none'} of {len(figures)} MISSED"


def _figures(rows: Sequence[Row]) -> list[tuple[Row, list[_Figure]]]:
    """Of each row of jitnorm's what it reaches."""
    to_beat = {row.arm for row in rows} - {*_OURS, "fp8-fused"}
    return [
        (row, list(_reached(row, [other for other in of_case if other.arm in to_beat], to_beat)))
        for of_case in _cases(rows)
        for row in of_case
        if row.arm in _OURS
    ]


def _reached(row: Row, others: Sequence[Row], to_beat: Collection[str]) -> Iterator[_Figure]:
    absent = set(to_beat) - {other.arm for other in others}
    if others:
        best = min(others, key=lambda other: other.layer_us)
        speed = best.layer_us / row.layer_us
        of_how_many = f"of {len(others)} other arms, the rest were not measured" if absent else "other arm"
        text = f"{speed:.3f} times the speed of {best.arm}, the best {of_how_many}"
        yield _Figure("speed, at least the best other arm's", speed, text, _verdict(speed >= 1, absent))
    outside, few = row.outside_us, row.tokens <= _FEW_TOKENS
    compiled = [other.outside_us for other in others if other.arm in _COMPILED_FP8 and other.outside_us]
    if outside and compiled:
        share = outside / min(compiled)
        bar = f"time outside, at most half of compiled FP8's, up to {_FEW_TOKENS} tokens"
        text = f"{share:.2f} of compiled FP8's time outside"
        yield _Figure(bar, share, text, _verdict(share <= 0.5, absent.intersection(_COMPILED_FP8)) if few else None)
    if outside and row.copy_us:
        share = outside / row.copy_us
        bar = f"time outside, at most 1.1 of a copy's, above {_FEW_TOKENS} tokens"
        yield _Figure(bar, share, f"{share:.2f} of a copy's", None if few else share <= 1.1)


def _verdict(is_reached: bool, absent: Collection[str]) -> bool | None:
    """Whether a bar is reached; arms that are absent could only raise it."""
    return None if is_reached and absent else is_reached


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
    """The setup in words, what came of it, and what was left out."""
    setup = ", ".join(f"{name} {value}" for name, value in results.setup.items() if value not in ("none", None))
    return f"{setup}.\n\n{_listed([*summary(results), *(f'not measured: {each}' for each in results.left_out)])}"


def _listed(lines: Iterable[str]) -> str:
    items = "".join(f"- {line}\n" for line in lines)
    return f"{items}\n" if items else ""
