"""One call with tensors of several frameworks: each is taken, or refused by name, as if it were the input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from expected import assert_same_bytes, expected_rmsnorm
from frameworks import to_jax, to_torch, to_tvm
from inputs import make_input, make_weight

from jitnorm import rmsnorm

ROWS, SIZE = 5, 96
direct = pytest.mark.parametrize("make", [to_torch, to_tvm])


@direct
def test_a_bfloat16_numpy_weight_is_read(make: Callable[[Any], Any]) -> None:
    x, weight = make_input("real", ROWS, SIZE, "bfloat16"), make_weight(SIZE, "bfloat16")
    assert_same_bytes(rmsnorm(make(x), weight), expected_rmsnorm(x, weight))


@direct
def test_a_read_only_numpy_weight_is_read(make: Callable[[Any], Any]) -> None:
    x, weight = make_input("real", ROWS, SIZE, "float16"), make_weight(SIZE, "float16")
    weight.flags.writeable = False
    assert_same_bytes(rmsnorm(make(x), weight), expected_rmsnorm(x, weight))


@direct
def test_a_read_only_numpy_output_is_refused_by_name(make: Callable[[Any], Any]) -> None:
    x, weight = make_input("real", ROWS, SIZE, "float16"), make_weight(SIZE, "float16")
    out = np.zeros_like(x)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="out: is read-only"):
        rmsnorm(make(x), make(weight), out=out)
    assert not out.any()


@direct
def test_a_jax_output_is_refused_and_stays_as_it_is(make: Callable[[Any], Any]) -> None:
    x, weight = make_input("real", ROWS, SIZE, "float16"), make_weight(SIZE, "float16")
    out = to_jax(np.zeros_like(x))
    with pytest.raises(TypeError, match="out: is written, but JAX arrays are immutable"):
        rmsnorm(make(x), make(weight), out=out)
    assert not np.asarray(out).any()


@pytest.mark.parametrize("name", ["input", "weight", "out"])
def test_a_tensor_without_memory_is_refused_by_name(name: str) -> None:
    x, weight = make_input("real", ROWS, SIZE, "float16"), make_weight(SIZE, "float16")
    arguments = {"input": to_torch(x), "weight": to_torch(weight), "out": torch.zeros(ROWS, SIZE).half()}
    arguments[name] = arguments[name].to("meta")
    with pytest.raises((TypeError, ValueError), match=f"^{name}: is on meta"):
        rmsnorm(**arguments)


def test_a_mask_is_not_ignored() -> None:
    x, weight = make_input("real", ROWS, SIZE, "float16"), make_weight(SIZE, "float16")
    with pytest.raises(TypeError, match=r"input: is a .*MaskedArray"):
        rmsnorm(np.ma.masked_less(x, 0), weight)


def test_torch_is_asked_about_its_tensors_whatever_the_input_is() -> None:
    x, weight = make_input("real", ROWS, SIZE, "float16"), make_weight(SIZE, "float16")
    trained, out = to_torch(weight).requires_grad_(), torch.empty(ROWS, SIZE, dtype=torch.float16)
    for _ in range(2):
        rmsnorm(to_tvm(x), to_tvm(weight), out=to_tvm(np.empty_like(x)))
        version = out._version
        rmsnorm(to_tvm(x), to_tvm(weight), out=out)
        assert out._version == version + 1
        with pytest.raises(TypeError, match=r"^weight: requires grad"):
            rmsnorm(to_tvm(x), trained, out=to_tvm(np.empty_like(x)))
