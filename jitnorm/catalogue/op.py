"""Op: the record of an op."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.config_rules import VALUE_FIELDS
from jitnorm.kernels.extents import Shape
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
"""The fields of a norm that multiplies by no weight; the dtype of one is a fact of the call."""


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
    """Everything there is to know of an op: what calls it, allocates for it, warms or measures it asks here.

    The first half says what a call is. `fields` leads from what a caller of the function passes to the kernel;
    `choices`, in the words of KernelConfig and QuantSpec, is how lists, commands and tests name the same calls.

    Attributes:
        name: of the function, or of the kernels' own op.
        computes: what, in a few words, for docs/ops.md; empty for what is not public.
        fixed: fields of KernelConfig that every call has.
        fields: further ones, from the options of the function.
        aliases: the function's names for arguments that `kernels.interface` calls otherwise.
        allocated: what outputs become that the caller leaves out, where that is not what the interface says.
        finds_amax: whether a scale may be found for the whole tensor, which takes a launch before.
        choices: what can be chosen, by name, with what a call that leaves it out has.
        formats: the encodings, by element, block size and scale format; empty for none or any.
        layouts: the layouts of scales; empty for any.
        global_scales: the kinds of global scale; empty for any.
        as_called: fields that follow from choices in another way than by their names.
        also: further launches of a call, after the first.
        function: its name in `jitnorm`, if it is not the op's.
        options: what a caller passes for choices and the fields that follow from them, beside tensors.
        row_multiple: what the number of rows has to be a multiple of, by choices.
        weight_optional: whether calls may do without a weight, and without a bias that goes with it.
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
        """Whether every call consists of launches that are ops of their own."""
        return self.also is not None and not self.has_options

    def amax_before(self, fields: Mapping[str, Any]) -> Fields | None:
        """The fields of the launch that first finds the tensor's largest magnitude; None if no scale needs it."""
        quant = fields.get("quant")
        if not self.finds_amax or quant is None or not quant.needs_tensor_amax:
            return None
        return {**{name: fields[name] for name in VALUE_FIELDS if name in fields}, "amax_only": True}
