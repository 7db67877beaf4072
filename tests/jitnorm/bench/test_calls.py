"""Calls of any op get numbers where the op reads, and are left to allocate what they can."""

from __future__ import annotations

from typing import Any

import numpy as np
import op_calls
import pytest
from jitnorm.kernels.interface import tensor_arguments

from jitnorm.bench.calls import call_of, config_of
from jitnorm.catalogue import OPS
from jitnorm.catalogue.launches import chosen_of


class Unwritten(np.ndarray):
    """An output."""


def new(shape: tuple[int, ...], dtype: str, is_output: bool) -> Any:
    array = op_calls.new(shape, dtype)
    return array.view(Unwritten) if is_output else array


@pytest.mark.parametrize("call", op_calls.calls()[::7], ids=str)
@pytest.mark.parametrize("outputs", [False, True])
def test_what_an_op_reads_is_written(call: op_calls.Call, outputs: bool) -> None:
    op = OPS[call.op]
    config = config_of(*chosen_of(op, call.choices))
    read = {op.aliases.get(a.name, a.name) for a in tensor_arguments(config) if not a.is_output}
    passed = call_of(op, call.choices, new, 4, outputs=outputs).keywords  # type: ignore[attr-defined]
    assert [name for name, value in passed.items() if name in read and isinstance(value, Unwritten)] == []
