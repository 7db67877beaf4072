"""Tuned schedules: tables of what `jitnorm tune` has measured, and which schedule they give a call.

A table is for a target. The user's own, in the cache folder, comes before the one that jitnorm ships. What neither of
them lists is divided by the rules of kernels/schedule.py.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from jitnorm.cache.files import make_folder
from jitnorm.cache.private import new_file
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.division import Division
from jitnorm.kernels.row_classes import ROW_CLASSES
from jitnorm.kernels.schedule import why_unfit
from jitnorm.kernels.target import Target
from jitnorm.store import read_file, user_store

Schedules = Mapping[tuple[str, str], str]
"""What a table gives calls: for a family's text and a class of calls, the text of the fastest schedule, see `Entry`."""

VARIABLE = "JITNORM_TUNING"
# All tables count; only jitnorm's own; none.
MODES = ("on", "shipped", "off")
# Ends what the digest is of.
_SEAL = b',\n "sha256": '
_LISTS = ("rows", "by_rule", "best", "copy")
# What calls need of an entry's line as `write_table` writes it: reading the tables takes 2.6 ms of a process's first
# call, and took 5.0 when they were read as JSON.
_CHOICE = re.compile(r'^  {"config": "([^"]*)", "calls": "([^"]*)", "schedule": "([^"]*)"', re.MULTILINE)
_MAX_BYTES = 1 << 26
_SHIPPED = Path(__file__).parent / "data" / "tuning"
_LOG = logging.getLogger("jitnorm.tuning")


@dataclass(frozen=True)
class Entry:
    """What was measured for one family of kernels and one class of calls; times in microseconds.

    Attributes:
        config: the text of the family's KernelConfig, see `family`.
        calls: one of `ROW_CLASSES`.
        schedule: the text of the fastest Division; empty for the rules' schedule.
        rows: how many rows the measured calls had.
        by_rule: the time of the rules' schedule, for each of them.
        best: the time of the fastest schedule.
        copy: that of a copy of as many bytes.
    """

    config: str
    calls: str
    schedule: str
    rows: tuple[int, ...]
    by_rule: tuple[float, ...]
    best: tuple[float, ...]
    copy: tuple[float, ...]

    def __post_init__(self) -> None:
        if self.calls not in ROW_CLASSES:
            raise ValueError(f"calls: is {self.calls!r}; allowed are {', '.join(ROW_CLASSES)}")
        if self.schedule:
            Division.parse(self.schedule)


@dataclass(frozen=True)
class Table:
    """What was measured for a target.

    Attributes:
        target: its name.
        device: the GPU that was measured.
        driver: the version of its driver.
        date: of the last measurement, in ISO's form.
        entries: one for each family and class of calls.
    """

    target: str
    device: str
    driver: str
    date: str
    entries: tuple[Entry, ...] = field(default=())

    def with_entries(self, entries: Iterable[Entry]) -> Table:
        """The table with these entries, in place of those of the same families and calls."""
        merged = {(each.config, each.calls): each for each in (*self.entries, *entries)}
        return replace(self, entries=tuple(merged[key] for key in sorted(merged)))


def family(config: KernelConfig) -> KernelConfig:
    """The configuration that stands for all whose kernels do the same work for each element of a row.

    One measurement serves them. What it leaves out: 16-bit dtypes, strides, PDL, Gemma's weight + 1, where scales are
    stored, whether a scale is given, batches.

    Example:
        >>> str(family(KernelConfig.parse("rmsnorm:hidden_size=64,input=float16,pdl=true"))).split(",")[1]
        'input=bfloat16'
    """
    quant = config.quant
    if quant is not None:
        scale = quant.global_scale if quant.global_scale == "row" else "none"
        quant = replace(quant, scale_layout="linear", global_scale=scale, scale_rounding="up")
    return replace(
        config,
        input=_same_width(config.input),
        weight=_same_width(config.weight),
        quant=quant,
        unit_bias=False,
        row_dims=1,
        pdl=False,
        many_rows=False,
        keep_rstd=False,
        batched=config.masked,
        scale_per_matrix=False,
        scale_ub=False,
        inverse_global_scale=False,
        schedule="",
    )


def _same_width(dtype: str) -> str:
    return "bfloat16" if dtype == "float16" else dtype


def schedule_for(config: KernelConfig, target: Target, calls: str, found: Sequence[Schedules]) -> str:
    """The text of the schedule that the first table with an entry has for a kernel; empty for the rules' schedule.

    Args:
        config: of a call's kernel.
        target: what it is built for.
        calls: the class of the call, one of `ROW_CLASSES`.
        found: tables for the target, the most important first.
    """
    key = (str(family(config)) if found else "", calls)
    schedule = next((schedules[key] for schedules in found if key in schedules), "")
    return "" if not schedule or why_unfit(config, target, Division.parse(schedule)) else schedule


