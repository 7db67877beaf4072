"""On the GPU, kernels in CuTe-DSL and those of the same configurations in CUDA C++ write the bytes of the CPU target,
whatever the input and however many rows.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cute_cases import IN_REGISTERS, PIPELINED
from inputs import INPUT_KINDS
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.cute import schedule as schedules
from jitnorm.kernels.cute.schedule import cute_schedule
from jitnorm.kernels.interface import tensor_arguments
from jitnorm.kernels.target import Target
from python_process import run_python

import jitnorm
from jitnorm import manager

torch = pytest.importorskip("torch", reason="torch brings the tensors of this test")

from cute_on_host import Arrays, make_arrays, run_on_cpu  # noqa: E402

pytestmark = pytest.mark.gpu
EPS = 1e-5


@pytest.fixture(autouse=True)
def _pipelines_wherever_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use pipelines even where they do not pay: the kernels must be correct wherever they may be used."""
    pytest.importorskip("cutlass", reason="CuTe-DSL is not installed: pip install jitnorm[cute]")
    monkeypatch.setattr(schedules, "pays", lambda config: True)


def target() -> Target:
    return Target.of_capability(*torch.cuda.get_device_capability())


def for_this_gpu(text: str) -> KernelConfig:
    config = KernelConfig.parse(text)
    return replace(config, pdl=config.pdl and target().has_pdl)


def run_on_gpu(config: KernelConfig, arrays: Arrays, backend: str = "cute") -> None:
    kernel = jitnorm.get_kernel(config, target(), backend=backend)
    on_gpu = []
    for argument in tensor_arguments(config):
        dtype = getattr(torch, "uint8" if "uint8" in argument.dtypes else argument.dtypes[0])
        array = arrays[argument.name]
        tensor = torch.empty(array.shape, dtype=dtype, device="cuda")
        if array.size:
            tensor.view(torch.uint8).copy_(torch.from_numpy(array.view(np.uint8).copy()))
        on_gpu.append(tensor)
    kernel(*on_gpu, *([EPS] if config.normalizes else []))
    torch.cuda.synchronize()
    for array, tensor in zip(arrays.values(), on_gpu, strict=True):
        found = tensor.reshape(-1).view(torch.uint8).cpu().numpy()
        array[...] = found.view(array.dtype).reshape(array.shape)


def assert_same(actual: Arrays, expected: Arrays, what: str) -> None:
    for name, array in expected.items():
        same = actual[name].reshape(-1).view(np.uint8) == array.reshape(-1).view(np.uint8)
        assert same.all(), f"{what}: {name} differs in {int((~same).sum())} bytes, first {int(np.argmin(same))}"


def check(config: KernelConfig, rows: int, kind: str) -> None:
    expected = make_arrays(config, rows, kind)
    run_on_cpu(config, expected, EPS)
    for backend in ("cute", "nvrtc"):
        actual = make_arrays(config, rows, kind)
        run_on_gpu(config, actual, backend)
        assert_same(actual, expected, f"{config} with {backend}, {rows} rows, {kind}")


@pytest.mark.parametrize("text", [*IN_REGISTERS, *PIPELINED])
def test_every_kind_of_kernel_on_every_kind_of_input(text: str) -> None:
    config = for_this_gpu(text)
    for kind in INPUT_KINDS:
        check(config, 130 if config.hidden_size <= 1536 else 9, kind)


@pytest.mark.parametrize("text", [text for text in PIPELINED if "many_rows" in text])
def test_very_many_rows_by_blocks_that_end(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "pays", lambda config: False)
    monkeypatch.setattr(manager, "_kernels", {})
    for kind in ("random", "nan"):
        check(for_this_gpu(text), 5, kind)


@pytest.mark.parametrize("text", PIPELINED[::2])
def test_more_rows_than_blocks(text: str) -> None:
    """Blocks process several rows in turn, and the last ones fewer."""
    config = for_this_gpu(text)
    _, pipeline = cute_schedule(config, target())
    if pipeline is None:
        pytest.skip(f"{target()} has no bulk copies")
    rows = pipeline.clusters * (pipeline.stages + 1) + 5
    check(config, rows, "random")


@pytest.mark.parametrize("rows", [0, 1, 31, 33, 127, 128, 129, 257])
@pytest.mark.parametrize("hidden_size", [64, 4096])
@pytest.mark.parametrize("layout", ["linear", "128x4", "8x4", "linear+128x4"])
def test_every_scale_and_all_padding_is_written(layout: str, hidden_size: int, rows: int) -> None:
    for many_rows in (False, hidden_size == 4096):
        quant = f"e2m1/16/e4m3/{layout}/given"
        config = for_this_gpu(f"rmsnorm:hidden_size={hidden_size},quant={quant},many_rows={str(many_rows).lower()}")
        check(config, rows, "real")


@pytest.mark.parametrize("text", [*IN_REGISTERS[3::8], *PIPELINED[::5]])
def test_every_run_and_every_backend_gives_the_same_bytes(text: str) -> None:
    config = for_this_gpu(text)
    first = make_arrays(config, 300, "random")
    run_on_gpu(config, first)
    for backend in ("cute",) * 20 + ("nvrtc",):
        again = make_arrays(config, 300, "random")
        run_on_gpu(config, again, backend)
        assert_same(again, first, f"{config} with {backend}")


PROGRAM = """
import sys, torch, jitnorm
from jitnorm.store import user_store
x = torch.randn(64, 4096).bfloat16()
r, w = torch.randn(64, 4096).bfloat16(), torch.randn(4096).bfloat16()
gpu = [t.cuda() for t in (x, r, w)]
def same(a, b):
    return all(torch.equal(i.cpu().view(torch.uint8), j.view(torch.uint8)) for i, j in zip(a, b))
print(same([jitnorm.rmsnorm(gpu[0], gpu[2])], [jitnorm.rmsnorm(x, w)]))
print(same(jitnorm.add_rmsnorm_fp4quant(*gpu), jitnorm.add_rmsnorm_fp4quant(x, r, w)))
q = jitnorm.quantize(gpu[0], spec=jitnorm.NVFP4)
print(same([jitnorm.dequantize(q)], [jitnorm.dequantize(jitnorm.quantize(x, spec=jitnorm.NVFP4))]))
print(*sorted(e.manifest["backend"] for e in user_store().entries() if e.manifest.get("backend", "cxx") != "cxx"))
"""


def test_the_variable_chooses_it_for_the_ops(tmp_path: Path) -> None:
    """Other backends build the ops that it lacks."""
    environment: dict[str, Any] = {"JITNORM_BACKEND": "cute", "JITNORM_CACHE_DIR": str(tmp_path / "cache")}
    *same, backends = run_python(PROGRAM, cwd=tmp_path, **environment).splitlines()
    assert same == ["True"] * 3
    assert backends.split() == ["cute", "cute", "cute", "nvrtc"]
