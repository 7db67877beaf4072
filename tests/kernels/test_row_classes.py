"""Classes of rows: the launcher gives each call the class that kernels/row_classes.py gives it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from forgetful import forget_dispatchers
from hypothesis import given
from hypothesis import strategies as st
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.row_classes import class_of, classes_of, fewest_elements, typical_elements

import jitnorm
from jitnorm.call_config import config_of_call
from jitnorm.ffi import tvm_ffi


@pytest.mark.parametrize(
    ("rows", "hidden_size", "row_class"),
    [
        (1, 16, "few"),
        (1, 2048, "few"),
        (1, 2049, "fewest"),
        (32, 2049, "fewest"),
        (33, 2049, "few"),
        (128, 16, "few"),
        (128, 513, "few"),
        (129, 513, "some"),
        (384, 513, "some"),
        (385, 513, "several"),
        (1280, 513, "several"),
        (1281, 513, "usual"),
        (2048, 512, "few"),
        (2049, 512, "usual"),
        (8192, 128, "few"),
        (8193, 128, "usual"),
        (8191, 512, "usual"),
        (8192, 511, "usual"),
        (8192, 512, "many"),
        (65535, 64, "usual"),
        (65536, 64, "many"),
        (8191, 513, "usual"),
        (8192, 513, "many"),
        (8191, 1024, "usual"),
        (8192, 1024, "many"),
        (16383, 1025, "usual"),
        (16384, 1025, "many"),
        (16383, 2048, "usual"),
        (16384, 2048, "many"),
        (16384, 2049, "usual"),
        (1023, 65536, "several"),
        (1024, 65536, "many"),
    ],
)
def test_the_launcher_knows_the_class_of_a_call(
    rows: int, hidden_size: int, row_class: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert class_of(rows, hidden_size) == row_class
    found = classes_of_calls(monkeypatch)
    x = np.zeros((rows, hidden_size), np.float16)  # whose pages nobody touches
    jitnorm.rmsnorm(x, np.ones(hidden_size, np.float16), out=np.zeros(x.shape, x.dtype))
    forget_dispatchers()
    assert found == [row_class]


@pytest.mark.parametrize("hidden_size", [16, 128, 512])
def test_whatever_is_not_usual_or_many_is_few_with_heads(hidden_size: int) -> None:
    assert classes_of(hidden_size) == ("few", "usual", "many")
    assert {classes_of(hidden_size, [each]) for each in ("few", "some", "several")} == {("few",)}


@pytest.mark.parametrize("shape", [(32, 4096), (32, 4112), (16383, 2048), (16384, 2048), (4095, 16384), (4096, 16384)])
def test_the_class_counts_the_elements_of_a_row_not_the_columns_of_a_tensor(
    shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, hidden_size = shape
    found = classes_of_calls(monkeypatch)
    gates_and_values = np.zeros((rows, 2 * hidden_size), np.float16)  # whose pages nobody touches
    jitnorm.silu_and_mul(gates_and_values, out=np.zeros(shape, np.float16))
    forget_dispatchers()
    assert found == [class_of(*shape)]


@given(st.integers(1, 1 << 17))
def test_no_call_of_a_class_has_fewer_elements_than_the_fewest(hidden_size: int) -> None:
    for row_class in classes_of(hidden_size):
        rows = -(-fewest_elements(row_class, hidden_size) // hidden_size)
        assert rows == 1 or class_of(rows - 1, hidden_size) != row_class
        assert class_of(rows, hidden_size) == row_class or row_class == "few"  # few rows may be the fewest
        typical = typical_elements(row_class, hidden_size)
        assert fewest_elements(row_class, hidden_size) < typical
        assert row_class == "few" or class_of(-(-typical // hidden_size), hidden_size) == row_class


def classes_of_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list that gets the class of rows of each call, none of which runs a kernel."""
    found: list[str] = []

    def record(*args: Any, **of_call: Any) -> KernelConfig:
        found.append(of_call["row_class"])
        return config_of_call(*args, **of_call)

    forget_dispatchers()
    nothing = tvm_ffi().convert(lambda *_: None)
    monkeypatch.setattr("jitnorm.dispatch.config_of_call", record)
    monkeypatch.setattr("jitnorm.dispatch.get_kernel", lambda *_: nothing)
    return found
