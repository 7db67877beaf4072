"""Random tensors: as many numbers as asked for, drawn once and repeated in large ones."""

from __future__ import annotations

import pytest
import torch

from jitnorm.bench import tensors
from jitnorm.bench.tensors import Tensors


def test_small_tensors_are_drawn_and_differ() -> None:
    new = Tensors("cpu")
    first, second = new.bfloat16(64, 64), new.bfloat16(64, 64)
    assert first.shape == (64, 64)
    assert not torch.equal(first, second)
    assert 0.9 < new.float32(64, 64).std() < 1.1


def test_large_tensors_repeat_what_was_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensors, "DRAWN", 100)
    for dtype, found in (
        (torch.bfloat16, Tensors("cpu").bfloat16(5, 50)),
        (torch.float32, Tensors("cpu").float32(250)),
    ):
        flat = found.flatten()
        assert (flat.dtype, len(flat), len(flat[:100].unique()) > 50) == (dtype, 250, True)
        assert torch.equal(flat[:100], flat[100:200])
        assert torch.equal(flat[:50], flat[200:])


@pytest.mark.parametrize(
    ("values", "inner", "every_509th"), [("zeros", 0, 0), ("large", 30, 30), ("outliers", 1, 1000)]
)
def test_inputs_have_the_values_asked_for_and_parameters_do_not(values: str, inner: int, every_509th: int) -> None:
    new = Tensors("cpu", values)
    for found in (new.float32(64, 1018), new.of((64, 1018), "float32", False)):
        assert found[:, 1:509].std() == pytest.approx(inner, rel=0.1)
        assert found[:, ::509].std() == pytest.approx(every_509th, rel=0.3)
    assert new.of((4096,), "float32", False).std() == pytest.approx(1, rel=0.1)
