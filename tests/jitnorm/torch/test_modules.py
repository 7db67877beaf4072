"""Modules give the bytes of their functions, and exchange state dicts with torch's modules."""

from __future__ import annotations

import copy
import re

import pytest
import torch

import jitnorm
from jitnorm import MXFP8
from jitnorm.torch import FusedAddRMSNorm, LayerNorm, NormQuant, RMSNorm

SIZE = 256
random = torch.Generator().manual_seed(0)


def tensor(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=random).bfloat16()


@pytest.fixture(autouse=True)
def _inference() -> object:
    with torch.inference_mode():
        yield


def with_weight(module: RMSNorm) -> RMSNorm:
    module.weight.copy_(tensor(SIZE))
    return module


@pytest.mark.parametrize("unit_bias", [False, True])
def test_rmsnorm(unit_bias: bool) -> None:
    norm, x = with_weight(RMSNorm(SIZE, 1e-5, unit_bias=unit_bias, dtype=torch.bfloat16)), tensor(4, SIZE)
    function = jitnorm.gemma_rmsnorm if unit_bias else jitnorm.rmsnorm
    assert torch.equal(norm(x), function(x, norm.weight, 1e-5))


def test_the_rounding_is_an_option() -> None:
    x, r = tensor(4, SIZE), tensor(4, SIZE)
    norm, fused = (with_weight(kind(SIZE, rounding="hf", dtype=torch.bfloat16)) for kind in (RMSNorm, FusedAddRMSNorm))
    assert torch.equal(norm(x), jitnorm.rmsnorm(x, norm.weight, rounding="hf"))
    expected = jitnorm.add_rmsnorm(x, r, fused.weight, rounding="hf")
    assert all(map(torch.equal, fused(x, r), expected))
    quant = with_weight(NormQuant(SIZE, MXFP8, rounding="output", dtype=torch.bfloat16))
    assert quant(x) == jitnorm.quantize(jitnorm.rmsnorm(x, quant.weight), spec=MXFP8)
    assert "rounding=hf" in repr(norm)


@pytest.mark.parametrize("unit_bias", [False, True])
def test_the_residual_form_writes_both_tensors_in_place(unit_bias: bool) -> None:
    norm, x, r = (
        with_weight(FusedAddRMSNorm(SIZE, unit_bias=unit_bias, dtype=torch.bfloat16)),
        tensor(4, SIZE),
        tensor(4, SIZE),
    )
    function = jitnorm.gemma_add_rmsnorm if unit_bias else jitnorm.add_rmsnorm
    expected = function(x, r, norm.weight)
    y, added = norm(x, r)
    assert (y is x, added is r) == (True, True)
    assert torch.equal(x, expected[0])
    assert torch.equal(r, expected[1])


def test_norm_and_quantization() -> None:
    norm, x, r = with_weight(NormQuant(SIZE, MXFP8, dtype=torch.bfloat16)), tensor(4, SIZE), tensor(4, SIZE)
    assert norm(x) == jitnorm.norm_quantize(x, norm.weight, spec=MXFP8)
    assert norm(x, r.clone()) == jitnorm.norm_quantize(x, norm.weight, spec=MXFP8, residual=r)
    fp8, scale = NormQuant(SIZE, jitnorm.FP8_TENSOR), torch.ones(1)
    assert fp8(x, scale=scale) == jitnorm.norm_quantize(x, fp8.weight, spec=jitnorm.FP8_TENSOR, scale=scale)


def test_layer_normalization_takes_parameters_in_float32_or_the_input_s_dtype() -> None:
    norm, x = LayerNorm(SIZE), tensor(4, SIZE)
    norm.weight.copy_(tensor(SIZE))
    expected = jitnorm.layernorm(x, norm.weight, norm.bias, 1e-5)
    assert torch.equal(norm(x), expected)
    assert torch.equal(norm.bfloat16()(x), expected)
    assert LayerNorm(SIZE, dtype=torch.bfloat16).weight.dtype == torch.bfloat16


def test_state_dicts_go_to_torch_s_modules_and_back() -> None:
    for own, torch_s in ((RMSNorm(SIZE), torch.nn.RMSNorm(SIZE)), (LayerNorm(SIZE), torch.nn.LayerNorm(SIZE))):
        torch_s.weight.copy_(tensor(SIZE))
        own.load_state_dict(torch_s.state_dict())
        assert torch.equal(own.weight, torch_s.weight)
        torch_s.load_state_dict(own.state_dict())
        x = tensor(4, SIZE).float()
        torch_s.eps = own.eps
        torch.testing.assert_close(own(x), torch_s(x))


def test_modules_can_be_copied_printed_and_made_without_memory() -> None:
    norm = with_weight(NormQuant(SIZE, MXFP8, 1e-5, unit_bias=True))
    assert torch.equal(copy.deepcopy(norm).weight, norm.weight)
    assert repr(norm) == "NormQuant(256, eps=1e-05, unit_bias=True, spec=e4m3/32/ue8m0/linear/none)"
    assert repr(LayerNorm(SIZE)) == "LayerNorm(256, eps=1e-05)"
    assert RMSNorm(SIZE, device="meta").weight.is_meta


@torch.inference_mode(False)
def test_norms_train_and_a_quantizing_one_is_an_error_that_names_the_argument() -> None:
    for norm, plain in ((RMSNorm(SIZE), torch.nn.RMSNorm(SIZE, eps=1e-6)), (LayerNorm(SIZE), torch.nn.LayerNorm(SIZE))):
        x = torch.linspace(-1, 2, 2 * SIZE).reshape(2, SIZE)
        norm(x).square().sum().backward()
        plain(x).square().sum().backward()
        for own, other in zip(norm.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(own.grad, other.grad)
    with pytest.raises(TypeError, match=re.compile("^weight: .*grad", re.DOTALL)):
        NormQuant(SIZE, jitnorm.MXFP8)(torch.ones(2, SIZE))
