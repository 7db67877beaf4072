"""torch tensors on the CPU."""

from __future__ import annotations

import pytest
import torch
from expected import NVFP4, assert_all_same, assert_same_bytes, expected_fp4, expected_rmsnorm
from frameworks import to_torch
from inputs import DTYPES, make_input, make_weight

from jitnorm import rmsnorm, rmsnorm_fp4quant

ROWS, SIZE = 5, 96


@pytest.mark.parametrize("dtype", DTYPES)
def test_without_gradients_a_parameter_is_a_weight(dtype: str) -> None:
    x, weight = make_input("real", ROWS, SIZE, dtype), make_weight(SIZE, dtype)
    parameter = torch.nn.Parameter(to_torch(weight))
    with torch.no_grad():
        out = rmsnorm(to_torch(x).requires_grad_(), parameter)
    assert not out.requires_grad
    assert_same_bytes(out, expected_rmsnorm(x, weight))


def test_a_parameter_s_own_memory_is_read() -> None:
    x, weight = make_input("real", ROWS, SIZE, "float16"), make_weight(SIZE, "float16")
    parameter = torch.nn.Parameter(torch.zeros(SIZE, dtype=torch.float16))
    with torch.no_grad():
        parameter.copy_(to_torch(weight))
        assert_same_bytes(rmsnorm(to_torch(x), parameter), expected_rmsnorm(x, weight))


def test_outputs_may_be_the_narrow_dtypes_or_bytes() -> None:
    x, weight = make_input("real", ROWS, SIZE, "bfloat16"), make_weight(SIZE, "bfloat16")
    expected = expected_fp4(x, weight, NVFP4)
    for codes_dtype in (torch.float4_e2m1fn_x2, torch.uint8):
        for scales_dtype in (torch.float8_e4m3fn, torch.uint8):
            codes = torch.empty((ROWS, SIZE // 2), dtype=codes_dtype)
            scales = torch.empty((ROWS, SIZE // 16), dtype=scales_dtype)
            returned = rmsnorm_fp4quant(to_torch(x), to_torch(weight), codes, scales)
            assert returned[0] is codes
            assert returned[1] is scales
            assert_all_same(returned, expected)


def test_ue8m0_scales_may_be_given_in_their_dtype() -> None:
    x, weight = make_input("real", ROWS, SIZE, "bfloat16"), make_weight(SIZE, "bfloat16")
    scales = torch.empty((ROWS, SIZE // 32), dtype=torch.float8_e8m0fnu)
    rmsnorm_fp4quant(to_torch(x), to_torch(weight), block_scale=scales, block_size=32)
    as_uint8 = rmsnorm_fp4quant(to_torch(x), to_torch(weight), block_size=32)[1]
    assert torch.equal(scales.view(torch.uint8), as_uint8)


def test_inference_mode_and_no_grad_change_nothing() -> None:
    x, weight = make_input("real", ROWS, SIZE, "float16"), make_weight(SIZE, "float16")
    for mode in (torch.inference_mode, torch.no_grad):
        with mode():
            assert_same_bytes(rmsnorm(to_torch(x), to_torch(weight)), expected_rmsnorm(x, weight))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_caller_who_flushes_denormals_gets_the_same_bytes(dtype: str) -> None:
    x, weight = make_input("tiny", ROWS, SIZE, dtype), make_weight(SIZE, dtype)
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush denormals")
    try:
        out = rmsnorm(to_torch(x), to_torch(weight), eps=0.0)
        codes = rmsnorm_fp4quant(to_torch(x), to_torch(weight), eps=0.0)
        assert (torch.tensor([1e-40]) * 1 == 0).all(), "the caller's own setting is gone"
    finally:
        torch.set_flush_denormal(False)
    assert_same_bytes(out, expected_rmsnorm(x, weight, eps=0.0))
    assert_all_same(codes, expected_fp4(x, weight, NVFP4, eps=0.0))


def test_an_output_of_another_layout_keeps_it() -> None:
    x, weight = make_input("real", 6, SIZE, "float16"), make_weight(SIZE, "float16")
    out = torch.empty((3, 2, SIZE), dtype=torch.float16).transpose(0, 1)
    rmsnorm(to_torch(x).view(2, 3, SIZE), to_torch(weight), out=out)
    assert not out.is_contiguous()
    assert_same_bytes(out.contiguous(), expected_rmsnorm(x.reshape(2, 3, SIZE), weight))
