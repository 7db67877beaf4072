"""Cases to tune: kernels that share a tuning key, and the calls they are measured in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from jitnorm.bench.cases import op_named
from jitnorm.bench.more_cases import MORE_OPS
from jitnorm.kernels.candidates import candidates
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.numerics import ceil_div
from jitnorm.kernels.row_classes import (
    FEW_ROWS,
    MANY_ELEMENTS,
    MANY_ROWS,
    MANY_SHORTER_ROWS,
    ROW_CLASSES,
    SHORT_ROW,
    class_of,
    classes_of,
)
from jitnorm.kernels.schedule import for_many_rows
from jitnorm.kernels.spelling import did_you_mean
from jitnorm.kernels.target import Target
from jitnorm.tuning import forms_of, schedule_for, tuning_key

# Ops of `jitnorm bench` that are tuned if none are named, and all whose kernels divide rows in more than one way, one
# for each tuning key.
USUAL_OPS = (
    "rmsnorm", "add_rmsnorm", "rmsnorm fp8", "add fp8", "fp8 token", "add fp8 token", "rmsnorm fp8 128", "add fp8 128",
    "rmsnorm nvfp4", "add nvfp4", "rmsnorm mxfp4", "add mxfp4", "rmsnorm mxfp8", "add mxfp8", "nvfp4 by row",
    "nvfp4 alone", "layernorm", "silu nvfp4", "mhc 4",
)  # fmt: skip
OPS = (
    *USUAL_OPS, "mhc 2", "mxfp4 alone", "mxfp8 alone", "fp8 128 alone", "four over six", "silu mxfp8",
    "silu fp8 128", "silu fp8", "silu fp8 token", "silu", "layernorm fp8", "layernorm fp8 token", "layernorm mxfp8",
    "rmsnorm silu", "rmsnorm silu nvfp4", "gated", "gated nvfp4", "sandwich", "sandwich nvfp4", "gated add",
    "adaptive", "adaptive mxfp8", "rmsnorm multi", "gated input", "gated fp8", "gated fp8 token", "rmsnorm alone",
    "fp8 by columns", "fp8 128 by given", "mxfp8 grouped", "nvfp4 grouped", "silu nvfp4 grouped",
    "silu mxfp4 experts", "silu nvfp4 by 8", "swigluoai", "swigluoai mxfp8", "gelu alone", "gelu alone nvfp4",
    "mhc pre", "mhc pre with prenorm", "amax", "layernorm alone", "layernorm bf16", "q_kv_rmsnorm", "gelu",
    "gelu nvfp4", *(op.name for op in MORE_OPS),
)  # fmt: skip
# Hidden sizes that are tuned if none are named.
HIDDEN_SIZES = (1536, 2048, 3072, 4096, 5120, 6144, 7168, 8192, 12288, 16384, 24576, 32768)
# Row counts that cover each class.
_FEW = (1, 16, 64, FEW_ROWS)
_SOME = (192, 384)
_SEVERAL = (448, 768, 1024)
_USUAL = (1792, 3072, 6144, 12288)


@dataclass(frozen=True)
class Case:
    """Kernels that share a tuning key, in calls of one class of rows.

    Attributes:
        op: its name in `jitnorm bench`.
        key: their key in tables.
        row_class: one of `ROW_CLASSES`.
        rows: how many rows the measured calls have.
        config: the configuration of the kernel that the rules choose.
        schedules: the schedules to compare it with.
    """

    op: str
    key: KernelConfig
    row_class: str
    rows: tuple[int, ...]
    config: KernelConfig
    schedules: tuple[str, ...]

    @property
    def configs(self) -> tuple[KernelConfig, ...]:
        """The configurations of all measured kernels, the rules' first."""
        return (self.config, *(replace(self.config, schedule=each) for each in self.schedules))


@dataclass(frozen=True)
class Plan:
    """The cases to measure, and why other requested ones are skipped.

    Attributes:
        cases: one for each op, hidden size and class of rows.
        left_out: ops with their hidden sizes and the reason, one line each.
    """

    cases: list[Case]
    left_out: list[str]


def plan(ops: Sequence[str], hidden_sizes: Sequence[int], row_classes: Sequence[str], target: Target) -> Plan:
    """Plan the cases for a target, skipping kernels with only one schedule and classes without calls.

    Args:
        ops: names out of `OPS`; none for `USUAL_OPS`.
        hidden_sizes: elements of rows; none for `HIDDEN_SIZES`.
        row_classes: some of `ROW_CLASSES`, of which ``few`` includes ``fewest`` and ``some`` ``several``; none for all.
        target: what the kernels are built for.

    Raises:
        ValueError: a name is not known.
    """
    for name, chosen, allowed in (("ops", ops, OPS), ("row_classes", row_classes, ROW_CLASSES)):
        for each in chosen:
            if each not in allowed:
                raise ValueError(f"{name}: is {each!r}; allowed are {', '.join(allowed)}{did_you_mean(each, allowed)}")
    found = Plan([], [])
    for op in ops or USUAL_OPS:
        for size in hidden_sizes or HIDDEN_SIZES:
            try:
                of_size = [_case(op, size, of, target) for of in classes_of(size, row_classes or ROW_CLASSES)]
            except ValueError as error:
                found.left_out.append(f"{op} at {size}: {error}")
                continue
            measured = [case for case in of_size if case.schedules and case.rows]
            found.cases.extend(measured)
            if not measured:
                found.left_out.append(f"{op} at {size}: no such call has a choice of schedules")
    return found


def _case(op: str, hidden_size: int, row_class: str, target: Target) -> Case:
    key = tuning_key(op_named(op).config(hidden_size))
    config = replace(key, pdl=target.has_pdl)
    config = for_many_rows(config, target) if row_class == "many" else config
    # The schedules of calls without a table, by a form or a rule, are compared, too.
    own = (schedule_for(config, target, row_class, {}, forms) for forms in (forms_of(target.name), {}))
    found = (*own, *map(str, candidates(config, target, row_class)))
    schedules = tuple(dict.fromkeys(filter(None, found)))
    return Case(op, key, row_class, rows_of(row_class, hidden_size), config, schedules)


def rows_of(row_class: str, hidden_size: int) -> tuple[int, ...]:
    """Numbers of rows that represent a class; none if rows are so long that no call belongs to it.

    Example:
        >>> rows_of("usual", 16384), rows_of("many", 2048), rows_of("many", 4096)
        ((1792, 3072), (16384, 65536), (16384, 32768))
    """
    if row_class == "many":
        short = {MANY_SHORTER_ROWS, MANY_ROWS, MANY_ELEMENTS // 2 // hidden_size}
        fewest = short if hidden_size <= SHORT_ROW else {ceil_div(MANY_ELEMENTS, hidden_size)}
        rows = {*fewest, 2 * MANY_ELEMENTS // hidden_size}
    else:
        rows = {*_FEW, *_SOME, *_SEVERAL, *_USUAL}
    return tuple(sorted(each for each in rows if class_of(each, hidden_size) == row_class))
