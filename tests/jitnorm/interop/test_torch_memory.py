"""torch tensors without memory are rejected by name, and the process continues to work."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from expected import assert_same_bytes, expected_rmsnorm
from frameworks import to_torch
from inputs import make_input, make_weight
from torch_tensors import ONLY_ON_CPU, WITHOUT_MEMORY, Refused

import jitnorm
from jitnorm import fused_add_rmsnorm, rmsnorm, rmsnorm_quant

ROWS, SIZE = 5, 96
X, WEIGHT = make_input("real", ROWS, SIZE, "float32"), make_weight(SIZE, "float32")
EXPECTED = expected_rmsnorm(X, WEIGHT)
refused = pytest.mark.parametrize("kind", (WITHOUT_MEMORY | ONLY_ON_CPU).values(), ids=(WITHOUT_MEMORY | ONLY_ON_CPU))


def call(**changed: Any) -> Any:
    return rmsnorm(**{"input": to_torch(X), "weight": to_torch(WEIGHT), **changed})


@refused
@pytest.mark.parametrize("name", ["input", "weight", "out"])
def test_it_is_refused_by_name_and_the_next_call_works(kind: Refused, name: str) -> None:
    given = {"input": to_torch(X), "weight": to_torch(WEIGHT), "out": torch.zeros(ROWS, SIZE)}
    call(**given)  # the kernel is known from here on
    with pytest.raises(TypeError, match=rf"^{name}: {kind.message}"):
        call(**{**given, name: kind.make(given[name])})
    with pytest.raises(TypeError, match=rf"^{name}: {kind.message}"):
        call(**{**given, name: kind.make(given[name])}, stream=0)
    assert_same_bytes(call(), EXPECTED)


@refused
def test_it_is_refused_where_outputs_are_allocated(kind: Refused) -> None:
    x = to_torch(X)
    for _ in range(2):
        call(input=x)  # from the second on by the fast path, which has no words of its own
    for _ in range(2):
        with pytest.raises(TypeError, match=rf"^input: {kind.message}"):
            call(input=kind.make(x))
    assert_same_bytes(call(), EXPECTED)


@refused
def test_it_is_refused_as_a_residual_and_as_a_scale(kind: Refused) -> None:
    tensors = [to_torch(X), to_torch(X), to_torch(WEIGHT)]
    fused_add_rmsnorm(*tensors)
    with pytest.raises(TypeError, match=rf"^residual: {kind.message}"):
        fused_add_rmsnorm(tensors[0], kind.make(tensors[1]), tensors[2])
    codes, scale = torch.zeros(ROWS, SIZE, dtype=torch.float8_e4m3fn), torch.ones(1)
    rmsnorm_quant(codes, to_torch(X), to_torch(WEIGHT), scale)
    with pytest.raises(TypeError, match=rf"^scale: {kind.message}"):
        rmsnorm_quant(codes, to_torch(X), to_torch(WEIGHT), kind.make(scale))
    assert_same_bytes(call(), EXPECTED)


@refused
def test_ops_that_look_at_the_shape_first_refuse_it_too(kind: Refused) -> None:
    matrix = torch.ones(128, 64)
    calls = {
        "X": lambda x: jitnorm.mhc_rmsnorm_quantize(x, torch.ones(128, 1), torch.ones(64)),
        "w": lambda x: jitnorm.quantize_weight(x),
        "input_tensor": lambda x: jitnorm.shuffle_matrix_a(x, 128),
        "unswizzled_sf": lambda x: jitnorm.block_scale_interleave(x),
        "a": lambda x: jitnorm.nvfp4_batched_quantize(x, torch.ones(1)),
    }
    for name, op in calls.items():
        with pytest.raises(TypeError, match=rf"^{name}: {kind.message}"):
            op(kind.make(matrix[:, None] if name == "X" else matrix[None] if name == "a" else matrix))


def test_a_subclass_of_plain_memory_is_a_tensor() -> None:
    class Tagged(torch.Tensor):
        pass

    for kind in (Tagged, torch.nn.Parameter):
        with torch.no_grad():
            for _ in range(2):
                assert_same_bytes(call(input=to_torch(X).as_subclass(kind)), EXPECTED)
                assert_same_bytes(call(weight=to_torch(WEIGHT).as_subclass(kind)), EXPECTED)


def test_a_parameter_that_has_no_shape_yet_is_refused() -> None:
    given = {"input": to_torch(X), "weight": to_torch(WEIGHT), "out": torch.zeros(ROWS, SIZE)}
    for name in given:
        for kind in (torch.nn.UninitializedParameter, torch.nn.UninitializedBuffer):
            for _ in range(2):
                with torch.no_grad(), pytest.raises(TypeError, match=rf"^{name}: is a Uninit.* no shape yet"):
                    call(**{**given, name: kind()})
    assert_same_bytes(call(), EXPECTED)


def test_what_is_no_tensor_of_torch_is_refused() -> None:
    with pytest.raises(TypeError, match=r"^input: is a torch\.Size"):
        call(input=torch.Size([ROWS, SIZE]))
    with pytest.raises(TypeError, match=r"^input: is a torch\.fx\.proxy\.Proxy"):
        torch.fx.symbolic_trace(lambda x: call(input=x))


def test_no_rows_need_no_memory() -> None:
    assert call(input=torch.empty(0, SIZE)).shape == (0, SIZE)


def test_a_negative_view_is_read_with_its_sign() -> None:
    negative = torch._neg_view(to_torch(X))
    assert_same_bytes(call(input=negative), expected_rmsnorm(-X, WEIGHT))
    assert_same_bytes(call(input=negative, out=torch.empty(ROWS, SIZE)), expected_rmsnorm(-X, WEIGHT))
    imaginary = torch.complex(torch.zeros(ROWS, SIZE), to_torch(X)).conj().imag
    assert imaginary.is_neg()
    assert_same_bytes(call(input=imaginary), expected_rmsnorm(-X, WEIGHT))
    column = torch.complex(torch.zeros(ROWS), torch.ones(ROWS)).conj().imag[:, None]
    np.testing.assert_array_equal(rmsnorm(column, torch.ones(1), eps=0.0).numpy(), -np.ones((ROWS, 1)))


def test_a_negative_weight_and_residual_keep_their_signs_once_the_kernel_is_known() -> None:
    x, weight = to_torch(X), to_torch(WEIGHT)
    for _ in range(2):
        assert_same_bytes(rmsnorm(x, torch._neg_view(weight)), expected_rmsnorm(X, -WEIGHT))
        out = torch.empty(ROWS, SIZE)
        assert_same_bytes(rmsnorm(x, torch._neg_view(weight), out=out), expected_rmsnorm(X, -WEIGHT))
    for _ in range(2):
        with pytest.raises(TypeError, match=r"^out: is a view that changes signs"):
            rmsnorm(x, weight, out=torch._neg_view(torch.empty(ROWS, SIZE)))
        with pytest.raises(TypeError, match=r"^residual: is a view that changes signs"):
            fused_add_rmsnorm(x.clone(), torch._neg_view(torch.ones(ROWS, SIZE)), weight)


def test_a_negative_view_is_not_written() -> None:
    x, weight = to_torch(X), to_torch(WEIGHT)
    before = x.clone()
    for _ in range(2):
        with pytest.raises(TypeError, match=r"^input: is a view that changes signs"):
            fused_add_rmsnorm(torch._neg_view(x), torch.zeros(ROWS, SIZE), weight)
    assert torch.equal(x, before)


def test_complex_numbers_are_refused_conjugate_or_not() -> None:
    given = {"input": to_torch(X), "weight": to_torch(WEIGHT), "out": torch.zeros(ROWS, SIZE)}
    for arguments in ({"input": to_torch(X)}, given):
        call(**arguments)  # the kernel is known from here on
        for name, tensor in arguments.items():
            for imaginary in (tensor * 1j, (tensor * 1j).conj()):
                message = "out: is a view" if name == "out" and imaginary.is_conj() else rf"{name}.*complex64"
                for _ in range(2):
                    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
                        call(**{**arguments, name: imaginary})
    with pytest.raises(ValueError, match=r"^residual: dtype is complex64"):
        fused_add_rmsnorm(to_torch(X), to_torch(X) * 1j, to_torch(WEIGHT))
    assert_same_bytes(call(), EXPECTED)
