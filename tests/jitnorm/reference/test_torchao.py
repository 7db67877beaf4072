"""The reference against torchao, whose MX and NVFP4 formats others have written.

Where the rules are the same, so is every byte. They are not for:

- a block of zeros: jitnorm drops the signs of its zeros, torchao keeps them;
- a NaN: jitnorm writes one code in all of its block, torchao none that is fixed. The scale is the same;
- "up" (torchao: RCEIL): torchao takes the logarithm in float32, where the least numbers above a power of two have that
  of the power itself; their scale is one too small. A denormal quotient has the byte 0, and then no scaling;
- "floor", "even" and the scale byte 0: it says 2^-127, torchao divides by 2^-126;
- NVFP4 blocks whose largest magnitude, times the global scale, is below 6 * 2^-6: torchao's least scale is 2^-6;
- a global scale that is no power of two: torchao multiplies by its inverse and divides where jitnorm multiplies, so
  what lies within 2^-21 of a tie, an element or a scale, may go either way.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from float32_oracle import FLT_MAX, INF, NAN, random_rows
from fp4_oracle import E2M1_VALUES, E4M3_VALUES, unpack
from inputs import make_input

from jitnorm.reference import (
    decode_e4m3,
    dequantize_fp4,
    dequantize_mxfp8,
    quantize_fp4,
    quantize_mxfp8,
    swizzle_scales,
)

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
mx: Any = pytest.importorskip("torchao.prototype.mx_formats.mx_tensor", reason="torchao is not installed")
nvfp4: Any = pytest.importorskip("torchao.prototype.mx_formats.nvfp4_tensor", reason="torchao is not installed")
utils: Any = pytest.importorskip("torchao.prototype.mx_formats.utils", reason="torchao is not installed")

NVFP4: Any = {"block_size": 16, "scale_format": "e4m3"}
MXFP4: Any = {"block_size": 32, "scale_format": "ue8m0"}
MODES = {
    "up": mx.ScaleCalculationMode.RCEIL,
    "floor": mx.ScaleCalculationMode.FLOOR,
    "even": mx.ScaleCalculationMode.EVEN,
}
ELEMENTS = {"e2m1": torch.float4_e2m1fn_x2, "e4m3": torch.float8_e4m3fn}

every_rounding = pytest.mark.parametrize("scale_rounding", ["up", "floor", "even"])
every_element = pytest.mark.parametrize("element", ["e2m1", "e4m3"])


def as_bytes(tensor: Any) -> np.ndarray[Any, Any]:
    array: np.ndarray[Any, Any] = tensor.contiguous().view(torch.uint8).numpy()
    return array


def inputs() -> dict[str, Any]:
    exponents = np.random.default_rng(1).integers(-100, 100, (64, 1))
    wide = np.ldexp(random_rows(64, 1024), exponents).astype(np.float32)
    return {
        "random": random_rows(64, 1024),
        "of every size": wide,
        "bfloat16": wide.astype(ml_dtypes.bfloat16).astype(np.float32),
        "activations": make_input("real", 64, 1024, "bfloat16").astype(np.float32),
    }


INPUTS = inputs()
every_input = pytest.mark.parametrize("name", INPUTS)


def quantize_mx(y: Any, element: str, scale_rounding: Any) -> Any:
    if element == "e4m3":
        return quantize_mxfp8(y, scale_rounding)
    return quantize_fp4(y, **MXFP4, scale_rounding=scale_rounding)


@every_input
@every_rounding
@every_element
def test_mx_codes_and_scales_are_those_of_torchao(name: str, scale_rounding: str, element: str) -> None:
    y = INPUTS[name]
    scales, codes = mx.to_mx(torch.from_numpy(y), ELEMENTS[element], 32, MODES[scale_rounding])
    our_codes, our_scales = quantize_mx(y, element, scale_rounding)
    assert (as_bytes(scales) == our_scales).all()
    assert (as_bytes(codes) == our_codes).all()


@every_element
@pytest.mark.parametrize("special", [INF, NAN, FLT_MAX])
def test_mx_scales_of_special_blocks_are_those_of_torchao(element: str, special: float) -> None:
    y = random_rows(1, 32)
    y[0, 5] = special
    for scale_rounding, mode in MODES.items():
        scales, _ = mx.to_mx(torch.from_numpy(y), ELEMENTS[element], 32, mode)
        assert (as_bytes(scales) == quantize_mx(y, element, scale_rounding)[1]).all()


@every_element
def test_mx_values_are_those_of_torchao(element: str) -> None:
    generator = np.random.default_rng(2)
    codes = generator.integers(0, 256, (64, 16 if element == "e2m1" else 32), dtype=np.uint8)
    scales = generator.integers(0, 256, (64, 1), dtype=np.uint8)
    scales[:4, 0] = 0, 1, 254, 255
    lent = torch.from_numpy(codes) if element == "e2m1" else torch.from_numpy(codes).view(ELEMENTS[element])
    values = mx.to_dtype(
        lent, torch.from_numpy(scales).view(torch.float8_e8m0fnu), ELEMENTS[element], 32, torch.float32
    )
    ours = dequantize_fp4(codes, scales, **MXFP4) if element == "e2m1" else dequantize_mxfp8(codes, scales)
    np.testing.assert_array_equal(values.numpy(), ours)  # NaN equals NaN


@pytest.mark.parametrize("name", ["random", "activations"])
@pytest.mark.parametrize("exponent", [None, -3, 0, 7])
def test_nvfp4_codes_and_scales_are_those_of_torchao(name: str, exponent: int | None) -> None:
    y = INPUTS[name]
    global_scale = None if exponent is None else 2.0**exponent
    tensor_scale = None if global_scale is None else torch.tensor(1 / global_scale)
    scales, codes = nvfp4.nvfp4_quantize(torch.from_numpy(y), per_tensor_scale=tensor_scale)
    our_codes, our_scales = quantize_fp4(y, **NVFP4, global_scale=global_scale)
    is_alike = our_scales > 0x08
    assert is_alike.mean() > 0.8
    assert (as_bytes(scales) == our_scales)[is_alike].all()
    of_blocks = (as_bytes(codes) == our_codes).reshape(*our_scales.shape, 8).all(axis=-1)
    assert of_blocks[is_alike].all()


def next_to_a_tie(values: Any, representable: list[Any]) -> Any:
    """Whether each value lies within 2^-21 of the middle of two neighbours, relative to it."""
    neighbours = np.array(representable, np.float64)
    ties = (neighbours[1:] + neighbours[:-1]) / 2
    nearest = ties[np.abs(values[..., None] - ties).argmin(axis=-1)]
    return np.abs(values / nearest - 1) < 2.0**-21


@pytest.mark.parametrize("name", ["random", "activations"])
def test_nvfp4_differs_from_torchaos_next_to_a_tie_alone(name: str) -> None:
    y = INPUTS[name]
    tensor_scale = nvfp4.per_tensor_amax_to_scale(torch.tensor(np.abs(y).max()))
    global_scale = float(np.float32(2688) / np.abs(y).max())
    scales, codes = nvfp4.nvfp4_quantize(torch.from_numpy(y), per_tensor_scale=tensor_scale)
    our_codes, our_scales = quantize_fp4(y, **NVFP4, global_scale=global_scale)
    assert our_scales.min() > 0x08
    magnitudes = np.abs(y.astype(np.float64)).reshape(*our_scales.shape, 16) * global_scale
    other_scale = as_bytes(scales) != our_scales
    assert other_scale.mean() < 0.05  # ratios of bfloat16 numbers meet ties often
    assert next_to_a_tie(magnitudes.max(axis=-1) / 6, E4M3_VALUES)[other_scale].all()
    other_code = (unpack(as_bytes(codes)) != unpack(our_codes)).reshape(magnitudes.shape) & ~other_scale[..., None]
    assert other_code.mean() < 0.01
    assert next_to_a_tie(magnitudes / decode_e4m3(our_scales)[..., None], E2M1_VALUES)[other_code].all()


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (128, 4), (130, 7), (300, 64)])
def test_the_128x4_layout_is_that_of_torchao(rows: int, columns: int) -> None:
    scales = np.random.default_rng(3).integers(1, 256, (rows, columns), dtype=np.uint8)
    assert (utils.to_blocked(torch.from_numpy(scales)).numpy() == swizzle_scales(scales, "128x4")).all()
