"""A call with tensors of two frameworks is an error, because each has its own streams, modes and gradients.

Those of TVM-FFI have none, and go with all others.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
from expected import assert_same_bytes, expected_rmsnorm
from frameworks import to_jax, to_torch, to_tvm
from inputs import make_input, make_weight

from jitnorm import fused_add_rmsnorm, rmsnorm

ROWS, SIZE = 5, 96
X, WEIGHT = make_input("real", ROWS, SIZE, "float16"), make_weight(SIZE, "float16")
MAKERS: dict[str, Callable[[Any], Any]] = {"torch": to_torch, "jaxlib": to_jax, "numpy": np.array}


@pytest.mark.parametrize(("one", "other"), [*permutations(MAKERS, 2)])
def test_a_tensor_of_another_framework_is_refused_by_name(one: str, other: str) -> None:
    x, weight = MAKERS[one](X), MAKERS[one](WEIGHT)
    for _ in range(2):
        result = rmsnorm(x, weight)
        with pytest.raises(TypeError, match=rf"^weight: is a {other}.*, but input a {one}.*tensors of one framework"):
            rmsnorm(x, MAKERS[other](WEIGHT))
        if one != "jaxlib" != other:
            with pytest.raises(TypeError, match=rf"^out: is a {other}.*, but input a {one}"):
                rmsnorm(x, weight, out=MAKERS[other](np.zeros_like(X)))
    assert_same_bytes(result, expected_rmsnorm(X, WEIGHT))


@pytest.mark.parametrize("one", ["torch", "numpy"])
def test_a_tensor_of_tvm_ffi_goes_with_any(one: str) -> None:
    make, expected = MAKERS[one], expected_rmsnorm(X, WEIGHT)
    for _ in range(2):
        assert_same_bytes(rmsnorm(make(X), to_tvm(WEIGHT)), expected)
        assert_same_bytes(rmsnorm(to_tvm(X), make(WEIGHT)), expected)
        out = make(np.zeros_like(X))
        assert rmsnorm(to_tvm(X), to_tvm(WEIGHT), out=out) is out
        assert_same_bytes(out, expected)
    with pytest.raises(TypeError, match=r"^out: is a .*, but weight a "):
        rmsnorm(to_tvm(X), make(WEIGHT), out=MAKERS["numpy" if one == "torch" else "torch"](np.zeros_like(X)))


def test_torch_is_asked_about_its_tensors_whatever_the_input_is() -> None:
    trained, out = to_torch(WEIGHT).requires_grad_(), torch.empty(ROWS, SIZE, dtype=torch.float16)
    for _ in range(2):
        rmsnorm(to_tvm(X), to_tvm(WEIGHT), out=to_tvm(np.empty_like(X)))
        version = out._version
        rmsnorm(to_tvm(X), to_tvm(WEIGHT), out=out)
        assert out._version == version + 1
        with pytest.raises(TypeError, match=r"^weight: requires grad"):
            rmsnorm(to_tvm(X), trained, out=to_tvm(np.empty_like(X)))


def test_a_residual_of_another_framework_is_refused_and_neither_is_written() -> None:
    x, residual = to_torch(X), np.array(X)
    with pytest.raises(TypeError, match=r"^residual: is a numpy\.ndarray, but input a torch\.Tensor"):
        fused_add_rmsnorm(x, residual, to_torch(WEIGHT))
    assert_same_bytes(x, X)
    assert_same_bytes(residual, X)


@pytest.mark.parametrize("name", ["input", "weight", "out"])
def test_a_tensor_without_memory_is_refused_by_name(name: str) -> None:
    arguments = {"input": to_torch(X), "weight": to_torch(WEIGHT), "out": torch.zeros(ROWS, SIZE).half()}
    arguments[name] = arguments[name].to("meta")
    with pytest.raises((TypeError, ValueError), match=f"^{name}: is on meta"):
        rmsnorm(**arguments)


def test_a_read_only_numpy_output_is_refused_by_name() -> None:
    out = np.zeros_like(X)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="out: is read-only"):
        rmsnorm(X, WEIGHT, out=out)
    assert not out.any()


def test_a_mask_is_not_ignored() -> None:
    with pytest.raises(TypeError, match=r"input: is a .*MaskedArray"):
        rmsnorm(np.ma.masked_less(X, 0), WEIGHT)
