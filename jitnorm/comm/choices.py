"""The table of `jitnorm tune-comm`, and the fastest method of summing over ranks that it implies.

A choice depends only on what all ranks of a workspace know: rank 0 sends its entries to the others when the workspace
is created.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from jitnorm import tuning
from jitnorm.comm.memory import Exchange
from jitnorm.kernels.quant_spec import CODE_BITS, QuantSpec
from jitnorm.launcher import launcher
from jitnorm.sealed import read_sealed, write_sealed

METHODS = ("one_shot", "two_shot", "not_fused")
"""The methods to choose from; with equal times, the first is chosen."""
NAME = "ranks"
"""The name of the table, beside tables of schedules, which are named after targets."""
CPU = "CPU"
_ANY_SIZE = 1 << 62
_HEAD = {"table": "sums over ranks"}
_LOG = logging.getLogger("jitnorm.tuning")


@dataclass(frozen=True)
class Entry:
    """The measurements of calls that differ in their rows; times in microseconds, of the slowest rank.

    Attributes:
        device: the name of the GPU, or `CPU`.
        ranks: how many there were.
        hidden_size: elements of a row.
        code_bits: of a code; 0 if the norm is not encoded.
        driver: the version of the GPU's driver.
        date: of the measurement, in ISO format.
        bytes: of the input of each measured call, ascending.
        times: of each of `METHODS` for each number of bytes; None where it was not measured.
    """

    device: str
    ranks: int
    hidden_size: int
    code_bits: int
    driver: str
    date: str
    bytes: tuple[int, ...]
    times: Mapping[str, tuple[float | None, ...]]

    def __post_init__(self) -> None:
        if not self.bytes or list(self.bytes) != sorted(set(self.bytes)) or self.bytes[0] < 1:
            raise ValueError(f"bytes: are {self.bytes}; one or more are expected, ascending from 1 on")
        if {*self.times} != {*METHODS} or {len(times) for times in self.times.values()} != {len(self.bytes)}:
            raise ValueError(f"times: are of {[*self.times]}; one for each of bytes is expected of {METHODS}")

    @property
    def key(self) -> tuple[str, int, int, int]:
        """The attributes by which a new entry replaces an old one."""
        return self.device, self.ranks, self.hidden_size, self.code_bits

    def steps(self, allowed: Collection[str]) -> Steps:
        """The fastest of some methods for inputs of any size; methods without measurements are left out.

        The fastest method for the largest measured input also serves larger ones, unless it is one-shot, which loses at
        some size.
        """
        points: list[tuple[int, str]] = []
        for i in range(len(self.bytes)):
            times = {method: time for method in METHODS if method in allowed and (time := self.times[method][i])}
            if times:
                points.append((i, min(times, key=times.__getitem__)))
        bounds = [
            (self._crossing(*one, *next_one), one[1]) for one, next_one in pairwise(points) if one[1] != next_one[1]
        ]
        for i, last in points[-1:]:
            bounds.append((self.bytes[i] if last == "one_shot" else _ANY_SIZE, last))
        return tuple(bounds)

    def _crossing(self, i: int, before: str, j: int, after: str) -> int:
        """Bytes up to which `before`, the fastest at point i, takes no longer than `after`, the fastest at point j."""
        first, last = self.bytes[i], self.bytes[j]
        before_then, after_now = self.times[before][j], self.times[after][i]
        if before_then is None:
            return first
        if after_now is None:
            return last - 1
        lead, lag = after_now - self._known(before, i), before_then - self._known(after, j)
        return first + int((last - first) * lead / (lead + lag))

    def _known(self, method: str, i: int) -> float:
        time = self.times[method][i]
        assert time is not None
        return time


Steps = tuple[tuple[int, str], ...]
"""Methods, each with the most bytes of an input that it is for, ascending."""

Choices = tuple[Entry, ...]
"""The entries of one device and number of ranks."""


def device_name(device: str | int) -> str:
    """The name that entries have for a CUDA device, by its ordinal, or `CPU`."""
    return str(launcher().device_name(device)) if isinstance(device, int) else CPU


def code_bits(spec: QuantSpec | None) -> int:
    """Bits of a code; 0 without an encoding."""
    return 0 if spec is None else CODE_BITS[spec.element]


def steps_for(choices: Choices, hidden_size: int, bits: int, allowed: Collection[str]) -> Steps:
    """The methods for calls, by the nearest entry; none if there is no entry, so that a rule decides.

    Args:
        choices: of the workspace.
        hidden_size: elements of a row.
        bits: of a code, as `code_bits` gives them.
        allowed: those of `METHODS` that the workspace has room for.
    """
    if not choices:
        return ()

    def distance(entry: Entry) -> tuple[Any, ...]:
        return entry.code_bits != bits, abs(math.log2(entry.hidden_size / max(1, hidden_size))), entry.key

    return min(choices, key=distance).steps(allowed)


def one_shot_bytes(choices: Choices, by_rule: int) -> int:
    """The largest input, in bytes, for which one-shot is the fastest; that of the rule if it never is.

    If one-shot is the fastest for all measured inputs, it may be for larger ones, so the rule decides if it allows
    more.
    """
    found = [by_rule if not choices else 0]
    for steps in (each.steps(METHODS) for each in choices):
        bounds = [most for most, method in steps if method == "one_shot"]
        found += bounds
        if bounds and steps[-1][1] == "one_shot":
            found.append(by_rule)
    return max(found) or by_rule


def agreed(exchange: Exchange, rank: int, ranks: int, device: str) -> Choices:
    """The choices of rank 0, on all ranks.

    Args:
        exchange: an all-gather.
        rank: this one's number.
        ranks: how many there are.
        device: the name of this rank's GPU, or `CPU`.
    """
    own = of_device(device, ranks) if rank == 0 else ()
    said = exchange(json.dumps([asdict(each) for each in own]).encode())[0]
    return tuple(_entries(json.loads(said)))


def of_device(device: str, ranks: int) -> Choices:
    """The choices in the tables that ``JITNORM_TUNING`` allows: the user's entries come before jitnorm's."""
    paths = {"on": (tuning.shipped_file, tuning.user_file), "shipped": (tuning.shipped_file,), "off": ()}
    found: dict[Any, Entry] = {}
    for path_of in paths[tuning.tuning_mode()]:
        found |= {each.key: each for each in _read_or_warn(path_of(NAME))}
    return tuple(each for each in found.values() if (each.device, each.ranks) == (device, ranks))


def _read_or_warn(path: Path) -> Choices:
    try:
        return read_choices(path)
    except FileNotFoundError:
        return ()
    except (OSError, ValueError) as error:
        _LOG.warning("ignoring the choices in %s: %s", path, error)
        return ()


def read_choices(path: Path) -> Choices:
    """Read all entries of a table.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not a table, or is incomplete.
    """
    raw = read_sealed(path)
    try:
        content = json.loads(raw)
        if content["table"] != _HEAD["table"]:
            raise ValueError(f"table: is {content['table']!r}")
        return tuple(_entries(content["entries"]))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"it is not a table of sums over ranks ({error}); remove it, or tune again") from None


def write_choices(entries: Iterable[Entry], path: Path) -> None:
    """Write a table atomically; of two entries with the same key, the last one."""
    by_key = {each.key: each for each in entries}
    write_sealed(_HEAD, (asdict(by_key[key]) for key in sorted(by_key)), path)


def _entries(found: Sequence[Mapping[str, Any]]) -> Iterator[Entry]:
    for each in found:
        times = {method: tuple(of_method) for method, of_method in each["times"].items()}
        yield Entry(**{**each, "bytes": tuple(each["bytes"]), "times": times})
