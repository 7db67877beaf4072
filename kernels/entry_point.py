"""The entry point of a source: its plain parameters, and the `Arguments` of common/arguments.h made from them.

Row-wise kernels see one row set at a time: that of the parameters, one of two (a pair), or one matrix of a batch. The
entry point creates the `Arguments` of each, and the schedule decides which one runs where. Items see all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .arguments import Argument, ScalarArgument, TensorArgument
from .config import KernelConfig
from .dtypes import BYTE
from .extents import LEADING, MATRICES, shape
from .interface import interface, tensor_arguments
from .item_ops import has_square_items
from .launch_recipe import ENTRY
from .row_counts import written_rows
from .row_ops import OFFSETS
from .schedule import row_schedule
from .target import Target


def entry_point(config: KernelConfig, target: Target) -> str:
    """The function that the launcher calls."""
    plain = list(parameters(config))
    if target.is_cpu:
        reads = [
            f"{kind} {name} = *static_cast<{kind} const*>(parameters[{i}]);" for i, (kind, name) in enumerate(plain)
        ]
        return (
            f'extern "C" void {ENTRY}(void* const* parameters, Int64 first, Int64 last) {{\n'
            f"{_lines(reads)}{_process(config, target, ', first, last')}}}\n"
        )
    declared = ", ".join(f"{kind} {name}" for kind, name in plain)
    bounds = "kThreads"
    if config.is_row_wise and (residents := row_schedule(config, target).resident_blocks):
        bounds = f"kThreads, {residents}"
    return (
        f'extern "C" __global__ void __launch_bounds__({bounds}) {ENTRY}({declared}) {{\n{_process(config, target)}}}\n'
    )


def _process(config: KernelConfig, target: Target, part: str = "") -> str:
    """The body of the entry point; on the host, for a `part` of the rows or items."""
    if config.is_row_wise:
        rows = f", {_offsets(config)}, all_rows()" if config.experts else ""
        return f"{_arguments_of(config, target)}  {_schedule(config, target)}(arguments_of{rows}{part});\n"
    assignments = f"  Arguments a{{}};\n{_lines(_assignments(config))}"
    if config.axis == 0 and target.is_cpu:
        call = f"{config.op}_column_items(a, item, columns)"
        return f"{assignments}  process_columns(first, last, [=](Int64 item, auto columns) {{ {call}; }});\n"
    return f"{assignments}  process_items(a.items{part}, [=](Int64 item) {{ {_item_op(config)}; }});\n"


def _schedule(config: KernelConfig, target: Target) -> str:
    """The call that processes all rows."""
    if config.backward:
        return "process_segments"
    if config.all_reduce:
        if config.passes_sums:
            return "process_passed_rows"
        if config.divides_rows:
            return "process_divided_rows"
        return "process_scattered_rows" if config.scatters else "process_reduced_rows"
    if config.amax_parts:
        return "process_amax"
    if config.weight_rows > 1:
        return "process_rows_in_turn"
    if config.experts:
        return "process_experts"
    if target.is_cpu:
        return "process_row_sets"
    if config.masked:
        return "process_counted_rows"
    if config.sinkhorn:
        return "process_mapped_rows"
    schedule = row_schedule(config, target)
    if schedule.stays_resident or schedule.tabulates:
        return "process_resident_rows"
    return "process_rows_ahead" if schedule.loads_ahead else "process_row_sets"


def _item_op(config: KernelConfig) -> str:
    """The call that processes an item."""
    if config.axis == 0:
        return f"{config.op}_column_items(a, item, Columns<1>{{}})"
    kind = "row"
    if config.moves or config.op in ("sum_rows", "mhc_post"):
        return f"{config.op}_item(a, item)"
    if has_square_items(config):
        kind = "square"
    elif config.quant and config.quant.has_given_scales:
        kind = "given"
    return f"{config.op}_{kind}_item(a, item)"


def _counts(config: KernelConfig) -> list[str]:
    """The counts besides rows."""
    return ["matrices"] * config.batched + ["items"] * (not config.is_row_wise)


def _lines(lines: list[str]) -> str:
    return "".join(f"  {line}\n" for line in lines)


def _of_set(config: KernelConfig, row_set: int) -> Iterator[Argument]:
    """The arguments of a row set, in the order of the first set; the second shares those that it lacks.

    Without a pair there is a single set with all arguments; gathered rows are written to as many rows as the second set
    has.
    """
    if not config.pair:
        yield from interface(config)
        return
    tensors = tensor_arguments(config)
    own = {tensor.field: tensor for tensor in tensors if tensor.row_set == row_set}
    shared = {tensor.field for tensor in tensors if tensor.row_set == 0}
    for argument in interface(config):
        if isinstance(argument, ScalarArgument):
            yield argument
        elif argument.row_set == 0:
            yield own.get(argument.field, argument)
        elif argument.field not in shared:  # only the second set uses it
            yield argument


def parameters(config: KernelConfig) -> Iterator[tuple[str, str]]:
    """Type and name of each parameter of the entry point, in the order that launch_recipe.py documents."""
    for argument in (a for a in interface(config) if a.is_present):
        if isinstance(argument, ScalarArgument):
            yield argument.c_type, argument.name
            continue
        yield f"{argument.c_type}*", argument.name
        if argument.is_strided:
            for d in range(config.row_dims):
                yield "Int64", f"{argument.name}_stride{d}"
        for what in ("stride", "extent"):
            yield from (("Int64", f"{argument.name}_{what}{d}") for d in range(argument.table_dims))
    for prefix in _extent_prefixes(config):
        yield "Int64", f"{prefix}rows"
        for d in range(1, config.row_dims):
            yield "Int64", f"{prefix}extent{d}"
        if config.rope:
            yield "Int64", f"{prefix}heads"
    for name in _counts(config):
        yield "Int64", name


def _extent_prefixes(config: KernelConfig) -> tuple[str, ...]:
    """The prefixes of the names of the row sets' extents."""
    return ("", "second_") if config.pair or config.gathers or config.scatters else ("",)


