"""The PTX of kernels for experts' or gathered rows, run on the host, writes the bytes of the CPU target."""

from __future__ import annotations

from itertools import accumulate, pairwise

import numpy as np
import pytest
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.target import Target

from jitnorm.toolchains import ToolchainMissingError
from jitnorm.toolchains.nvrtc import Nvrtc

try:
    Nvrtc()
except ToolchainMissingError as error:
    pytest.skip(str(error), allow_module_level=True)

from cute_on_host import Arrays, make_arrays, run_on_cpu, run_on_host

# Several rows a warp, one warp, several warps; rows side by side; blocks with parts of a row.
KERNELS = (
    ("quantize:hidden_size=64,quant=e2m1/16/e4m3/128x4/given,experts=5,scale_per_matrix=true", "sm_80"),
    ("quantize:hidden_size=640,quant=e2m1/32/ue8m0/8x4,experts=5,gate_columns=-1", "sm_90a"),
    ("quantize:hidden_size=272,quant=e2m1/16/e4m3/128x4/given,experts=5,many_rows=true", "sm_90a"),
    ("quantize:hidden_size=2048,quant=e2m1/16/e4m3/linear+128x4/row,experts=40,pdl=true", "sm_100a"),
    ("quantize:hidden_size=1536,quant=e4m3/row/f32,experts=3", "sm_90a"),
    ("quantize:hidden_size=4096,quant=e4m3/128/f32,schedule=4x2b2,experts=2", "sm_90a"),
    ("quantize:hidden_size=1152,quant=e2m1/16/e4m3/8x4,schedule=1x1p4n72,experts=70", "sm_90a"),
)
GATHERING = (
    ("quantize:hidden_size=64,quant=e2m1/16/e4m3/128x4/row,gathers=true", "sm_80"),
    ("quantize:hidden_size=1536,quant=e2m1/32/ue8m0/8x4,activation=relu2,gathers=true", "sm_90a"),
    ("quantize:hidden_size=2048,quant=e4m3/row/f32,gathers=true,experts=3", "sm_100a"),
    ("quantize:hidden_size=128,quant=e2m1/16/e4m3/128x4,gathers=true,experts=5", "sm_90a"),
)
# Padding has few blocks or several for each expert, alone or in clusters, among those of rows; the number of rows.
PADDED = (
    ("quantize:hidden_size=64,quant=e2m1/16/e4m3/128x4,experts=5", "sm_90a", 1),
    ("quantize:hidden_size=64,quant=e2m1/32/ue8m0/128x4,experts=33", "sm_120a", 300),
    ("quantize:hidden_size=32,quant=e4m3/32/ue8m0/8x4,experts=1024,schedule=1x1p4", "sm_80", 40),
    ("quantize:hidden_size=2048,quant=e2m1/16/e4m3/128x4,experts=2,schedule=2x2b2", "sm_90a", 41),
    ("quantize:hidden_size=2048,quant=e2m1/16/e4m3/128x4/row,experts=3,schedule=4x1b2", "sm_90a", 17),
)
ROWS = 20


def offsets(experts: int) -> list[int]:
    """Offsets of experts, some without rows."""
    borders = [2, 2, 13, 13, 16, 19][: experts + 1]
    return borders + [ROWS] * (experts + 1 - len(borders))


def set_offsets(arrays: Arrays, config: KernelConfig, borders: list[int]) -> None:
    tile = config.row_multiple
    padded = [-(-(after - first) // tile) * tile for first, after in pairwise(borders)]
    for name, values in (("offsets", borders), ("scale_offsets", [0, *accumulate(padded)])):
        if name in arrays:
            arrays[name][...] = values


@pytest.mark.parametrize(("text", "target"), KERNELS)
def test_each_row_finds_its_expert(text: str, target: str) -> None:
    config = KernelConfig.parse(text)
    expected, actual = (make_arrays(config, ROWS, "spiky") for _ in range(2))
    for arrays in (expected, actual):
        set_offsets(arrays, config, offsets(config.experts))
    run_on_cpu(config, expected, 0.0)
    run_on_host(config, Target(target), actual, ROWS, 0.0, is_cuda=True)
    for name, array in expected.items():
        assert actual[name].tobytes() == array.tobytes(), name


@pytest.mark.parametrize(("text", "target", "rows"), PADDED)
def test_padding_is_zeroed_among_the_rows(text: str, target: str, rows: int) -> None:
    config = KernelConfig.parse(text)
    borders = sorted(np.random.default_rng(rows).integers(0, rows + 1, config.experts + 1).tolist())
    expected, actual = (make_arrays(config, rows, "spiky") for _ in range(2))
    for arrays in (expected, actual):
        set_offsets(arrays, config, borders)
    run_on_cpu(config, expected, 0.0)
    run_on_host(config, Target(target), actual, rows, 0.0, is_cuda=True)
    for name, array in expected.items():
        assert actual[name].tobytes() == array.tobytes(), name


@pytest.mark.parametrize("borders", [[19, 2, 13, -5, 40, 6], [13, 9, 9, 4, 4, -1], [-7, 50, 0, 0, 3, 3]])
@pytest.mark.parametrize("size", [64, 640])
def test_offsets_that_decrease_write_rows_of_experts_only(size: int, borders: list[int]) -> None:
    config = KernelConfig.parse(f"quantize:hidden_size={size},quant=e2m1/16/e4m3/8x4,experts=5")
    arrays = make_arrays(config, ROWS, "random")
    untouched = arrays["y_fp4"].copy()
    arrays["offsets"][...], arrays["scale_offsets"][...] = borders, [1 << 30, -9, 8, 0, 3, 7]
    run_on_host(config, Target("sm_90a"), arrays, ROWS, 0.0, is_cuda=True)
    has_expert = [any(first <= row < after for first, after in pairwise(borders)) for row in range(ROWS)]
    written = (arrays["y_fp4"] != untouched).any(axis=1)
    assert not written[~np.array(has_expert)].any()
    assert written.any() == any(has_expert)


@pytest.mark.parametrize(("text", "target"), GATHERING)
def test_each_row_finds_its_own_of_the_input(text: str, target: str) -> None:
    """A row may be read twice, and none is written for an invalid number."""
    config = KernelConfig.parse(text)
    expected, actual = (make_arrays(config, ROWS, "spiky") for _ in range(2))
    for arrays in (expected, actual):
        arrays["input_rows"][:, 0] = [(7 * i) % ROWS if i % 5 else (-1, 3, ROWS, 1 << 30)[i // 5] for i in range(ROWS)]
        if config.experts:
            set_offsets(arrays, config, offsets(config.experts))
    run_on_cpu(config, expected, 0.0)
    run_on_host(config, Target(target), actual, ROWS, 0.0, is_cuda=True)
    for name, array in expected.items():
        assert actual[name].tobytes() == array.tobytes(), name
