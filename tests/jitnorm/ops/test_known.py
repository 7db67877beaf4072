"""Calls are found by their options: by identity, with no option taken for another."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from jitnorm.kernels.quant_spec import QuantSpec

import jitnorm
from jitnorm.ops import forms
from jitnorm.ops.general import _QUANTIZE_CALLS
from jitnorm.ops.rope import _CALLS as _ROPE_CALLS
from jitnorm.quantized import QuantizedTensor

X = torch.randn(2, 64, dtype=torch.bfloat16)
SPECS = ("e4m3/row/f32", "int8/row/f32", "e2m1/16/e4m3", "e2m1/16/e4m3/linear+128x4")


def test_specs_created_for_each_call_do_not_take_each_others_place() -> None:
    """More than the table holds, so that it is emptied and memory of specs used again."""
    wanted = [jitnorm.quantize(X, spec=QuantSpec.parse(text)) for text in SPECS[:2]]
    for i in range(1500):
        assert jitnorm.quantize(X, spec=QuantSpec.parse(SPECS[i % 2])).data.dtype is wanted[i % 2].data.dtype
    for text, q in zip(SPECS, wanted, strict=False):
        assert jitnorm.quantize(X, spec=QuantSpec.parse(text)) == q


def test_options_created_for_each_call_add_no_functions() -> None:
    def call() -> QuantizedTensor:
        return jitnorm.quantize(X, spec=QuantSpec.parse(SPECS[0]), rounding="".join(("on", "ce")))

    call(), call()
    calls, *_ = _QUANTIZE_CALLS._found(X, *[None] * 8, QuantSpec.parse(SPECS[0]), None, "once", False, False, None)
    before = len(calls)
    for _ in range(5):
        call()
    assert len(calls) == before


def test_a_text_and_a_tensor_in_one_place_are_different_calls() -> None:
    spec, scale = jitnorm.FP8_TENSOR, torch.full((1,), 0.5)
    for _ in range(3):
        assert jitnorm.quantize(X, spec=spec, scale="tensor").amax is not None
        assert jitnorm.quantize(X, spec=spec, scale=scale).scale is scale
        with pytest.raises(ValueError, match="scale: is 'row'"):
            jitnorm.quantize(X, spec=spec, scale="row")
        with pytest.raises(TypeError, match="mask: is"):
            jitnorm.quantize(X[None], spec=spec, scale=scale, batched=True, mask="row")


def test_options_that_equal_others_are_refused_after_them() -> None:
    for _ in range(2):
        jitnorm.quantize(X, spec=jitnorm.MXFP8, batched=False)
        with pytest.raises(ValueError, match="batched: is 0"):
            jitnorm.quantize(X, spec=jitnorm.MXFP8, batched=0)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="unhashable"):
            jitnorm.quantize(X, spec=jitnorm.MXFP8, rounding=[])  # type: ignore[arg-type]


@pytest.mark.parametrize("ones", [torch.ones, partial(np.ones, dtype=np.float32)])
def test_shapes_that_matter_make_different_calls(ones: Any) -> None:
    for count in (2, 3, 4, 2):
        for rows in (1, 2, 5):
            norms = jitnorm.rmsnorm_multi(ones((rows, 64)), ones((count, 64)))
            assert norms.shape == (count, rows, 64)
    for weights in (torch.ones(64), torch.ones(5, 64), torch.ones(2, 2, 64)):
        with pytest.raises(ValueError, match=r"weights: shape is \(.*64,?\); expected \(n, hidden_size\)"):
            jitnorm.rmsnorm_multi(X, weights)


def test_a_scale_of_each_expert_follows_one_of_all() -> None:
    offsets, spec = torch.tensor([0, 1, 2], dtype=torch.int32), QuantSpec.parse("e2m1/16/e4m3")
    for scale in (torch.ones(1), torch.tensor([1.0, 4.0]), "row", torch.tensor(1.0), torch.tensor([1.0, 4.0])):
        codes, *_ = jitnorm.grouped_quantize(X, offsets, spec=spec, global_scale=scale)
        each = [scale] * 2 if isinstance(scale, str) or scale.numel() == 1 else [part.view(1) for part in scale]
        alone = [jitnorm.quantize(X[i : i + 1], spec=spec, global_scale=each[i]).data for i in range(2)]
        assert torch.equal(codes.view(torch.uint8), torch.cat([part.view(torch.uint8) for part in alone]))


def test_only_the_last_extents_that_matter_are_remembered() -> None:
    table, q = torch.randn(8, 64), torch.randn(3, 2, 64)
    for _ in range(2):
        jitnorm.rope(q, q, table, torch.zeros(3, dtype=torch.int64))
    with mock.patch.object(_ROPE_CALLS, "_find", side_effect=AssertionError):
        jitnorm.rope(q[:2], q[:2], table, torch.zeros(2, dtype=torch.int64))


@pytest.mark.parametrize("table", [None, "half", 1.0, torch.ones(8, 64).to_sparse(), np.ones(64)])
def test_what_is_no_table_of_angles_is_refused_each_time(table: Any) -> None:
    q, positions = torch.randn(3, 2, 64), torch.zeros(3, dtype=torch.int64)
    for _ in range(2):
        jitnorm.rope(q, q, torch.randn(8, 64), positions)
        with pytest.raises((TypeError, ValueError), match="cos_sin_cache: "):
            jitnorm.rope(q, q, table, positions)


@pytest.mark.parametrize("text", SPECS)
@pytest.mark.parametrize("gated", [False, True])
def test_calls_of_the_launcher_return_what_first_calls_do(text: str, gated: bool) -> None:
    call = jitnorm.silu_and_mul_quantize if gated else jitnorm.quantize
    x = torch.randn(2, 3, 128, dtype=torch.bfloat16)
    spec = QuantSpec.parse(text)
    first, *others = (call(x, spec=spec) for _ in range(3))
    for q in others:
        assert q == first
        assert set(vars(q)) == {field.name for field in fields(QuantizedTensor)}
        assert type(q.shape) is tuple
        assert q.shape == (2, 3, 64 if gated else 128)
        with pytest.raises(AttributeError, match="cannot assign"):
            q.batched = True  # type: ignore[misc]


def test_threads_may_make_their_first_calls_together(monkeypatch: pytest.MonkeyPatch) -> None:
    real = forms.launcher()

    class Slow:
        def make_known(self, *arguments: Any) -> int:
            time.sleep(0.02)  # meanwhile, other threads make the same
            return real.make_known(*arguments)

    monkeypatch.setattr(forms, "launcher", Slow)
    _QUANTIZE_CALLS.clear()
    wanted = X.shape
    with ThreadPoolExecutor(8) as threads:
        found = threads.map(lambda _: jitnorm.quantize(X, spec=jitnorm.FP8_TOKEN).data.shape, range(16))
        assert set(found) == {wanted}
