"""What is tuned: families of kernels, and the calls that they are measured in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from jitnorm.kernels.candidates import candidates
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.row_classes import FEW_ROWS, MANY_ELEMENTS, MANY_ROWS, ROW_CLASSES, class_of
from jitnorm.kernels.schedule import for_many_rows
from jitnorm.kernels.target import Target
from jitnorm.tuning import family

# By the names of jitnorm/bench/cases.py.
_CONFIGS = {
    "rmsnorm": "rmsnorm",
    "add_rmsnorm": "rmsnorm:residual=true",
    "rmsnorm fp8": "rmsnorm:quant=e4m3/tensor/f32",
    "add fp8": "rmsnorm:residual=true,quant=e4m3/tensor/f32",
    "fp8 token": "rmsnorm:quant=e4m3/row/f32",
    "add fp8 token": "rmsnorm:residual=true,quant=e4m3/row/f32",
    "rmsnorm fp8 128": "rmsnorm:quant=e4m3/128/f32",
    "add fp8 128": "rmsnorm:residual=true,quant=e4m3/128/f32",
    "rmsnorm nvfp4": "rmsnorm:quant=e2m1/16/e4m3",
    "add nvfp4": "rmsnorm:residual=true,quant=e2m1/16/e4m3",
    "rmsnorm mxfp4": "rmsnorm:quant=e2m1/32/ue8m0",
    "add mxfp4": "rmsnorm:residual=true,quant=e2m1/32/ue8m0",
    "rmsnorm mxfp8": "rmsnorm:quant=e4m3/32/ue8m0",
    "add mxfp8": "rmsnorm:residual=true,quant=e4m3/32/ue8m0",
    "nvfp4 by row": "rmsnorm:quant=e2m1/16/e4m3/linear/row",
    "nvfp4 alone": "quantize:quant=e2m1/16/e4m3",
    "layernorm": "layernorm",
    "silu nvfp4": "quantize:gate_columns=-1,quant=e2m1/16/e4m3",
    "mhc 4": "rmsnorm:streams=4,weight=float32,quant=e2m1/16/e4m3/linear/row",
    "mhc 2": "rmsnorm:streams=2,weight=float32,quant=e2m1/16/e4m3/linear/row",
    "mxfp4 alone": "quantize:quant=e2m1/32/ue8m0",
    "mxfp8 alone": "quantize:quant=e4m3/32/ue8m0",
    "fp8 128 alone": "quantize:quant=e4m3/128/f32",
    "four over six": "quantize:quant=e2m1/16/e4m3/linear/none/up/true",
    "silu mxfp8": "quantize:gate_columns=-1,quant=e4m3/32/ue8m0",
}
OPS = tuple(_CONFIGS)
USUAL_OPS = OPS[: OPS.index("mhc 4") + 1]
HIDDEN_SIZES = (1536, 2048, 3072, 4096, 5120, 6144, 7168, 8192, 12288, 16384, 32768)
# Calls all over their class.
_FEW = (1, 16, FEW_ROWS)
_SOME = (2 * FEW_ROWS, 512, 1024)
_USUAL = (1792, 3072, 6144)
_MANY_ELEMENTS = (MANY_ELEMENTS >> 1, MANY_ELEMENTS << 1)


@dataclass(frozen=True)
class Case:
    """A family of kernels in calls of one class.

    Attributes:
        op: its name, as of `jitnorm bench`.
        family: what stands for it in tables.
        calls: one of `ROW_CLASSES`.
        rows: how many rows the calls have that are measured.
        config: of the kernel that the rules choose.
        schedules: those to compare it with.
    """

    op: str
    family: KernelConfig
    calls: str
    rows: tuple[int, ...]
    config: KernelConfig
    schedules: tuple[str, ...]

    @property
    def configs(self) -> tuple[KernelConfig, ...]:
        """Those of all kernels that are measured, that of the rules first."""
        return (self.config, *(replace(self.config, schedule=each) for each in self.schedules))


@dataclass(frozen=True)
class Plan:
    """What is measured, and why the rest of what was asked for is not.

    Attributes:
        cases: one for each op, hidden size and class of calls.
        left_out: ops with their hidden sizes and the reason, a line each.
    """

    cases: list[Case]
    left_out: list[str]


def plan(ops: Sequence[str], hidden_sizes: Sequence[int], calls: Sequence[str], target: Target) -> Plan:
    """What is measured on a target: no kernel whose schedule leaves no choice, no class that no call has.

    Args:
        ops: names out of `OPS`; none for `USUAL_OPS`.
        hidden_sizes: elements of rows; none for `HIDDEN_SIZES`.
        calls: some of `ROW_CLASSES`; none for all.
        target: what the kernels are built for.

    Raises:
        ValueError: a name is not known.
    """
    for name, chosen, allowed in (("ops", ops, OPS), ("calls", calls, ROW_CLASSES)):
        for each in chosen:
            if each not in allowed:
                raise ValueError(f"{name}: is {each!r}; allowed are {', '.join(allowed)}")
    found = Plan([], [])
    for op in ops or USUAL_OPS:
        for size in hidden_sizes or HIDDEN_SIZES:
            try:
                of_size = [_case(op, size, of, target) for of in calls or ROW_CLASSES]
            except ValueError as error:
                found.left_out.append(f"{op} at {size}: {error}")
                continue
            measured = [case for case in of_size if case.schedules and case.rows]
            found.cases.extend(measured)
            if not measured:
                found.left_out.append(f"{op} at {size}: no such call has a choice of schedules")
    return found


def _case(op: str, hidden_size: int, calls: str, target: Target) -> Case:
    name, _, options = _CONFIGS[op].partition(":")
    of_family = family(KernelConfig.parse(f"{name}:{options and options + ','}hidden_size={hidden_size}"))
    config = replace(of_family, pdl=target.has_pdl)
    config = for_many_rows(config, target) if calls == "many" else config
    schedules = tuple(map(str, candidates(config, target, calls)))
    return Case(op, of_family, calls, rows_of(calls, hidden_size), config, schedules)


def rows_of(calls: str, hidden_size: int) -> tuple[int, ...]:
    """Numbers of rows that stand for a class of calls; none if rows are so long that no call is of that class.

    Example:
        >>> rows_of("usual", 16384), rows_of("many", 2048), rows_of("many", 4096)
        ((1792, 3072), (8192, 16384, 65536), (32768,))
    """
    if calls == "many":
        rows = {MANY_ROWS, *(elements // hidden_size for elements in _MANY_ELEMENTS)}
    else:
        rows = set({"few": _FEW, "some": _SOME, "usual": _USUAL}[calls])
    return tuple(sorted(each for each in rows if class_of(each, hidden_size) == calls))
