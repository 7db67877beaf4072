"""Op: the record of an op."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.config_rules import VALUE_FIELDS
from jitnorm.kernels.extents import Shape
from jitnorm.kernels.numerics import AMAX_PARTS
from jitnorm.kernels.quant_spec import QuantSpec

Fields = dict[str, Any]
"""Fields of KernelConfig by name."""
Choices = Mapping[str, Any]
"""What a caller chooses, by name."""
Allocated = dict[str, tuple[Shape | None, str]]
"""Shapes (None: the interface's own) and dtypes of outputs, by name, where an op allocates them in its own way."""


@dataclass(frozen=True)
class Launch:
    """One launch of a call.

    Attributes:
        options: the fields of KernelConfig that the op and its caller fix.
        hidden_size: elements of a row.
        input: dtype of the first tensor.
        weight: dtype of the weight; empty for the input's, or none.
        enable_pdl: as of the op.
        row_dims: how many strides the rows need.
    """

    options: Mapping[str, Any]
    hidden_size: int
    input: str
    weight: str = ""
    enable_pdl: bool | None = None
    row_dims: int = 1


WITHOUT_WEIGHT: Fields = {"weight": "none"}
"""The fields of a norm without a weight; a weight's dtype is known from the call."""


def _no_fields() -> Fields:
    return {}


def _no_options(choices: Choices, fields: Fields) -> dict[str, Any]:
    return {}


def _one_row(choices: Choices) -> int:
    return 1


def _as_chosen(choices: Choices, fields: Fields) -> Fields:
    return fields


@dataclass(frozen=True, eq=False)
class Op:
    """Everything there is to know about an op, for calling, allocating, warming and measuring it.

    The first half describes a call. `fields` maps what a caller passes to the function to a kernel; `choices` is how
    lists, commands and tests name the same calls, in the terms of KernelConfig and QuantSpec.

    Attributes:
        name: the function's name, or the kernel op's.
        computes: what it computes, in a few words, for docs/ops.md; empty if it is not public.
        fixed: fields of KernelConfig that are the same in every call.
        fields: further fields, computed from the options of the function.
        aliases: the function's names for arguments that have other names in `kernels.interface`.
        allocated: how omitted outputs are allocated, where that differs from the interface.
        finds_amax: whether a scale may be computed for the whole tensor, which takes an additional launch first.
        choices: what can be chosen, by name, with the default for calls that omit it.
        formats: the encodings, by element, block size and scale format; empty for none or any.
        layouts: the layouts of scales; empty for any.
        global_scales: the kinds of global scale; empty for any.
        as_called: fields that follow from choices other than by name.
        also: a call's further launches, after the first.
        function: its name in `jitnorm`, if that differs from the op's.
        options: what a caller passes besides tensors, for choices and the fields that follow from them.
        row_multiple: what the number of rows must be a multiple of, depending on choices.
        weight_optional: whether calls may omit the weight and the bias that goes with it.
    """

    name: str
    computes: str
    fixed: Mapping[str, Any]
    fields: Callable[..., Fields] = _no_fields
    aliases: Mapping[str, str] = field(default_factory=dict)
    allocated: Callable[[KernelConfig], Allocated] | None = None
    finds_amax: bool = False
    choices: Choices = field(default_factory=dict)
    formats: tuple[QuantSpec, ...] = ()
    layouts: tuple[str, ...] = ()
    global_scales: tuple[str, ...] = ()
    as_called: Callable[[Choices, Fields], Fields] = _as_chosen
    also: Callable[[Choices, Launch], list[Launch]] | None = None
    function: str = ""
    options: Callable[[Choices, Fields], dict[str, Any]] = _no_options
    row_multiple: Callable[[Choices], int] = _one_row
    weight_optional: bool = False

    @property
    def has_options(self) -> bool:
        """Whether the function has options that choose between kernels."""
        return self.fields is not _no_fields

    @property
    def is_composed(self) -> bool:
        """Whether every call consists of launches that are separate ops."""
        return self.also is not None and not self.has_options

    def amax_before(self, fields: Mapping[str, Any]) -> Fields | None:
        """The fields of a first launch that finds the largest magnitudes of parts; None if no scale needs them."""
        quant = fields.get("quant")
        if not self.finds_amax or quant is None or not quant.needs_tensor_amax:
            return None
        return {**{name: fields[name] for name in VALUE_FIELDS if name in fields}, "amax_parts": AMAX_PARTS}
