"""Makes a call of any op, on tensors that fit the interface of its kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from inspect import Parameter, signature
from typing import Any

import jitnorm
from jitnorm.catalogue.launches import chosen_of, encoding_of
from jitnorm.catalogue.op import Choices, Fields, Op
from jitnorm.kernels.arguments import TensorArgument
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.extents import sizes_of
from jitnorm.kernels.interface import tensor_arguments
from jitnorm.kernels.numerics import round_up
from jitnorm.kernels.quant_spec import CODE_BITS, QuantSpec
from jitnorm.kernels.row_ops import OFFSETS

Call = Callable[[], Any]
New = Callable[[tuple[int, ...], str, bool], Any]
"""Makes a tensor of a shape and dtype; the last says whether it is written."""
_EPS = 1e-6
_HEADS = 2  # of a token
_ENTRIES = 16  # of each dimension of a table


def call_of(
    op: Op, chosen: Choices, new: New, rows: int, *, matrices: int = 2, outputs: bool = False, **options: Any
) -> partial[Any]:
    """Make a call of an op's function.

    Args:
        op: the op.
        chosen: one value for each of its choices that is not omitted.
        new: makes the tensors.
        rows: how many rows they have, in units of the rows that the op takes together; for rotated heads, how many
            tokens.
        matrices: how many matrices a batch has.
        outputs: whether to pass outputs that the function would otherwise allocate.
        options: further arguments of the function.

    Raises:
        ValueError: a value that is not allowed.
    """
    choices, fields = chosen_of(op, chosen)
    config = config_of(choices, fields)
    rows *= op.row_multiple(choices)
    function = getattr(jitnorm, op.function or op.name)
    parameters = signature(function).parameters
    required = [name for name, parameter in parameters.items() if parameter.default is Parameter.empty]

    def is_passed(argument: TensorArgument) -> bool:
        if argument.is_output and argument.may_be is not None and config.residual:
            return False  # overwrites an input, whose name it has for the caller
        is_required = op.aliases.get(argument.name, argument.name) in required
        return not argument.is_output or is_required or argument.name == "y_out" or outputs  # y_out asks to be written

    tensors = {
        argument.name: new(_shape(argument, config, rows, matrices), argument.dtypes[0], argument.is_output)
        for argument in tensor_arguments(config)
        if is_passed(argument)
    }
    if config.experts:
        _share_out(rows, config, tensors)
    if config.paged:
        _backwards(tensors["slot_mapping"])
    if config.gathers:
        tensors["input_rows"] = _backwards(new((rows,), "int32", False))
    passed: dict[str, Any] = dict.fromkeys(required)
    for name, value in {**tensors, "eps": _EPS}.items():
        known = op.aliases.get(name, name)
        if known in parameters and passed.get(known) is None:  # of two kinds of scales, the first is `out_scale`
            passed[known] = value
    if config.op == "dequantize" and "q" in required:
        passed["q"] = _encoded(tensors, config, encoding_of(op, choices))
        passed["dtype"] = config.input
    if choices.get("rounding", "once") != "once":
        passed["rounding"] = choices["rounding"]
    if choices["pdl"] is not None:
        passed["enable_pdl"] = choices["pdl"]
    return partial(function, **{**passed, **op.options(choices, fields), **options})


def config_of(choices: Choices, fields: Fields) -> KernelConfig:
    """A configuration with the interface of such calls."""
    sizes = {"hidden_size": choices["hidden_size"], "input": choices["input"], "weight": choices.get("weight", "")}
    return KernelConfig(**{**sizes, **fields})


def _shape(argument: TensorArgument, config: KernelConfig, rows: int, matrices: int) -> tuple[int, ...]:
    leading = (matrices, rows) if config.batched else (rows, _HEADS) if config.rope else (rows,)
    if argument.table_dims:
        return (*_entries(argument), *sizes_of(argument.shape, (), rows))
    if argument.name == "X" or (argument.name == "residual" and (config.op == "mhc_post" or config.sinkhorn)):
        return (*leading, config.streams, config.hidden_size)
    if argument.name == "amax":
        return (1,)  # of all parts, which a second launch finds
    return sizes_of(argument.shape, leading, rows, matrices if config.batched else 1, rows, tokens=rows)


def _entries(argument: TensorArgument) -> tuple[int, ...]:
    """The extents of a table; a cache and its scales have the heads of its tokens."""
    if argument.is_updated:
        return (_ENTRIES,) * (argument.table_dims - 1) + (_HEADS,)
    return (_HEADS,) if argument.name in ("k_scale", "v_scale") else (_ENTRIES,) * argument.table_dims


def _backwards(numbers: Any) -> Any:
    """The indices of rows or slots, from last to first."""
    for i in range(len(numbers)):
        numbers[i] = len(numbers) - 1 - i
    return numbers


def _share_out(rows: int, config: KernelConfig, tensors: Mapping[str, Any]) -> None:
    """Give each expert about as many rows."""
    offsets, scale_offsets = tensors[OFFSETS[0]], tensors.get(OFFSETS[1])
    first_scale = 0
    for i in range(config.experts + 1):
        first, after = (rows * each // config.experts for each in (i, i + 1))
        offsets[i] = first
        if scale_offsets is not None:
            scale_offsets[i] = first_scale
        first_scale += round_up(after - first, config.row_multiple)


def _encoded(tensors: Mapping[str, Any], config: KernelConfig, spec: QuantSpec) -> jitnorm.QuantizedTensor:
    """An encoded tensor for `jitnorm.dequantize`."""
    shape = list(tensors["data"].shape)
    shape[config.axis] *= 8 // CODE_BITS[spec.element]
    scale, global_scale = tensors["scale"], tensors.get("global_scale")
    linear = scale if spec.both_layouts else None
    return jitnorm.QuantizedTensor(
        tensors["data"], scale, global_scale, tensors.get("row_scale"), linear, spec, tuple(shape), config.batched,
        tensors.get("tensor_scale"), axis=config.axis,
    )  # fmt: skip
