"""Schemas of torch operators, from an op's record: the tensors that its calls may have, with any options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import product
from typing import Any

from jitnorm.call_config import prototype
from jitnorm.catalogue.launches import chosen_of
from jitnorm.catalogue.op import Fields, Op
from jitnorm.kernels.arguments import Argument, TensorArgument
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.config_text import options_text
from jitnorm.kernels.formats import FORMATS
from jitnorm.kernels.interface import interface

# The output dtype of decoding is an option, while other ops use the dtype of their input.
_DEFAULTS = {field.name: field.default for field in fields(KernelConfig) if field.name != "input"}
_GLOBAL_SCALES = ("none", "given", "row", "tensor")
# Both kinds: one layout of scales, or two.
_LAYOUTS = ("linear", "linear+128x4")
_HIDDEN_SIZE = 1024  # whole blocks of every encoding


@dataclass(frozen=True)
class Schema:
    """The schema of one launch of an op: the same for all of its options.

    Attributes:
        name: qualified, such as ``jitnorm::rmsnorm``.
        required: the inputs of every call, in calling order; `nullable` ones may be None.
        optional: the inputs of some calls.
        numbers: the numbers.
        outputs: what any call writes, in calling order.
        sometimes: the outputs that not every call has.
        nullable: parameters that norms can also do without.
        updated: the partly written outputs; if there are any, there is no functional overload.
    """

    name: str
    required: tuple[str, ...]
    optional: tuple[str, ...]
    numbers: tuple[str, ...]
    outputs: tuple[str, ...]
    sometimes: frozenset[str]
    nullable: frozenset[str]
    updated: frozenset[str]

    @property
    def functional(self) -> str:
        """The overload that allocates its outputs: a tuple of them, or a list where their number depends on options."""
        made = "Tensor[]" if self.sometimes else ", ".join("Tensor" for _ in self.outputs)
        return f"{self.name}({self._inputs()}) -> {made if len(self.outputs) == 1 or self.sometimes else f'({made})'}"

    @property
    def out(self) -> str:
        """The overload that writes the caller's tensors, each of which may be the input that it replaces."""
        written = (
            f"Tensor({chr(ord('a') + i)}!){'? ' + name + '=None' if name in self.sometimes else ' ' + name}"
            for i, name in enumerate(self.outputs)
        )
        base, dot, overload = self.name.partition(".")
        return f"{base}.{overload + '_' if dot else ''}out({self._inputs()}, {', '.join(written)}) -> ()"

    def _inputs(self) -> str:
        positional = [f"Tensor{'?' if name in self.nullable else ''} {name}" for name in self.required]
        positional += [f"float {name}" for name in self.numbers]
        optional = [f"Tensor? {name}=None" for name in self.optional]
        return ", ".join([*positional, *optional, "*", 'str config=""', "bool? enable_pdl=None"])


def schemas_of(op: Op) -> dict[bool, Schema]:
    """The schema of an op's launch, under False, and that of a preceding launch for the amax, if any, under True.

    Example:
        >>> from jitnorm.catalogue.norms import RMSNORM
        >>> schemas_of(RMSNORM)[False].functional
        'rmsnorm(Tensor input, Tensor? weight, float eps, *, str config="", bool? enable_pdl=None) -> Tensor'
    """
    calls = list(_calls(op))
    before = [amax for call in calls if (amax := op.amax_before(call))]
    found = {False: _schema(op.name, calls)}
    return found | ({True: _schema(f"{op.name}.amax", before)} if before else {})


def config_text(op: Op, options: Mapping[str, Any]) -> str:
    """The ``config`` of an operator: the fields that its op leaves open and that differ from their defaults."""
    implied = {**_DEFAULTS, **op.fixed}
    return options_text({name: value for name, value in options.items() if value != implied.get(name)})


def _schema(name: str, calls: list[Fields]) -> Schema:
    interfaces = [[a for a in interface(prototype(call)) if a.is_present] for call in calls]
    order: list[Argument] = []
    for arguments in interfaces:
        place = 0
        for argument in arguments:
            known = [a.name for a in order]
            if argument.name not in known:
                order.insert(place, argument)
            place = [a.name for a in order].index(argument.name) + 1
    names = [{a.name for a in arguments} for arguments in interfaces]
    always = set.intersection(*names)
    weighted = [each for each, call in zip(names, calls, strict=True) if call.get("weight") != "none"]
    with_weight = set.intersection(*weighted) if weighted else always
    tensors = [a for a in order if isinstance(a, TensorArgument)]
    inputs = [a.name for a in tensors if not a.is_output]
    outputs = tuple(a.name for a in tensors if a.is_output)
    return Schema(
        name,
        tuple(name for name in inputs if name in with_weight),
        tuple(name for name in inputs if name not in with_weight),
        tuple(a.name for a in order if not isinstance(a, TensorArgument)),
        outputs,
        frozenset(outputs) - always,
        frozenset(inputs) & with_weight - always,
        frozenset(a.name for a in tensors if a.is_updated),
    )


def _calls(op: Op) -> Iterator[Fields]:
    """Fields of calls that together have every tensor which the op's function takes or returns."""
    for choices in _choices(op):
        try:
            _, found = chosen_of(op, {"hidden_size": _HIDDEN_SIZE, **choices})
            prototype(found)
        except ValueError:
            continue
        yield found


def _choices(op: Op) -> Iterator[dict[str, Any]]:
    """Choices of each format with each kind of scale, then with each other choice."""
    unweighted = [{"weight": "none"}] if op.weight_optional else []
    if not op.has_options:
        yield from ({}, *unweighted)
        return
    if "quant" not in op.choices:
        formats: list[dict[str, Any]] = [{}]
    else:
        formats = [
            {"quant": f"{each.element}/{each.block_size}/{each.scale_format}"}
            for each in op.formats or FORMATS.values()
        ]
    kinds = {
        "global_scale": op.global_scales or _GLOBAL_SCALES,
        "layout": [each for i, each in enumerate(op.layouts or _LAYOUTS) if i == 0 or "+" in each],
    }
    scales = [{name: kind} for name, each in kinds.items() if name in op.choices for kind in each]
    flags = [{name: True} for name, value in op.choices.items() if value is False] + unweighted
    if "masked" in op.choices:
        flags.append({"batched": True, "masked": True})
    for encoding, others in product(formats, [{}, *scales, *flags]):
        yield {**encoding, **others}
