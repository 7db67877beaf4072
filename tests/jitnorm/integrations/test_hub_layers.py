"""The layers for the Hub's `kernels` package, which shares its name with a folder of this repository."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from python_process import run_python

try:
    version("kernels")
except PackageNotFoundError:
    pytest.skip("kernels is not installed", allow_module_level=True)

PROGRAM = """
import torch
from kernels import LocalLayerRepository, Mode, kernelize, use_kernel_forward_from_hub, use_kernel_mapping
import jitnorm
from jitnorm.integrations import hub

@use_kernel_forward_from_hub("RMSNorm")
class Plain(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.variance_epsilon = torch.nn.Parameter(torch.linspace(0, 2, 64).bfloat16()), 1e-5
    def forward(self, hidden_states):
        raise NotImplementedError

@use_kernel_forward_from_hub("RMSNormZeroCentered")
class Centered(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.eps = torch.nn.Parameter(torch.linspace(-1, 1, 64).bfloat16()), 1e-5
    def forward(self, x):
        raise NotImplementedError

layers = {name: {"cpu": LocalLayerRepository(hub.FOLDER, layer_name=name)} for name in hub.layers.__all__}
model = torch.nn.Sequential(Plain(), Centered())
with use_kernel_mapping(layers):
    model = kernelize(model, mode=Mode.INFERENCE | Mode.TORCH_COMPILE, device="cpu")
x = torch.randn(4, 64).bfloat16()
with torch.no_grad():
    expected = jitnorm.rmsnorm(x, model[0].weight, 1e-5, rounding="hf")
    print(torch.equal(model(x), jitnorm.gemma_rmsnorm(expected, model[1].weight, 1e-5)))
"""


def test_kernels_loads_the_folder_and_gives_its_layers_to_modules(tmp_path: Path) -> None:
    assert run_python(PROGRAM, cwd=tmp_path).splitlines()[-1:] == ["True"]
