"""Tuned schedules: which schedule a call gets, by the user's tables of `jitnorm tune`, by forms or by rules.

A table is for a target, and lies in the cache folder. A call without an entry in it gets its schedule from the forms
that jitnorm ships, or else from the rules of kernels/schedule.py.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from jitnorm.fitted_forms import Forms, fitted_schedule, read_forms, second_size_of
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.few_rows import few_rows_schedule
from jitnorm.kernels.packed_rows import packed_schedule
from jitnorm.kernels.quant_spec import QuantSpec
from jitnorm.kernels.row_classes import ROW_CLASSES
from jitnorm.kernels.row_schedule import WARP_LANES, RowSchedule
from jitnorm.kernels.schedule import why_unfit
from jitnorm.kernels.side_by_side import meets_side_by_side
from jitnorm.kernels.tabulated_rows import tabulated_schedule
from jitnorm.kernels.target import Target
from jitnorm.sealed import read_sealed
from jitnorm.store import user_store

Schedules = Mapping[tuple[str, str], str]
"""The schedules of a table as text, by tuning key and class of rows."""

VARIABLE = "JITNORM_TUNING"
# Use the user's tables and jitnorm's forms; only the forms; neither.
MODES = ("on", "shipped", "off")
# What calls need of an entry's line, as jitnorm/tune/table.py writes it: reading the tables this way takes 1.4 ms of a
# process's first call, parsing JSON 5.0.
_CHOICE = re.compile(r'^  {"config": "([^"]*)", "row_class": "([^"]*)", "schedule": "([^"]*)"', re.MULTILINE)
_SHIPPED = Path(__file__).parent / "data" / "tuning"
_NO_FORMS: Forms = {}
# Targets without forms of their own use those of this one, as they use its rules.
_MEASURED = "sm_90a"
_LOG = logging.getLogger("jitnorm.tuning")


def tuning_key(config: KernelConfig) -> KernelConfig:
    """The configuration that represents all kernels that do the same work per element of a row.

    One measurement serves them all. The key ignores which 16-bit dtype is used, strides, PDL, Gemma's weight + 1, the
    rounding of the norm, where scales are stored, whether a single scale is given or has a floor, batches, gathering,
    the length of a pair's second rows, and the activation of gates, apart from GELU, with which a row takes 1.5 times
    the instructions. Without gates or a norm, any counts as GELU, but the square of ReLU as none if it is quantized:
    with the schedules of GELU to NVFP4, which takes nearly four times as many instructions, 594 x 18816 reached 0.61 of
    a copy. One-byte codes count as E4M3, and their groups as groups of 128. Experts count as a mask: tensors say how
    many rows they have.

    Example:
        >>> str(tuning_key(KernelConfig.parse("rmsnorm:hidden_size=64,input=float16,pdl=true"))).split(",")[1]
        'input=bfloat16'
    """
    quant = config.quant
    if quant is not None:
        quant = _stand_in(quant, config.hidden_size)
        is_kept = quant.global_scale == "row" or quant.has_given_scales
        scale = quant.global_scale if is_kept else "none"
        quant = replace(quant, scale_layout="linear", global_scale=scale, scale_rounding="up", scale_floor=None)
    return replace(
        config,
        input=_same_width(config.input),
        weight=_same_width(config.weight),
        quant=quant,
        unit_bias=False,
        rounding="once",
        row_dims=1,
        pdl=False,
        many_rows=False,
        keep_rstd=False,
        keep_statistics=False,
        batched=config.masked,
        masked=config.masked,
        experts=0,
        gathers=False,
        scale_per_matrix=False,
        weight_per_matrix=False,
        scale_ub=False,
        inverse_global_scale=False,
        activation=_activation(config),
        values_first=False,
        second_size=second_size_of(config.hidden_size) if config.second_size else 0,
        schedule="",
    )


def _stand_in(quant: QuantSpec, hidden_size: int) -> QuantSpec:
    """The representative of one-byte encodings: E4M3, with groups of 128 if the row has whole ones."""
    if quant.element == "e2m1":
        return quant
    is_grouped = quant.scale_format == "f32" and isinstance(quant.block_size, int) and hidden_size % 128 == 0
    return replace(quant, element="e4m3", block_size=128 if is_grouped else quant.block_size)


def _activation(config: KernelConfig) -> str:
    """The representative of an activation; empty for the default, which is SiLU of gates and else none."""
    if config.gate_columns:
        return "gelu" if config.activation == "gelu" else ""
    if config.normalizes or not config.activation:
        return config.activation
    return "" if config.activation == "relu2" and config.quant is not None else "gelu"


def _same_width(dtype: str) -> str:
    return "bfloat16" if dtype == "float16" else dtype


def schedule_for(
    config: KernelConfig, target: Target, row_class: str, found: Schedules, forms: Forms = _NO_FORMS
) -> str:
    """The schedule for a kernel, as text; empty for the rules' schedule.

    An entry of the user's table comes first, then the rule for blocks that look activations up. Without either, many
    short rows have the rules' schedule if it lets them share warps, unless the form fitted to measurements has rows
    that meet side by side; all others have this form or, without one, the rule for few rows.

    Args:
        config: the configuration of a call's kernel.
        target: the target of the kernel.
        row_class: the class of the call's rows, one of `ROW_CLASSES`.
        found: the table for the target; may be empty.
        forms: forms for the target.
    """
    key = tuning_key(config) if found or forms else config
    schedule = found.get((str(key), row_class))
    if schedule is None:
        schedule = tabulated_schedule(config, target, row_class) or None
    if schedule is None:
        schedule = fitted_schedule(key, config, target, row_class, forms)
        if packed_schedule(config) and not (schedule and _lies_side_by_side(config, schedule)):
            schedule = ""  # other forms are for rows that do not share warps
    if schedule is None:
        schedule = few_rows_schedule(config, target, row_class)
    return "" if not schedule or why_unfit(config, target, RowSchedule.parse(schedule)) else schedule


def _lies_side_by_side(config: KernelConfig, schedule: str) -> bool:
    """Whether rows that meet lie side by side in a schedule, given as text."""
    return meets_side_by_side(config) and RowSchedule.parse(schedule).lanes_per_row != WARP_LANES


def tuned(config: KernelConfig, target: Target, row_class: str) -> KernelConfig:
    """The configuration with the schedule that this environment chooses, if it is not the rules'."""
    if target.is_cpu or not config.is_row_wise:
        return config
    mode = tuning_mode()
    schedule = schedule_for(config, target, row_class, user_table(target.name, mode), forms_of(target.name, mode))
    return replace(config, schedule=schedule) if schedule else config


