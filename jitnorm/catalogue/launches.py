"""From an op and its caller's choices to the launches that the call makes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jitnorm.catalogue import op_of
from jitnorm.catalogue.op import WITHOUT_WEIGHT, Choices, Fields, Launch, Op
from jitnorm.kernels.config_rules import INPUT_DTYPES, MOVES
from jitnorm.kernels.formats import FORMATS, read_format
from jitnorm.kernels.quant_spec import QuantSpec
from jitnorm.kernels.spelling import did_you_mean

# The choices of every op; only some have `weight` and `quant`.
_COMMON: dict[str, Any] = {"hidden_size": None, "input": "bfloat16", "row_dims": 1, "pdl": None, "row_class": "all"}
# Choices of an encoding besides its format, and their fields in QuantSpec.
_ENCODING = {
    "layout": "scale_layout",
    "global_scale": "global_scale",
    "scale_rounding": "scale_rounding",
    "four_over_six": "four_over_six",
    "e4m3_max": "e4m3_max",
}
_NOT_FIELDS = {*_COMMON, *_ENCODING, "weight", "shuffled"}


def choices_of(op: Op) -> dict[str, Any]:
    """The choices of an op, with the values of a call that omits them."""
    return {**_COMMON, **op.choices}


def launches(name: str, chosen: Choices) -> list[Launch]:
    """The launches that a call of an op makes, in order.

    Args:
        name: the op's name.
        chosen: one value for each of its choices that is not omitted.

    Raises:
        ValueError: a choice that the op does not have, or a value that is not allowed.
    """
    op = op_of(name)
    choices, fields = chosen_of(op, chosen)
    dims = choices["row_dims"]
    found = []
    for row_dims in dims if isinstance(dims, tuple) else (dims,):
        first = Launch(
            fields, choices["hidden_size"], choices["input"], choices.get("weight", ""), choices["pdl"], row_dims
        )
        if amax := op.amax_before(fields):
            found.append(replace(first, options=amax))
        found += [first, *(op.also(choices, first) if op.also else [])]
    return found


def chosen_of(op: Op, chosen: Choices) -> tuple[Choices, Fields]:
    """All choices of a call, including defaults, and the fields of KernelConfig that they fix.

    Raises:
        ValueError: a choice that the op does not have, or a value that is not allowed.
    """
    allowed = choices_of(op)
    unknown = [choice for choice in chosen if choice not in allowed]
    if unknown:
        meant = did_you_mean(unknown[0], allowed)
        raise ValueError(
            f"{unknown[0]}: is given, but {op.name} has no such choice; it has {', '.join(allowed)}{meant}"
        )
    choices = {**allowed, **chosen}
    if choices["hidden_size"] is None:
        raise ValueError(f"hidden_size: is not given for {op.name}; name the elements of a row")
    if choices["input"] not in INPUT_DTYPES and op.fixed["op"] not in MOVES:
        meant = did_you_mean(choices["input"], INPUT_DTYPES)
        raise ValueError(f"input: is {choices['input']!r}; allowed are {', '.join(INPUT_DTYPES)}{meant}")
    fields = {**op.fixed, **{field: choices[field] for field in op.choices if field not in _NOT_FIELDS}}
    if choices.get("weight") == "none":
        if not op.weight_optional:
            raise ValueError(f"weight: is 'none', but {op.name} takes a weight; name its dtype")
        fields |= WITHOUT_WEIGHT
    if "quant" in choices:
        fields["quant"] = None if choices["quant"] in (None, "none") else encoding_of(op, choices)
    return choices, op.as_called(choices, fields)


def encoding_of(op: Op, choices: Choices) -> QuantSpec:
    """The chosen encoding, if the op supports it."""
    quant = read_format(choices["quant"])
    if op.formats and (quant.has_given_scales or _format_of(quant) not in op.formats):
        raise ValueError(f"quant: is {choices['quant']!r}; {op.name} has {', '.join(map(str, op.formats))}")
    spells_all = choices["quant"] not in FORMATS and choices["quant"].count("/") >= 3
    changes = {} if spells_all else {_ENCODING[c]: choices[c] for c in _ENCODING if choices.get(c) is not None}
    quant = replace(quant, **changes)
    for name, value, values in (
        ("layout", quant.scale_layout, op.layouts),
        ("global_scale", quant.global_scale, op.global_scales),
    ):
        if values and value not in values:
            raise ValueError(f"{name}: is {value!r}; {op.name} has {', '.join(values)}")
    return quant


def _format_of(quant: QuantSpec) -> QuantSpec:
    """The encoding reduced to its format, without separately chosen fields."""
    return replace(
        quant, scale_layout="linear", global_scale="none", scale_rounding="up", four_over_six=False, e4m3_max=448
    )
