"""From the facts of a call to the configuration of its kernel, so that kernels can be determined ahead of time.

The configuration depends only on these facts, JITNORM_BACKEND and the tables of tuned schedules.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from jitnorm.kernels import schedule
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.quant_spec import QuantSpec, require_one_of
from jitnorm.kernels.target import Target
from jitnorm.toolchains import requested_backend
from jitnorm.tuning import tuned


def prototype(options: Mapping[str, Any]) -> KernelConfig:
    """An example of the configurations that an op's options allow, all of which take the same tensors.

    Args:
        options: fields of KernelConfig that the op and the caller's options fix.
    """
    return KernelConfig(hidden_size=_any_hidden_size(**options), **options)


def _any_hidden_size(
    quant: QuantSpec | None = None, gate_columns: int = 0, second_size: int = 0, rope: str = "", rotary_size: int = 0,
    head_size: int = 0, **_: Any,
) -> int:  # fmt: skip
    if rope:
        return head_size or rotary_size or 2
    return math.lcm(quant.block_columns if quant else 1, max(1, gate_columns), max(1, second_size))


def config_of_call(
    options: Mapping[str, Any],
    target: Target,
    *,
    hidden_size: int,
    input: str,
    weight: str = "",
    row_dims: int = 1,
    vector_bytes: int = 16,
    row_class: str = "usual",
    enable_pdl: bool | None = None,
    **dtypes: str,
) -> KernelConfig:
    """The configuration of the kernel that a call runs.

    Args:
        options: fields of KernelConfig that the op and the caller's options fix; they take precedence over the rest.
        target: where the tensors are.
        hidden_size: elements of a row.
        input: dtype of the first tensor.
        weight: dtype of the weight; empty for ops without one.
        row_dims: how many leading dimensions remain after merging those that a single stride can walk.
        vector_bytes: bytes to which rows of the input are aligned, 16 at most.
        row_class: the class of its number of rows, one of `kernels.row_classes.ROW_CLASSES`.
        enable_pdl: the op's argument: True, False, or None for wherever the target supports it.
        dtypes: further fields that are dtypes of tensors.

    Raises:
        ValueError: something is not allowed.
    """
    fields: dict[str, Any] = {
        "input": input,
        "weight": weight,
        "row_dims": row_dims,
        "vector_bytes": vector_bytes,
        "pdl": uses_pdl(enable_pdl, target),
        **dtypes,
        **options,
    }
    config = KernelConfig(hidden_size=hidden_size, **fields)
    if target.is_cpu:
        return config
    return tuned(for_many_rows(config, target) if row_class == "many" else config, target, row_class)


def for_many_rows(config: KernelConfig, target: Target) -> KernelConfig:
    """The configuration for very many rows; the same if one kernel serves, as may be with JITNORM_BACKEND=cute."""
    if requested_backend(target, "auto") == "cute":
        from jitnorm.kernels.cute import schedule as cute_schedule
        from jitnorm.kernels.cute.offer import why_not

        if not why_not(config):
            return cute_schedule.for_many_rows(config, target)
    return schedule.for_many_rows(config, target)


def uses_pdl(enable_pdl: bool | None, target: Target) -> bool:
    """Whether a call takes part in programmatic dependent launch; ValueError if it is asked to and cannot."""
    require_one_of("enable_pdl", enable_pdl, (None, True, False))
    if enable_pdl is None:
        return target.has_pdl
    if enable_pdl and not target.has_pdl:
        raise ValueError(
            f"enable_pdl: is True, but {target} has no programmatic dependent launch, which begins with sm_90a; "
            "pass None or False"
        )
    return enable_pdl