def stand_ins(config: KernelConfig, target: Target) -> Iterator[KernelConfig]:
    """Kernels with the same interface and output that the table, forms or rules, each alone, would have chosen."""
    if target.is_cpu or not config.is_row_wise:
        return
    known = {config.schedule}
    choices: Sequence[tuple[Schedules, Forms]] = (
        (user_table(target.name), _NO_FORMS), ({}, forms_of(target.name)), ({}, _NO_FORMS)
    )  # fmt: skip
    chosen = (schedule_for(config, target, each, *choice) for choice in choices for each in ROW_CLASSES)
    for schedule in ("", *chosen):
        if schedule not in known:
            known.add(schedule)
            yield replace(config, schedule=schedule)


def tuning_mode() -> str:
    """The tables to use, by ``JITNORM_TUNING``: one of `MODES`.

    Raises:
        ValueError: the variable has another value.
    """
    mode = os.environ.get(VARIABLE) or MODES[0]
    if mode not in MODES:
        raise ValueError(f"{VARIABLE}: is {mode!r}; allowed are {', '.join(MODES)}: unset it for {MODES[0]}")
    return mode


@contextlib.contextmanager
def without_user_tables() -> Iterator[None]:
    """Ignore the user's tables, for kernels that are built for others, who do not have these tables."""
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
def user_table(target: str, mode: str = "on") -> Schedules:
    """The schedules of the user's table for a target, if the mode uses it; read once per process, until `cache_clear`.

    Args:
        target: the name of the target.
        mode: one of `MODES`.
    """
    return _read_or_warn(user_file(target), target) if mode == "on" else {}


def forms_of(target: str, mode: str = "on") -> Forms:
    """The forms for a target, or those of `_MEASURED` if it has none of its own.

    Args:
        target: the name of the target.
        mode: one of `MODES`.
    """
    path = next(filter(Path.is_file, map(forms_file, (target, _MEASURED))), None)
    return _NO_FORMS if path is None or mode == "off" else _forms_in(path)


@lru_cache(maxsize=32)
def _forms_in(path: Path) -> Forms:
    """Read a file once per process."""
    try:
        return read_forms(path)
    except (OSError, ValueError) as error:
        _LOG.warning("ignoring the forms in %s: %s", path, error)
        return _NO_FORMS


def forms_file(target: str) -> Path:
    """The file of the forms for a target, if there is one."""
    return shipped_file(f"{target}.forms")


def user_file(target: str) -> Path:
    """The file of the user's table for a target."""
    return user_store().layout.tuning(target)


def shipped_file(name: str) -> Path:
    """The file of measurements that jitnorm ships under a name, if there is one."""
    return _SHIPPED / f"{name}.json"


def _read_or_warn(path: Path, target: str) -> Schedules:
    """Read only the schedules of a table, without the measurements."""
    try:
        text = read_sealed(path).decode()
        of_target = f'\n "target": "{target}",\n' in text
        found = {(key, row_class): text for key, row_class, text in _CHOICE.findall(text) if of_target}
        for schedule in {*found.values()} - {""}:  # the version that wrote the table may know other schedules
            RowSchedule.parse(schedule)
        return found
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        _LOG.warning("ignoring the schedules in %s: %s", path, error)
        return {}
