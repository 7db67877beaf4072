"""Errors name an argument as the function that was called does, whatever the op calls it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import jitnorm
from jitnorm.compat import flashinfer, sglang, vllm

ROWS, HALF, WEIGHT = torch.randn(4, 64).bfloat16(), torch.empty(4, 32).bfloat16(), torch.ones(64).bfloat16()


@pytest.mark.parametrize(("call", "text"), [
    (lambda: vllm._C.rms_norm(HALF, ROWS, WEIGHT, 1e-6), r"result: shape is \(4, 32\), expected \(4, 64\)"),
    (lambda: vllm._C.rms_norm(HALF.float(), ROWS, WEIGHT, 1e-6), r"result: dtype is float32"),
    (lambda: vllm._C.rms_norm(np.empty((4, 64)), ROWS, WEIGHT, 1e-6), "result: "),
    (lambda: sglang.fused_add_rmsnorm(ROWS, HALF, WEIGHT), r"residual: shape is \(4, 32\)"),
    (lambda: flashinfer.rmsnorm(ROWS, WEIGHT[:32]), r"weight: shape is \(32,\)"),
    (lambda: jitnorm.rmsnorm(ROWS, WEIGHT, out=HALF), r"out: shape is \(4, 32\)"),
    (lambda: jitnorm.rmsnorm(ROWS, ROWS), r"weight: shape is \(4, 64\)"),
])  # fmt: skip
def test_the_argument_has_the_caller_s_name(call: Callable[[], Any], text: str) -> None:
    with pytest.raises((TypeError, ValueError), match=rf"^{text}"):
        call()


def test_functions_outside_of_jitnorm_name_nothing() -> None:
    def norm(rows: Any, target: Any) -> Any:
        return jitnorm.rmsnorm(rows, WEIGHT, out=target)

    with pytest.raises(ValueError, match=r"^out: "):
        norm(ROWS, HALF)