def tuned(config: KernelConfig, target: Target, calls: str) -> KernelConfig:
    """The configuration with the schedule that the tables of this environment give it, if they list it."""
    if target.is_cpu or not config.is_row_wise:
        return config
    schedule = schedule_for(config, target, calls, tables(target.name, tuning_mode()))
    return replace(config, schedule=schedule) if schedule else config


def stand_ins(config: KernelConfig, target: Target) -> Iterator[KernelConfig]:
    """What else may have been built in a kernel's place, by other tables or by none: it takes and writes the same."""
    if target.is_cpu or not config.is_row_wise or config.takes_any_size:
        return
    known, text = {config.schedule}, str(family(config))
    listed = (schedules.get((text, calls), "") for schedules in tables(target.name) for calls in ROW_CLASSES)
    for schedule in ("", *listed):
        if schedule not in known:
            known.add(schedule)
            if not schedule or not why_unfit(config, target, Division.parse(schedule)):
                yield replace(config, schedule=schedule)


def tuning_mode() -> str:
    """Which tables count, by ``JITNORM_TUNING``: one of `MODES`.

    Raises:
        ValueError: it is something else.
    """
    mode = os.environ.get(VARIABLE) or MODES[0]
    if mode not in MODES:
        raise ValueError(f"{VARIABLE}: is {mode!r}; allowed are {', '.join(MODES)}: unset it for {MODES[0]}")
    return mode


@contextlib.contextmanager
def only_shipped_tables() -> Iterator[None]:
    """Leave the user's own tables aside: for what others will use, who do not have them."""
    before = os.environ.get(VARIABLE)
    if tuning_mode() == "on":
        os.environ[VARIABLE] = "shipped"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = before


@lru_cache(maxsize=32)
def tables(target: str, mode: str = "on") -> tuple[Schedules, ...]:
    """What the tables for a target list, the most important first; read once by a process, until `cache_clear`.

    Args:
        target: its name.
        mode: one of `MODES`.
    """
    paths = {"on": (user_file, shipped_file), "shipped": (shipped_file,), "off": ()}[mode]
    found = (_read_or_warn(path(target), target) for path in paths)
    return tuple(schedules for schedules in found if schedules)


def user_file(target: str) -> Path:
    """Where the user's table for a target lies."""
    return user_store().layout.tuning(target)


def shipped_file(target: str) -> Path:
    """Where jitnorm's own table for a target lies, if there is one."""
    return _SHIPPED / f"{target}.json"


def _read_or_warn(path: Path, target: str) -> Schedules:
    """The schedules alone, without what was measured."""
    try:
        body = _sealed(read_file(path, _MAX_BYTES)).decode()
        of_target = f'\n "target": "{target}",\n' in body
        found = {(config, calls): text for config, calls, text in _CHOICE.findall(body) if of_target}
        for schedule in {*found.values()} - {""}:
            Division.parse(schedule)  # another version may know more
        return found
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        _LOG.warning("ignoring the schedules in %s: %s", path, error)
        return {}


def read_table(path: Path) -> Table:
    """The table in a file.

    Raises:
        OSError: it cannot be read.
        ValueError: it holds something else, or not all that was written.
    """
    raw = read_file(path, _MAX_BYTES)
    _sealed(raw)
    try:
        content = json.loads(raw)
        del content["sha256"]
        entries = tuple(
            Entry(**{**each, **{name: tuple(each[name]) for name in _LISTS}}) for each in content.pop("entries")
        )
        return Table(**content, entries=entries)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"it is no table of schedules ({error}); remove it, or run jitnorm tune again") from None


def _sealed(raw: bytes) -> bytes:
    """What `write_table` wrote up to the digest, which tells that it is that, byte for byte; else ValueError."""
    body, seal, _ = raw.rpartition(_SEAL)
    if not seal:
        raise ValueError("it is no table of schedules; remove it, or run jitnorm tune again")
    if raw != body + _seal(body):
        raise ValueError("it is not what was written, by its digest; remove it, or run jitnorm tune again")
    return body


def write_table(table: Table, path: Path) -> None:
    """Write a table in one step as others see it; an entry is a line. The folder is made."""
    content = asdict(table)
    entries = content.pop("entries")
    head = json.dumps(content, indent=1).removesuffix("\n}")
    lines = ",\n".join(f"  {json.dumps(entry)}" for entry in entries)
    body = f'{head},\n "entries": [\n{lines}\n ]'.encode()
    make_folder(path.parent)
    with new_file(path) as file:
        file.write(body + _seal(body))


def _seal(body: bytes) -> bytes:
    return _SEAL + f'"{hashlib.sha256(body).hexdigest()}"\n}}\n'.encode()
