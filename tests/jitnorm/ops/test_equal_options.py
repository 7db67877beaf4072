"""Options that equal others, such as 1 and True, are refused whatever was called before, and leave nothing behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import jitnorm

X, ROWS = np.ones((2, 4, 64), np.float16), np.ones((4, 64), np.float16)
W, ONE = np.ones(64, np.float16), np.ones(1, np.float32)
SPEC = jitnorm.FP8_TOKEN
CODES = jitnorm.quantize(ROWS, spec=SPEC).data


@pytest.mark.parametrize(
    ("call", "right"),
    [
        (lambda value: jitnorm.quantize(X, spec=SPEC, batched=value), True),
        (lambda value: jitnorm.quantize(ROWS, spec=SPEC, enable_pdl=value), False),
        (lambda value: jitnorm.norm_quantize(X, W, spec=SPEC, batched=value), True),
        (lambda value: jitnorm.norm_quantize(ROWS, W, spec=SPEC, unit_bias=value), True),
        (lambda value: jitnorm.add_norm_quantize(ROWS, ROWS.copy(), W, spec=SPEC, keep_norm=value), True),
        (lambda value: jitnorm.silu_and_mul_quantize(X, spec=SPEC, batched=value), True),
        (lambda value: jitnorm.silu_and_mul_quantize(ROWS, spec=SPEC, values_first=value), True),
        (lambda value: jitnorm.layernorm_quantize(X, None, None, spec=SPEC, batched=value), True),
        (lambda value: jitnorm.rmsnorm_quant(CODES, ROWS, W, ONE, enable_pdl=value), False),
    ],
)
def test_they_are_refused_before_and_after_the_right_ones(call: Callable[[Any], Any], right: bool) -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match=rf": is {int(right)}; allowed are .*True"):
            call(int(right))
        call(right)


def test_a_wrong_value_does_not_spoil_the_calls_that_follow() -> None:
    with pytest.raises(ValueError, match="enable_pdl: is 0"):
        jitnorm.silu(ROWS, enable_pdl=0)  # type: ignore[arg-type]
    assert jitnorm.silu(ROWS, enable_pdl=False).shape == ROWS.shape
