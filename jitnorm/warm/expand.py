"""Expands a launch to the configurations of calls with contiguous, aligned tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

from jitnorm.call_config import config_of_call, prototype
from jitnorm.catalogue.launches import launches
from jitnorm.catalogue.op import Choices, Launch
from jitnorm.kernels.arguments import WIDEST_ACCESS, TensorArgument
from jitnorm.kernels.config import ALWAYS_NAMED, KernelConfig, read_fields
from jitnorm.kernels.interface import tensor_arguments
from jitnorm.kernels.quant_spec import require_one_of
from jitnorm.kernels.row_classes import ROW_CLASSES, classes_of
from jitnorm.kernels.target import Target

# The fields that depend on a call's tensors and target; the others follow from its op and options.
_OF_THE_CALL = ("vector_bytes", "pdl", "many_rows", "schedule")
# Ops whose options name the dtype of their first tensor.
_OF_GIVEN_INPUT = ("dequantize", "sum_rows")
_OF_A_LAUNCH = {field.name for field in fields(KernelConfig)} - {"hidden_size", "input", "weight", "row_dims"}


def configs_of(name: str, chosen: Choices, target: Target) -> list[KernelConfig]:
    """The configurations of an op's calls on a target, in arbitrary order.

    Args:
        name: of the op; see `jitnorm.catalogue.OPS`.
        chosen: one value for each of its choices that is not omitted. ``row_class`` is one of
            `kernels.row_classes.ROW_CLASSES`, or ``all`` of them; ``few`` includes ``fewest``, ``some`` ``several``.
        target: where the tensors are.

    Raises:
        ValueError: something is not allowed.

    Example:
        >>> {config.pdl for config in configs_of("rmsnorm", {"hidden_size": 1024}, Target("sm_90a"))}
        {True}
    """
    chosen_class = chosen.get("row_class", "all")
    require_one_of("row_class", chosen_class, ("all", *ROW_CLASSES))
    named = ROW_CLASSES if chosen_class == "all" else (chosen_class,)
    found: dict[KernelConfig, None] = {}
    for launch in launches(name, chosen):
        for vector_bytes in vector_bytes_of(launch, target):
            for row_class in classes_of(launch.hidden_size, named):
                found[_config(launch, target, vector_bytes, row_class)] = None
    return list(found)


def configs_of_text(text: str, target: Target, row_classes: Sequence[str] = ROW_CLASSES) -> list[KernelConfig]:
    """The configurations of calls on a target, for every field that the text form of a KernelConfig leaves open.

    Fields that depend on the call are open if the text does not name them: `vector_bytes`, `pdl`, and for each class of
    rows `many_rows` and `schedule`. A text written by jitnorm names every field that differs from its default, so it
    leaves nothing open.

    Args:
        text: such as ``rmsnorm:hidden_size=4096``.
        target: where the tensors are.
        row_classes: the classes of rows to include.

    Raises:
        ValueError: the text cannot be read, or something is not allowed.

    Example:
        >>> {config.pdl for config in configs_of_text("rmsnorm:hidden_size=1024", Target("sm_90a"))}
        {True}
    """
    literal, named = KernelConfig.parse(text), read_fields(text)
    if named.keys() >= set(ALWAYS_NAMED):
        return [literal]
    options = {name: getattr(literal, name) for name in _OF_A_LAUNCH if name in named or name not in _OF_THE_CALL}
    if literal.normalizes and not literal.has_weight:
        options["weight"] = literal.weight
    decided = {name: options.pop(name) for name in ("many_rows", "schedule") if name in options}
    if literal.op in _OF_GIVEN_INPUT:
        options["input"] = literal.input
    launch = Launch(options, literal.hidden_size, literal.input, literal.weight, row_dims=literal.row_dims)
    widths = [literal.vector_bytes] if "vector_bytes" in named else vector_bytes_of(launch, target)
    classes = [each for each in classes_of(literal.hidden_size) if each in row_classes]
    found = [_config(launch, target, width, row_class) for width in widths for row_class in classes]
    if decided:
        named_so = [config for config in found if all(getattr(config, name) == decided[name] for name in decided)]
        found = named_so or [replace(config, **decided) for config in found]
    return list(dict.fromkeys(found))


def vector_bytes_of(launch: Launch, target: Target) -> list[int]:
    """The widest accesses of a call: for many rows, and for a single row, whose stride does not matter.

    Computed like `WidestAccess` in kernels/launcher/dispatcher.h, with all tensors aligned and contiguous.
    """
    config = _config(launch, target, WIDEST_ACCESS, "usual")
    widest = WIDEST_ACCESS
    for known, actual in zip(tensor_arguments(prototype(launch.options)), tensor_arguments(config), strict=True):
        chunk_bytes = min(WIDEST_ACCESS, known.chunk_bytes)
        least = actual.element_bytes
        while chunk_bytes and widest > 1 and max(least, chunk_bytes * widest // WIDEST_ACCESS) > _row_alignment(actual):
            widest //= 2
    # A shuffle moves rows in blocks of 16 or 32; several weights count as rows.
    has_single_rows = launch.options["op"] != "shuffle" and launch.options.get("weights", 1) == 1
    return [widest, WIDEST_ACCESS] if has_single_rows and widest < WIDEST_ACCESS else [widest]


def _row_alignment(argument: TensorArgument) -> int:
    """The largest power of two, up to 16, that divides the addresses of all rows."""
    if len(argument.shape) == 1 and not argument.table_dims:
        return WIDEST_ACCESS
    bits = argument.shape[-1].evaluate(rows=1) * argument.element_bytes | WIDEST_ACCESS
    return bits & -bits


def _config(launch: Launch, target: Target, vector_bytes: int, row_class: str) -> KernelConfig:
    return config_of_call(
        launch.options,
        target,
        hidden_size=launch.hidden_size,
        input=launch.input,
        weight=launch.weight,
        row_dims=launch.row_dims,
        vector_bytes=vector_bytes,
        row_class=row_class,
        enable_pdl=launch.enable_pdl,
    )
