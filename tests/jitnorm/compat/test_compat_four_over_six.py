"""The recipe of four over six: an argument, or FlashInfer's environment variables if it is omitted."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import jitnorm
from jitnorm.compat import flashinfer
from jitnorm.compat.flashinfer import NVFP44Over6Config, NVFP44Over6ErrMode
from jitnorm.compat.flashinfer.four_over_six import NVFP4_QUANT_ENV_VARS

X = torch.randn(8, 256, generator=torch.Generator().manual_seed(3)).bfloat16()
SCALE = torch.tensor([700.0])
PREFIX = "FLASHINFER_NVFP4_4OVER6"


@pytest.fixture(autouse=True)
def without_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NVFP4_QUANT_ENV_VARS:
        monkeypatch.delenv(name, raising=False)


def quantized(**options: Any) -> list[torch.Tensor]:
    return [*flashinfer.nvfp4_quantize(X, None, per_token_activation=True, **options)]


def expected(four_over_six: bool | str, e4m3_max: int = 448) -> list[torch.Tensor]:
    spec = jitnorm.QuantSpec("e2m1", 16, "e4m3", "128x4", "row", four_over_six=four_over_six, e4m3_max=e4m3_max)
    q = jitnorm.quantize(X, spec=spec)
    return [q.data, q.scale, q.row_scale]


def same(found: list[torch.Tensor], wanted: list[torch.Tensor]) -> bool:
    return all(
        a.view(torch.uint8).flatten().equal(b.view(torch.uint8).flatten()) for a, b in zip(found, wanted, strict=True)
    )


@pytest.mark.parametrize(
    ("recipe", "fields"),
    [
        (None, (False,)),
        (NVFP44Over6Config(), ("mae",)),
        (NVFP44Over6Config(err_mode="mse"), (True,)),
        (NVFP44Over6Config(256, NVFP44Over6ErrMode.MAE), ("mae", 256)),
        (NVFP44Over6Config(256, 1, err_use_fast_math=True), (True, 256)),  # type: ignore[arg-type]
    ],
    ids=str,
)
def test_a_recipe_chooses_the_encoding(recipe: NVFP44Over6Config | None, fields: tuple[Any, ...]) -> None:
    assert same(quantized(nvfp4_4over6=recipe), expected(*fields))


@pytest.mark.parametrize(
    ("variables", "fields"),
    [
        ({}, (False,)),
        ({"": "0"}, (False,)),
        ({"": "1"}, ("mae",)),
        ({"": "1", "_ERR_MODE": "MSE"}, (True,)),
        ({"": "1", "_E4M3_USE_256": "1"}, ("mae", 256)),
        ({"_E4M3_USE_256": "1"}, (False,)),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_variables_choose_where_the_argument_is_left_out(
    variables: dict[str, str], fields: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(PREFIX + name, value)
    assert same(quantized(), expected(*fields))
    assert same(quantized(nvfp4_4over6=None), expected(False))
    assert flashinfer.resolve_nvfp4_4over6(None) is None


@pytest.mark.parametrize("scale", [SCALE, SCALE.double(), SCALE.item()], ids=["float32", "float64", "number"])
def test_a_call_without_a_recipe_compiles_with_scales_of_any_kind(scale: Any) -> None:
    for function in (flashinfer.fp4_quantize, flashinfer.nvfp4_quantize):
        compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
        expected = function(X, SCALE)
        assert same([*compiled(X, scale)], [*expected])
        for _ in range(3):  # the second call's function is the launcher's
            assert same([*function(X, scale)], [*expected])


def test_variables_warn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PREFIX, "1")
    with pytest.warns(FutureWarning, match=r"pass nvfp4_4over6=NVFP44Over6Config\("):
        flashinfer.fp4_quantize(X, SCALE)


def test_the_global_scale_has_the_recipe_s_largest_scale() -> None:
    recipe = NVFP44Over6Config(256)
    amax = X.abs().amax().float()
    assert flashinfer.make_nvfp4_global_scale(X, False, nvfp4_4over6_config=recipe).item() == (256 * 6 / amax).item()
    base = flashinfer.make_nvfp4_global_scale(X, True, nvfp4_4over6_config=recipe)
    assert same(
        [*flashinfer.nvfp4_quantize(X, base, per_token_activation=True, nvfp4_4over6=recipe)], expected("mae", 256)
    )


def test_what_is_no_recipe_is_refused() -> None:
    for fields in ({"e4m3_max": 300}, {"err_mode": "L2"}, {"err_mode": 7}):
        with pytest.raises(ValueError, match="must be"):
            NVFP44Over6Config(**fields)
    with pytest.raises(TypeError, match="must be an NVFP44Over6Config or None"):
        flashinfer.nvfp4_quantize(X, SCALE, nvfp4_4over6=True)


def test_the_largest_scale_is_that_of_the_recipe() -> None:
    assert flashinfer.nvfp4_e4m3_max() == 448
    assert flashinfer.nvfp4_e4m3_max(flashinfer.NVFP44Over6Config(e4m3_max=256)) == 256


@pytest.mark.parametrize(
    ("recipe", "code"),
    [
        (None, 0),
        (NVFP44Over6Config(), 0b00001),
        (NVFP44Over6Config(256), 0b00011),
        (NVFP44Over6Config(448, "mse"), 0b00101),
        (NVFP44Over6Config(256, "mse", True), 0b10111),
    ],
)
def test_a_recipe_has_a_number(recipe: NVFP44Over6Config | None, code: int) -> None:
    assert flashinfer.nvfp4_4over6_code(recipe) == code
    assert flashinfer.nvfp4_4over6_from_code(code) == recipe


def test_a_number_may_stand_for_the_environment_or_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PREFIX, "1")
    with pytest.warns(FutureWarning):
        recipe = flashinfer.resolve_nvfp4_4over6(flashinfer.nvfp4_4over6_from_code(-1))
    assert recipe == NVFP44Over6Config()
    for code in (-2, 32, 0b01001):
        with pytest.raises(ValueError, match=rf"code: is {code}"):
            flashinfer.nvfp4_4over6_from_code(code)
