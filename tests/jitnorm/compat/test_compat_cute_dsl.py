"""jitnorm.compat.flashinfer's `_cute_dsl` functions, compared with the definition."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from jitnorm import reference
from jitnorm.compat import flashinfer
from jitnorm.compat.flashinfer import NVFP44Over6Config

ROWS, SIZE, LAYOUTS = 10, 96, ("128x4", "8x4", "linear")
X = torch.randn(ROWS, SIZE, generator=torch.Generator().manual_seed(5)).bfloat16()
PADDED = {"128x4": 128, "8x4": 16, "linear": ROWS}


def of_reference(block_size: int, scale_format: Any, layout: Any, **options: Any) -> list[torch.Tensor]:
    codes, scales = reference.quantize_fp4(
        X.float().numpy(), block_size=block_size, scale_format=scale_format, **options
    )
    stored = scales if layout == "linear" else reference.swizzle_scales(scales, layout)
    return [torch.from_numpy(each) for each in (codes, stored)]


def same(found: Any, expected: list[torch.Tensor]) -> bool:
    return len(found) == len(expected) and all(
        torch.equal(one.view(torch.uint8).view(-1), other.view(torch.uint8).view(-1))
        for one, other in zip(found, expected, strict=True)
    )


@pytest.mark.parametrize(("number", "layout"), list(enumerate(LAYOUTS)))
@pytest.mark.parametrize("scale", [50.0, torch.tensor([50.0]), torch.tensor(50.0).bfloat16()])
def test_nvfp4_by_a_scale_of_the_tensor(number: int, layout: str, scale: Any) -> None:
    expected = of_reference(16, "e4m3", layout, global_scale=50.0)
    found = flashinfer.nvfp4_quantize_cute_dsl(X.view(2, 5, SIZE), scale, number, enable_pdl=True)
    assert found[0].shape == (ROWS, SIZE // 2)
    assert found[1].shape == (PADDED[layout], 6 if layout == "linear" else 8)
    assert same(found, expected)
    out = torch.empty(ROWS, SIZE // 2, dtype=torch.uint8), torch.full((PADDED[layout] * 8 + 9,), 7, dtype=torch.uint8)
    made = flashinfer.nvfp4_quantize_cute_dsl(X, scale, number, out=out)
    assert made[0] is out[0]
    assert made[1].data_ptr() == out[1].data_ptr()
    assert same(made, expected)
    assert out[1][-9:].eq(7).all()


def test_a_recipe_chooses_between_two_scales() -> None:
    recipe = NVFP44Over6Config(err_mode="mse")
    found = flashinfer.quantization.nvfp4_quantize_cute_dsl(X, 50.0, 2, None, recipe)
    assert same(found, list(flashinfer.fp4_quantize(X, 50.0, is_sf_swizzled_layout=False, nvfp4_4over6=recipe)))
    assert not same(found, of_reference(16, "e4m3", "linear", global_scale=50.0))


@pytest.mark.parametrize(("number", "layout"), list(enumerate(LAYOUTS)))
def test_mxfp4(number: int, layout: str) -> None:
    assert same(flashinfer.mxfp4_quantize_cute_dsl(X, number), of_reference(32, "ue8m0", layout))


def test_mxfp8_in_each_layout() -> None:
    linear = flashinfer.mxfp8_quantize_cute_dsl(X, False)
    amax = X.float().view(ROWS, -1, 32).abs().amax(-1)
    exponents = torch.ceil(torch.log2(amax / 448))
    assert torch.equal(linear[1].view(ROWS, -1), (exponents + 127).byte())
    values = X.float().view(ROWS, -1, 32) * torch.exp2(-exponents)[..., None]
    codes = values.to(torch.float8_e4m3fn).view(ROWS, SIZE).view(torch.uint8)
    assert torch.equal(linear[0].view(torch.uint8), codes)
    for options in ({}, {"is_sf_8x4_layout": True}):
        found = flashinfer.mxfp8_quantize_cute_dsl(X, alignment=128, **options)
        rows, columns = torch.arange(ROWS)[:, None], torch.arange(3)
        tile = 8 if options else 128
        at = rows // tile * tile * 4 + (rows % tile * 4 if options else rows % 32 * 16) + columns
        assert found[0].shape == (ROWS, 128)
        assert torch.equal(found[1][at.view(-1)], linear[1].view(-1))


def test_rows_have_scales_of_their_own() -> None:
    plain = flashinfer.nvfp4_quantize_per_token_cute_dsl(X, 1 / 2688, 2)
    made = reference.quantize_nvfp4_row(X.float().numpy())
    assert same(plain, [torch.from_numpy(each) for each in made])
    factor = torch.tensor([3.0])
    for scaled in (
        flashinfer.nvfp4_quantize_per_token_cute_dsl(X, 1 / 2688, 2, out_scale=factor),
        flashinfer.nvfp4_quantize(X, 1 / 2688, 2, per_token_activation=True, out_scale=factor),
    ):
        assert same(scaled[:2], list(plain[:2]))
        assert torch.equal(scaled[2], plain[2] * 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: flashinfer.nvfp4_quantize_cute_dsl(X, 1.0, 3), "sf_layout: is 3"),
        (
            lambda: flashinfer.nvfp4_quantize_cute_dsl(X, 1.0, out=(X.byte(), torch.empty(9, dtype=torch.uint8))),
            "out: its scales are torch.uint8 of 9 elements",
        ),
        (lambda: flashinfer.nvfp4_quantize(X, 1.0, out_scale=torch.ones(1)), "out_scale: is given, which needs"),
        (lambda: flashinfer.mxfp4_quantize_cute_dsl(X[:, :40]), "multiple of block_size 32"),
    ],
)
def test_other_arguments_are_refused(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.gpu
def test_the_gpu_s_bytes_are_the_cpu_s() -> None:
    for function, arguments in (
        (flashinfer.nvfp4_quantize_cute_dsl, (50.0,)),
        (flashinfer.nvfp4_quantize_per_token_cute_dsl, (1 / 2688,)),
        (flashinfer.mxfp4_quantize_cute_dsl, ()),
        (flashinfer.mxfp8_quantize_cute_dsl, ()),
    ):
        on_cpu, on_gpu = (function(X.to(device), *arguments) for device in ("cpu", "cuda"))
        assert same([each.cpu() for each in on_gpu], list(on_cpu))
