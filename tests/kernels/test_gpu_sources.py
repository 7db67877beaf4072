"""Every op that is measured compiles for a GPU, with every dtype that its input may have: no GPU is needed."""

from __future__ import annotations

import pytest
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.generator import generate
from jitnorm.kernels.target import Target

from jitnorm.bench.cases import OPS
from jitnorm.bench.measured import Measured
from jitnorm.catalogue import OPS as CATALOGUE
from jitnorm.toolchains import ToolchainMissingError
from jitnorm.toolchains.nvrtc import Nvrtc
from jitnorm.toolchains.nvrtc_program import ptx_of
from jitnorm.warm.expand import configs_of

TARGET = Target("sm_90a")
# A multiple of all blocks, and a head that may be rotated.
HIDDEN_SIZE = 384
DTYPES = ("float16", "bfloat16", "float32", "float8_e4m3fn")


def kernels() -> dict[str, KernelConfig]:
    """Each kernel, once, by its text."""
    found = [config for measured in OPS for dtype in DTYPES for config in kernels_of(measured, dtype)]
    return {str(config): config for config in found}


def kernels_of(measured: Measured, dtype: str) -> list[KernelConfig]:
    """The kernels of an op for such an input, unless its input has one dtype only; none if it takes no FP8.

    Measured inputs are in bfloat16: so are parameters in their dtype.
    """
    of_input = {} if "input" in CATALOGUE[measured.op].choices else {"input": dtype}
    of_weight = {"weight": dtype} if measured.choices.get("weight") == "bfloat16" else {}
    chosen = {"hidden_size": HIDDEN_SIZE, "row_class": "some", **of_input, **measured.choices, **of_weight}
    try:
        return configs_of(measured.op, chosen, TARGET)
    except ValueError:
        if dtype == "float8_e4m3fn":
            return []
        raise


@pytest.mark.parametrize("config", kernels().values(), ids=str)
def test_a_gpu_s_source_compiles(config: KernelConfig) -> None:
    try:
        toolchain = Nvrtc()
    except ToolchainMissingError as error:
        pytest.skip(str(error))
    assert ptx_of(toolchain.location, generate(config, TARGET).text, "kernel.cu", toolchain.flags(TARGET))
