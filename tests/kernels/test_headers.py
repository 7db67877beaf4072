"""The headers of kernels are ordinary C++: each opens alone, and a source is what its root includes."""

from __future__ import annotations

import re
import subprocess

import pytest
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.constants import constants, sample
from jitnorm.kernels.generator import generate
from jitnorm.kernels.headers import FOLDER, alternatives, files, root
from jitnorm.kernels.target import Target

from jitnorm.toolchains import ToolchainMissingError
from jitnorm.toolchains.cxx import find_cxx
from jitnorm.toolchains.nvrtc import Nvrtc
from jitnorm.toolchains.nvrtc_program import ptx_of

CPU, HOPPER = Target("cpu"), Target("sm_90a")
ALL = sorted(
    path.relative_to(FOLDER).as_posix() for folder in ("common", "cpu", "cuda") for path in (FOLDER / folder).iterdir()
)
# One for each root and each alternative.
CONFIGS = [
    KernelConfig.parse(text)
    for text in (
        "rmsnorm:hidden_size=4096",
        "rmsnorm:hidden_size=4096,residual=true,quant=e4m3/row/f32",
        "rmsnorm:hidden_size=4096,streams=4,quant=e2m1/16/e4m3",
        "quantize:hidden_size=4096,quant=e2m1/16/e4m3,gate_columns=-1",
        "quantize:hidden_size=4096,input=float8_e4m3fn,quant=e2m1/16/e4m3/linear/given",
        "quantize:hidden_size=4096,quant=e2m1/16/e4m3,batched=true,masked=true",
        "quantize:hidden_size=4096,quant=e2m1/16/e4m3,axis=0",
        "dequantize:hidden_size=4096,quant=e2m1/16/e4m3",
        "shuffle:hidden_size=4096,shuffle_rows=16",
    )
]
AHEAD = KernelConfig.parse("rmsnorm:hidden_size=4096,schedule=4x2ao2")
SOURCES = [*((config, target) for config in CONFIGS for target in (CPU, HOPPER)), (AHEAD, HOPPER)]


def test_the_sample_of_constants_that_editors_see_is_current() -> None:
    """To write it anew: `path.write_text(sample())`."""
    assert (FOLDER / "common" / "configuration.h").read_text(encoding="utf-8") == sample()


def test_every_header_is_a_part_of_a_source() -> None:
    found = {name for config, target in SOURCES for name in files(config, target)}
    stand_ins = {name for config in CONFIGS for name in alternatives(config)}
    assert found == set(ALL) - stand_ins


@pytest.mark.parametrize(("config", "target"), SOURCES, ids=str)
def test_a_source_holds_its_headers_once_and_includes_none(config: KernelConfig, target: Target) -> None:
    names = files(config, target)
    assert len(set(names)) == len(names)
    assert not any(name.startswith("cuda/" if target.is_cpu else "cpu/") for name in names)
    text = generate(config, target).text
    for trace in ("#include", "#pragma once", "__CUDACC__"):
        assert trace not in text
    for name in names:
        last_lines = (FOLDER / name).read_text(encoding="utf-8").rstrip("\n").splitlines()[-2:]
        if name not in ("common/configuration.h", "common/intrinsics.h"):
            assert text.count("\n".join(last_lines)) >= 1, name


def test_sources_differ_by_their_root_and_their_alternatives() -> None:
    assert {root(config, target) for config, target in SOURCES} == {
        "cpu/items.h", "cpu/row_sets.h", "cuda/items.cuh", "cuda/row_sets.cuh", "cuda/rows_ahead.cuh",
        "cuda/rows_masked.cuh",
    }  # fmt: skip
    of_rows, of_items = CONFIGS[:6], CONFIGS[6:]
    assert [alternatives(config)["cuda/encode.cuh"] for config in of_rows] == [
        f"cuda/encode_{name}.cuh" for name in ("values", "fp8", "blocks", "blocks", "blocks", "blocks")
    ]
    assert [alternatives(config)["cuda/combine.cuh"] for config in of_rows] == [
        f"cuda/combine_{name}.cuh" for name in ("input", "add", "mix", "silu", "rescaled", "input")
    ]
    assert [alternatives(config) for config in of_items] == [
        {"common/process_item.h": f"common/{name}.h"} for name in ("quantize_columns", "dequantize", "move")
    ]


def test_every_source_of_a_kind_has_the_same_constants() -> None:
    def names(config: KernelConfig, target: Target) -> list[str]:
        return re.findall(r"\b(\w+)(?: = .*[;,]|;)$", "\n".join(constants(config, target)), re.MULTILINE)

    of_rows, of_items = CONFIGS[:6], CONFIGS[6:]
    for target in (CPU, HOPPER):
        assert len({tuple(names(config, target)) for config in of_rows}) == 1
        assert len({tuple(names(config, target)) for config in of_items}) == 1
    assert set(names(of_rows[0], CPU)) == set(names(of_items[0], CPU)) <= set(names(of_rows[0], HOPPER))


def test_each_header_of_the_host_opens_alone() -> None:
    headers = [str(FOLDER / name) for name in ALL if not name.startswith("cuda")]
    command = [str(find_cxx()), "-std=c++17", "-Wall", "-Wno-unused", "-fsyntax-only", "-x", "c++", *headers]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 0, found.stderr


def test_each_header_of_gpus_opens_alone() -> None:
    try:
        toolchain = Nvrtc()
    except ToolchainMissingError as error:
        pytest.skip(str(error))
    flags = (*toolchain.flags(HOPPER), f"--include-path={FOLDER}")
    for name in ALL:
        if name.startswith("cuda"):
            assert ptx_of(toolchain.location, f'#include "{name}"\n', "editor.cu", flags), name


def test_a_header_says_what_it_is_first() -> None:
    for name in ALL:
        lines = (FOLDER / name).read_text(encoding="utf-8").splitlines()
        assert lines[0].startswith("// "), name
        assert "#pragma once" in lines, name