def _values(config: KernelConfig, row_set: int) -> Iterator[tuple[str, str]]:
    """The members of `Arguments` for a row set, in terms of the parameters."""
    dims = range(config.row_dims)
    for argument in _of_set(config, row_set):
        if isinstance(argument, ScalarArgument):
            yield argument.name, argument.name
            continue
        if not argument.is_present or argument.field in OFFSETS:
            continue
        yield argument.field, argument.name
        if argument.is_strided:
            yield from ((f"{argument.field}_strides[{d}]", f"{argument.name}_stride{d}") for d in dims)
        elif config.all_reduce == "all_gather" and argument.field in ("out", "codes"):
            yield f"{argument.field}_strides[0]", argument.shape[-1].expression()
        for what in ("stride", "extent"):
            yield from (
                (f"{argument.field}_{what}s[{d}]", f"{argument.name}_{what}{d}") for d in range(argument.table_dims)
            )
    prefix = _extent_prefixes(config)[-1 if config.gathers else row_set]
    if config.gathers:
        yield "input_count", "rows"
    if config.scatters:
        yield "whole_rows", "second_rows"
    if config.second_size:
        yield "size", str(config.second_size if row_set else config.hidden_size)
    yield "rows", f"{prefix}rows"
    yield from ((f"extents[{d}]", f"{prefix}rows" if d == 0 else f"{prefix}extent{d}") for d in dims)
    if config.rope:
        yield "heads", f"{prefix}heads"
    if config.paged:
        yield "has_pages", "true" if row_set else "false"
    yield from ((name, name) for name in _counts(config))


