"""The entry point of a source: its plain parameters, and the `Arguments` that stages read, made of them.

Row-wise stages see one row set at a time: that of the parameters, one of two (a pair), or one matrix of a batch. The
entry point says what `Arguments` are for each, and the stage `row_sets` which one runs where. Items see them all.
"""

from __future__ import annotations

from collections.abc import Iterator

from .arguments import Argument, ScalarArgument, TensorArgument, expression
from .config import KernelConfig
from .interface import interface
from .launch_recipe import ENTRY
from .schedule import row_schedule
from .target import Target


def arguments_struct(config: KernelConfig) -> str:
    """The struct that stages read; arguments that are absent are null."""
    fields = []
    for argument in _of_set(config, 0):
        if isinstance(argument, ScalarArgument):
            fields.append(f"{argument.c_type} {argument.name};")
            continue
        fields.append(f"{_pointer(argument)} {argument.field};")
        if argument.is_strided:
            fields.append(f"Int64 {argument.field}_strides[kRowDims];")
    fields += ["Int64 rows;", "Int64 extents[kRowDims];", *(f"Int64 {name};" for name in _counts(config))]
    return "struct Arguments {\n" + _lines(fields) + "};\n"


def entry_point(config: KernelConfig, target: Target) -> str:
    """The function that the launcher calls."""
    plain = list(parameters(config))
    if target.is_cpu:
        reads = [
            f"{kind} {name} = *static_cast<{kind} const*>(parameters[{i}]);" for i, (kind, name) in enumerate(plain)
        ]
        return (
            f'extern "C" void {ENTRY}(void* const* parameters, Int64 first, Int64 last) {{\n'
            f"{_lines(reads)}{_process(config, ', first, last')}}}\n"
        )
    declared = ", ".join(f"{kind} {name}" for kind, name in plain)
    bounds = "kThreads"
    if config.is_row_wise and (residents := row_schedule(config, target).resident_blocks):
        bounds = f"kThreads, {residents}"
    return f'extern "C" __global__ void __launch_bounds__({bounds}) {ENTRY}({declared}) {{\n{_process(config)}}}\n'


def _process(config: KernelConfig, part: str = "") -> str:
    """What the entry point does: on the host, with a `part` of the rows or items."""
    if config.is_row_wise:
        begin = "  set_hidden_size(hidden_size);\n" if config.takes_any_size else ""
        return f"{begin}{_arguments_of(config)}  process_row_sets(arguments_of{part});\n"
    return f"  process_items(Arguments{{{', '.join(_values(config, 0))}}}{part});\n"


def _counts(config: KernelConfig) -> list[str]:
    """What is counted beside rows."""
    return ["matrices"] * config.batched + ["items"] * (not config.is_row_wise)


def _lines(lines: list[str]) -> str:
    return "".join(f"  {line}\n" for line in lines)


def _pointer(argument: TensorArgument) -> str:
    return f"{'' if argument.is_output else 'const '}{argument.c_type}*"


def _of_set(config: KernelConfig, row_set: int) -> Iterator[Argument]:
    """The arguments that a row set has, in the order of the first one's; it shares those that it lacks."""
    tensors = [a for a in interface(config) if isinstance(a, TensorArgument)]
    own = {tensor.field: tensor for tensor in tensors if tensor.row_set == row_set}
    for argument in interface(config):
        if isinstance(argument, ScalarArgument):
            yield argument
        elif argument.row_set == 0:
            yield own.get(argument.field, argument)


def parameters(config: KernelConfig) -> Iterator[tuple[str, str]]:
    """Type and name of each parameter of the entry point, in the order that launch_recipe.py documents."""
    for argument in (a for a in interface(config) if a.is_present):
        if isinstance(argument, ScalarArgument):
            yield argument.c_type, argument.name
            continue
        yield _pointer(argument), argument.name
        if argument.is_strided:
            for d in range(config.row_dims):
                yield "Int64", f"{argument.name}_stride{d}"
    for prefix in _extent_prefixes(config):
        yield "Int64", f"{prefix}rows"
        for d in range(1, config.row_dims):
            yield "Int64", f"{prefix}extent{d}"
    for name in _counts(config):
        yield "Int64", name
    if config.takes_any_size:
        yield "Int64", "hidden_size"


def _extent_prefixes(config: KernelConfig) -> tuple[str, ...]:
    """What the names of the row sets' extents begin with."""
    return ("", "second_") if config.pair else ("",)


def _values(config: KernelConfig, row_set: int) -> list[str]:
    """The members of `Arguments`, one after another, as expressions of a row set's parameters."""
    dims = range(config.row_dims)
    values = []
    for argument in _of_set(config, row_set):
        values.append(argument.name if argument.is_present else "nullptr")
        if isinstance(argument, TensorArgument) and argument.is_strided:
            values += [f"{argument.name}_stride{d}" if argument.is_present else "0" for d in dims]
    prefix = _extent_prefixes(config)[row_set]
    values += [f"{prefix}rows", *(f"{prefix}{'rows' if d == 0 else f'extent{d}'}" for d in dims)]
    return [*values, *_counts(config)]


def _arguments_of(config: KernelConfig) -> str:
    """The function object that gives the `Arguments` of a row set."""
    values = _values(config, 0)
    if config.pair:
        # Chosen one by one: a choice between two structs would put both into local memory.
        values = [a if a == b else f"second ? {b} : {a}" for a, b in zip(values, _values(config, 1), strict=True)]
        return f"  const auto arguments_of = [=](bool second) {{ return Arguments{{{', '.join(values)}}}; }};\n"
    if not config.batched:
        return f"  const auto arguments_of = [=] {{ return Arguments{{{', '.join(values)}}}; }};\n"
    steps = "".join(f"  {line}\n" for line in _steps_to_matrix(config))
    return (
        "  const auto arguments_of = [=](Int64 matrix) {\n"
        f"    Arguments a = {{{', '.join(values)}}};\n"
        f"{steps}    return a;\n  }};\n"
    )


def _steps_to_matrix(config: KernelConfig) -> Iterator[str]:
    """What moves each pointer from the first matrix to the one called `matrix`."""
    for argument in interface(config):
        if isinstance(argument, ScalarArgument) or not argument.is_present:
            continue
        if argument.is_strided:
            yield f"  a.{argument.field} += row_offset(matrix * a.rows, a.extents, a.{argument.field}_strides);"
        elif argument.shape[0] in ("...", "B"):
            rows = ["a.rows"] if argument.shape[0] == "..." else []
            factors = ["matrix", *rows, *map(expression, argument.shape[1:])]
            yield f"  a.{argument.field} += {' * '.join(factors)};"
