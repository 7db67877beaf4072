"""What kernels are compiled to: PTX, machine code, and the memory to which registers spill."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.generator import generate
from jitnorm.kernels.target import Target

from jitnorm.toolchains import nvrtc_program
from jitnorm.toolchains.nvrtc import Nvrtc
from jitnorm.toolchains.search import on_path, on_sys_path

NVDISASM = on_sys_path("nvidia/cu13/bin/nvdisasm") or on_path("nvdisasm")
CUOBJDUMP = on_sys_path("nvidia/cu13/bin/cuobjdump") or on_path("cuobjdump")


@cache
def compiled(text: str, target_name: str) -> tuple[str, bytes]:
    """The PTX and the machine code."""
    nvrtc, target = Nvrtc(), Target(target_name)
    source = generate(KernelConfig.parse(text), target).text
    with nvrtc_program._compiled(nvrtc.location, source, "kernel.cu", nvrtc.flags(target)) as program:
        return program.read("PTX").decode(), program.read("CUBIN")


def listing_of(cubin: bytes, folder: Path) -> str:
    """The machine code, as nvdisasm prints it."""
    file = folder / "kernel.cubin"
    file.write_bytes(cubin)
    command = [str(NVDISASM), "--print-code", str(file)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def opcodes(text: str, target_name: str, folder: Path) -> list[str]:
    """The instructions of a kernel without operands: LDG.E.128.CONSTANT, F2FP..., ..."""
    listing = listing_of(compiled(text, target_name)[1], folder)
    found = re.findall(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?\w+\s+)?([A-Z][\w.]*)", listing, re.MULTILINE)
    assert "EXIT" in found
    return found


def assert_wide_loads(text: str, target_name: str) -> None:
    """Check for wide loads in the PTX, which also shows their width; loads from peers do not name a state space."""
    loads = set(re.findall(r"\b(ld\.(?:global|v\d)[\w.]*)", compiled(text, target_name)[0]))
    assert any(re.search(r"\.v4\.\w32|\.v2\.\w64", load) for load in loads), loads


def local_memory_of(text: str, target_name: str, folder: Path) -> str:
    """The local memory of a kernel, to which registers spill."""
    file = folder / "kernel.cubin"
    file.write_bytes(compiled(text, target_name)[1])
    command = [str(CUOBJDUMP), "--dump-resource-usage", str(file)]
    listing = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    return " ".join(re.findall(r"(?:STACK|LOCAL):\d+", listing))


def assert_no_local_memory(text: str, target_name: str, folder: Path) -> None:
    assert local_memory_of(text, target_name, folder) == "STACK:0 LOCAL:0", "registers spill"
