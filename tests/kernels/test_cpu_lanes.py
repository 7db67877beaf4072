"""CPU kernels without AVX-512 have tiles of eight chunks, so a block may span two of them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from cute_on_host import Arrays, make_arrays
from encoded import encoded, normalized
from expected import assert_same_bytes
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.generator import generate
from jitnorm.kernels.target import Target

from jitnorm.building import compile_kernel
from jitnorm.interop.numpy import NumPy
from jitnorm.launcher import launcher
from jitnorm.toolchains.cxx import Cxx

CPU = Target("cpu")
ROWS, SIZE, EPS = 4, 768, 1e-5


class _Portable(Cxx):
    """A compiler for any processor, without optimization."""

    def flags(self, target: Target = CPU) -> tuple[str, ...]:
        return ("-O0", *(flag for flag in super().flags(target) if not flag.startswith(("-O", "-m"))))


def run(config: KernelConfig, kind: str) -> Arrays:
    arrays = make_arrays(config, ROWS, kind)
    named: dict[str, Any] = {"input": ml_dtypes.bfloat16, "weight": ml_dtypes.bfloat16}
    if config.quant is not None:
        named["out"] = np.int8 if config.quant.element == "int8" else ml_dtypes.float8_e4m3fn
    tensors = {name: array.view(named.get(name, array.dtype)) for name, array in arrays.items()}
    artifact = compile_kernel(generate(config, CPU), _Portable())
    kernel = launcher().load_kernel(artifact.manifest["recipe"], artifact.payload)
    passed = [NumPy().argument(name, tensor, name in ("out", "block_scale")) for name, tensor in tensors.items()]
    kernel(*passed, *([EPS] if config.normalizes else []))
    return tensors


@pytest.mark.parametrize(
    "quant", ["e4m3/256/f32/column", "int8/256/f32", "e4m3/128/f32", "e4m3/16/f32_ue8m0", "e4m3/48/f32"]
)
@pytest.mark.parametrize("op", ["rmsnorm", "quantize"])
def test_groups_are_those_of_the_reference(op: str, quant: str) -> None:
    config = KernelConfig.parse(f"{op}:hidden_size={SIZE},quant={quant}")
    assert config.quant
    for kind in ("spiky", "nan"):
        found = run(config, kind)
        x = found["input"]
        y = normalized(x, found["weight"], eps=EPS) if op == "rmsnorm" else x.astype(np.float32)
        expected = encoded(y, config.quant)
        assert_same_bytes(found["out"], expected["data"], kind)
        assert_same_bytes(found["block_scale"], expected["scale"], kind)
