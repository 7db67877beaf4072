"""The compiled CuTe-DSL kernels: plain parameters, native conversions, wide loads, and rows in registers."""

from __future__ import annotations

import re
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from time import process_time

import pytest
from cute_cases import IN_REGISTERS, PIPELINED
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.cute import schedule as schedules
from jitnorm.kernels.cute.schedule import ENTRY, cute_schedule
from jitnorm.kernels.entry_point import parameters
from jitnorm.kernels.target import TARGET_NAMES, Target

from jitnorm.toolchains.search import on_path, on_sys_path

_NVDISASM = on_sys_path("nvidia/cu13/bin/nvdisasm") or on_path("nvdisasm")
needs_nvdisasm = pytest.mark.skipif(_NVDISASM is None, reason="nvdisasm is missing: pip install nvidia-cuda-nvdisasm")
_CUOBJDUMP = on_sys_path("nvidia/cu13/bin/cuobjdump") or on_path("cuobjdump")
needs_cuobjdump = pytest.mark.skipif(
    _CUOBJDUMP is None, reason="cuobjdump is missing: pip install nvidia-cuda-cuobjdump"
)
FEW = (*IN_REGISTERS[::6], *PIPELINED[::4])


@pytest.fixture(autouse=True)
def _pipelines_wherever_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use pipelines even where they do not pay: the kernels must be correct wherever they may be used."""
    pytest.importorskip("cutlass", reason="CuTe-DSL is not installed: pip install jitnorm[cute]")
    monkeypatch.setattr(schedules, "pays", lambda config: True)


@cache
def built(text: str, target: str) -> tuple[str, bytes]:
    """The PTX and the cubin."""
    from jitnorm.kernels.cute.build import build

    with tempfile.TemporaryDirectory() as folder:
        cubin = build(KernelConfig.parse(text), Target(target), Path(folder))
        (ptx,) = Path(folder).glob("*.ptx")
        return ptx.read_text(encoding="utf-8"), cubin


def opcodes(cubin: bytes, folder: Path) -> list[str]:
    path = folder / "kernel.cubin"
    path.write_bytes(cubin)
    command = [str(_NVDISASM), "--print-code", str(path)]
    listing = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    found = re.findall(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?\w+\s+)?([A-Z][\w.]*)", listing, re.MULTILINE)
    assert "EXIT" in found
    return found


def local_bytes(cubin: bytes, folder: Path) -> int:
    """The local memory of each thread, to which registers spill; nvdisasm, which shows spills, needs 0.5 s to start."""
    path = folder / "kernel.cubin"
    path.write_bytes(cubin)
    command = [str(_CUOBJDUMP), "--dump-resource-usage", str(path)]
    listing = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    return sum(map(int, re.findall(r"\b(?:STACK|LOCAL):(\d+)", listing)))


@pytest.mark.parametrize(
    ("text", "target"), [(text, ("sm_80", "sm_90a", "sm_100a", "sm_120a")[i % 4]) for i, text in enumerate(FEW)]
)
def test_it_takes_the_parameters_that_the_launcher_passes(text: str, target: str) -> None:
    text = text.replace("pdl=true", "pdl=false") if target == "sm_80" else text
    ptx, cubin = built(text, target)
    types = {"Int64": ".param .u64", "float": ".param .f32"}
    expected = [types.get(kind, ".param .u64") for kind, _ in parameters(KernelConfig.parse(text))]
    ((name, declared),) = re.findall(r"\.entry (\w+)\(([^)]*)\)", ptx)
    assert name == ENTRY
    assert [line.strip()[: len(".param .u64")] for line in declared.strip().split("\n")] == expected
    assert b".text." + ENTRY.encode() + b"\0" in cubin
    schedule, _ = cute_schedule(KernelConfig.parse(text), Target(target))
    assert f".reqntid {schedule.threads}, 1, 1" in ptx


@pytest.mark.parametrize("target", TARGET_NAMES[1:])
def test_every_cuda_target_is_built_for(target: str) -> None:
    ptx, _ = built("rmsnorm:hidden_size=384,quant=e2m1/16/e4m3", target)
    assert f".target {target}\n" in ptx


@pytest.mark.parametrize("text", [*IN_REGISTERS[::4], *PIPELINED[::3]])
def test_every_float_operation_says_how_it_rounds(text: str) -> None:
    """Products without .rn could be contracted with sums; ptxas is also told not to do that."""
    ptx, _ = built(text, "sm_90a")
    rounded = {"mul", "fma", "div", "rcp", "sqrt", "cvt"}
    plain = [
        line
        for line in re.findall(r"^\s+((?:mul|fma|div|rcp|sqrt)\.[\w.]*f32)", ptx, re.MULTILINE)
        if ".rn" not in line
    ]
    assert plain == []
    assert not re.findall(r"\.(?:ftz|approx|full)\b", ptx)
    assert any(f"{name}.rn" in ptx for name in rounded)


@needs_nvdisasm
@pytest.mark.parametrize("target", ["sm_100a", "sm_120a", "sm_100f"])
@pytest.mark.parametrize("quant", ["e2m1/16/e4m3", "e2m1/32/ue8m0/128x4"])
def test_on_blackwell_codes_come_from_the_native_conversion(quant: str, target: str, tmp_path: Path) -> None:
    found = opcodes(built(f"rmsnorm:hidden_size=4096,quant={quant}", target)[1], tmp_path)
    assert any(opcode.startswith("F2FP") and "E2M1" in opcode for opcode in found)


@needs_cuobjdump
@pytest.mark.parametrize(
    "text",
    [
        *(text for text in (*IN_REGISTERS, *PIPELINED) if "vector_bytes" not in text and "hidden_size=32," not in text),
        "rmsnorm:hidden_size=65536,quant=e2m1/16/e4m3,residual=true",
        "rmsnorm:hidden_size=262144,quant=e2m1/16/e4m3,residual=true,input=float32",
    ],
)
def test_on_hopper_loads_are_wide_and_rows_stay_in_registers(text: str, tmp_path: Path) -> None:
    ptx, cubin = built(text, "sm_90a")
    # ptxas 13.4 puts one register of one kernel (FP8 groups of 64 with a residual) aside so that five blocks fit.
    assert local_bytes(cubin, tmp_path) <= 8
    is_copied = cute_schedule(KernelConfig.parse(text), Target("sm_90a"))[1] is not None
    loads = set(re.findall(r"\b((?:ld\.global|cp\.async\.bulk)[\w.]*)", ptx))
    wide = r"cp\.async\.bulk" if is_copied else r"ld\.global.*(\.v4\.\w32|\.v2\.\w64)"
    assert any(re.match(wide, load) for load in loads), loads


def test_a_kernel_takes_half_a_second_at_most() -> None:
    """This is processor time, once the DSL is loaded."""
    built("rmsnorm:hidden_size=384", "sm_90a")
    times = []
    for text in ("rmsnorm:hidden_size=4096,quant=e2m1/16/e4m3/128x4/given", "rmsnorm:hidden_size=8192,residual=true"):
        start = process_time()
        built.__wrapped__(text, "sm_90a")
        times.append(process_time() - start)
    assert max(times) < 0.5
