"""The arguments of each op: their order, dtypes, shapes and roles, defined once for every other place that needs them.

The generated source's `Arguments`, the launch recipe that the launcher checks calls against, and the dispatcher's
specialization all derive from what `interface` returns.
"""

from __future__ import annotations

from typing import Any

from .arguments import (
    C_TYPES,
    ELEMENT_BYTES,
    SCALE_TYPES,
    Argument,
    Extent,
    ScalarArgument,
    TensorArgument,
    block_scale_shape,
    codes_argument,
    padded_rows,
    rows_argument,
    single_argument,
)
from .config import KernelConfig
from .item_ops import item_arguments, item_count
from .numerics import CHUNK_SIZE
from .quant_spec import QuantSpec

_CODES = {"e2m1": "y_fp4", "e4m3": "out", "e5m2": "out"}


def interface(config: KernelConfig) -> tuple[Argument, ...]:
    """The arguments of `config`'s kernel, in calling order.

    Which there are depends on the op and the kind of encoding alone; some are absent in some configurations.
    """
    if not config.is_row_wise:
        return item_arguments(config)
    arguments: list[Argument] = [rows_argument("input", config.input, config)]
    if config.normalizes:
        arguments.append(rows_argument("residual", config.input, config, is_present=config.residual))
        arguments.append(_weight(config))
    arguments += _encoded_outputs(config, config.quant) if config.quant else [_half_output(config)]
    if config.normalizes:
        sum_options: dict[str, Any] = {"is_output": True, "may_be": "residual", "is_present": config.residual}
        arguments.append(rows_argument("residual_out", config.input, config, **sum_options))
        arguments.append(rows_argument("y_out", config.input, config, is_output=True, is_present=config.keep_norm))
        arguments.append(ScalarArgument("eps"))
    return tuple(arguments)


def _weight(config: KernelConfig) -> TensorArgument:
    c_type = C_TYPES[config.weight]
    chunk_bytes = CHUNK_SIZE * ELEMENT_BYTES[c_type]
    return TensorArgument("weight", c_type, (config.weight,), (config.hidden_size,), chunk_bytes)


def _half_output(config: KernelConfig) -> TensorArgument:
    return rows_argument("out", config.input, config, is_output=True, may_be="input")


def _encoded_outputs(config: KernelConfig, quant: QuantSpec) -> list[Argument]:
    codes = codes_argument(_CODES[quant.element], config, quant, is_output=True)
    row_scale = TensorArgument(
        "row_scale", "float", ("float32",), ("M",), is_output=True, is_present=quant.needs_row_amax
    )
    if not quant.has_blocks:
        return [codes, single_argument("scale", is_present=quant.block_size == "tensor"), row_scale]
    return [
        codes,
        *_block_scales(config, quant),
        single_argument("global_scale", is_present=quant.global_scale == "given"),
        row_scale,
    ]


def _block_scales(config: KernelConfig, quant: QuantSpec) -> list[Argument]:
    c_type, dtypes = SCALE_TYPES[quant.scale_format]
    linear = block_scale_shape(config, quant.with_layout("linear"))
    first = block_scale_shape(config, quant)
    return [
        TensorArgument("block_scale", c_type, dtypes, first, is_output=True),
        TensorArgument("block_scale_unswizzled", c_type, dtypes, linear, is_output=True, is_present=quant.both_layouts),
    ]


def work_size(config: KernelConfig) -> Extent:
    """How many rows or items a kernel visits, those that pad a layout included."""
    return padded_rows(config) if config.is_row_wise else item_count(config)


def grid_size(config: KernelConfig, per_block: int) -> Extent:
    """Blocks of `per_block` rows or items that cover all that a kernel visits."""
    return work_size(config) if per_block == 1 else ["ceil_div", work_size(config), per_block]