def _assignments(config: KernelConfig) -> list[str]:
    """Statements that fill empty `Arguments` for the first row set, or for the `second`."""
    first = dict(_values(config, 0))
    second = dict(_values(config, 1)) if config.pair else first
    # Selected one by one: selecting between two structs would put both into local memory.
    chosen = {member: x if x == second[member] else f"second ? {second[member]} : {x}" for member, x in first.items()}
    return [f"a.{member} = {value};" for member, value in chosen.items()]


def _arguments_of(config: KernelConfig, target: Target) -> str:
    """The function object that returns the `Arguments` of a row set; before it, for experts, that of all their rows."""
    is_several = config.batched or config.experts
    parameter = "bool second" if config.pair else "Int64 matrix" if is_several else ""
    lines, all_rows = ["Arguments a{};", *_assignments(config)], ""
    if config.weight_rows > 1:
        parameter = "Int64 part"
        lines += [f"a.{field} += part * kHiddenSize;" for field in ("weight", "bias")[: 1 + config.has_bias]]
    if config.batched:
        lines += _steps_to_matrix(config)
    if config.experts:
        all_rows = _function("all_rows", "", lines)
        lines = ["Arguments a = all_rows();", *_steps_to_expert(config, target)]
    return all_rows + _function("arguments_of", parameter, lines)


def _function(name: str, parameter: str, lines: list[str]) -> str:
    """A function object that returns the `Arguments` made by some statements."""
    body = "".join(f"    {line}\n" for line in (*lines, "return a;"))
    return f"  const auto {name} = [=]({parameter}) {{\n{body}  }};\n"


def _steps_to_matrix(config: KernelConfig) -> Iterator[str]:
    """Statements that advance each pointer from the first matrix to the one called `matrix`."""
    for argument in interface(config):
        if isinstance(argument, ScalarArgument) or not argument.is_present:
            continue
        if argument.is_strided:
            yield f"a.{argument.field} += row_offset(matrix * a.rows, a.extents, a.{argument.field}_strides);"
        elif argument.shape[0] in (LEADING, MATRICES):
            rows = ["a.rows"] if argument.shape[0] == LEADING else []
            factors = ["matrix", *rows, *(extent.expression() for extent in argument.shape[1:])]
            if argument.c_type == BYTE.c_type and argument.element_bytes > 1:
                factors.append(str(argument.element_bytes))
            yield f"a.{argument.field} += {' * '.join(factors)};"


def _offsets(config: KernelConfig) -> str:
    """The offsets of experts."""
    scales = "scale_offsets" if config.row_multiple > 1 else "nullptr"
    return f"ExpertOffsets{{offsets, {scales}}}"


def _steps_to_expert(config: KernelConfig, target: Target) -> Iterator[str]:
    """Statements for the expert called `matrix`: on the CPU, they advance each pointer to its rows."""
    yield from (f"a.{each.field} += matrix;" for each in _own_scales(config))
    if not target.is_cpu:
        return
    yield "const ExpertRows own = rows_between(offsets[matrix], offsets[matrix + 1], as_bound(a.rows));"
    yield "a.matrices = kExperts;"
    for argument in interface(config):
        if isinstance(argument, ScalarArgument) or not argument.is_present or argument.field in OFFSETS:
            continue
        if argument.is_strided and not (config.gathers and argument.field == "input"):
            yield f"a.{argument.field} += row_offset(own.first, a.extents, a.{argument.field}_strides);"
        elif argument.shape[0] in (LEADING, written_rows(config)) and not argument.is_strided:
            factors = ["own.first", *(extent.expression() for extent in argument.shape[1:])]
            yield f"a.{argument.field} += {' * '.join(factors)};"
        elif argument.field == "block_scale":
            tile = "first_tile(scale_offsets[matrix], own.count, as_bound(a.rows))"
            yield f"a.block_scale += (Int64){tile} * (kPaddedRowMultiple * kPaddedScaleColumns);"
    yield "a.rows = own.count;"


def _own_scales(config: KernelConfig) -> Sequence[TensorArgument]:
    """The arguments with an element for each expert."""
    return [each for each in tensor_arguments(config) if each.shape == shape(config.experts)]
