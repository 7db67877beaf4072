"""The compiled kernels of heads: wide accesses, no exchanges that are not needed, and angles in registers."""

from __future__ import annotations

from pathlib import Path

import pytest
from compiled_kernels import CUOBJDUMP, NVDISASM, assert_no_local_memory, opcodes

pytestmark = pytest.mark.skipif(
    NVDISASM is None or CUOBJDUMP is None,
    reason="nvdisasm or cuobjdump is missing: pip install nvidia-cuda-nvdisasm nvidia-cuda-cuobjdump",
)


@pytest.mark.parametrize("target", ["sm_80", "sm_100a"])
def test_heads_are_turned_in_registers(target: str, tmp_path: Path) -> None:
    """Runs of angles that are as wide as an access are loaded with one access."""
    text = "rmsnorm:hidden_size=80,pair=true,rope=neox,row_dims=2,angles=float16,rounding=hf"
    loads = [opcode for opcode in opcodes(text, target, tmp_path) if opcode.startswith("LDG")]
    assert {opcode.split(".")[2] for opcode in loads} == {"128", "64"}  # those of 64 bits are positions
    assert_no_local_memory(text, target, tmp_path)


@pytest.mark.parametrize(("size", "exchanges"), [(64, 1), (128, 2)])
def test_lanes_with_both_halves_of_a_head_meet_for_its_sum_alone(size: int, exchanges: int, tmp_path: Path) -> None:
    """Codes are stored without exchanges."""
    text = f"rmsnorm:hidden_size={size},pair=true,rope=neox,row_dims=2,angles=bfloat16,quant=e4m3/tensor/f32"
    found = opcodes(text, "sm_90a", tmp_path)
    assert sum(opcode.startswith("SHFL") for opcode in found) == exchanges
    assert sum(opcode.startswith("LDG.E.128") for opcode in found) == 12  # two chunks, their weight, their angles
    assert_no_local_memory(text, "sm_90a", tmp_path)


@pytest.mark.parametrize(
    ("op", "quant", "target"),
    [("rmsnorm", "e4m3/tensor/f32", "sm_80"), ("rmsnorm", "none", "sm_100a"), ("quantize", "none", "sm_90a")],
)
def test_heads_go_to_pages_in_wide_accesses(op: str, quant: str, target: str, tmp_path: Path) -> None:
    text = f"{op}:hidden_size=128,pair=true,rope=neox,paged=true,row_dims=2,quant={quant}"
    stores = {opcode for opcode in opcodes(text, target, tmp_path) if opcode.startswith("ST")}
    assert stores == {"STG.E.128"}  # none to generic addresses
    assert_no_local_memory(text, target, tmp_path)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a"])
def test_lanes_with_both_halves_of_a_head_without_a_norm_never_meet(target: str, tmp_path: Path) -> None:
    text = "quantize:hidden_size=128,pair=true,rope=neox,row_dims=2,angles=bfloat16,quant=e4m3/tensor/f32"
    found = opcodes(text, target, tmp_path)
    assert not any(opcode.startswith("SHFL") for opcode in found)
    assert sum(opcode.startswith("LDG.E.128") for opcode in found) == 8  # two chunks, their angles
    assert_no_local_memory(text, target, tmp_path)


@pytest.mark.parametrize("op", ["rmsnorm", "quantize"])
@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a"])
def test_angles_are_computed_in_registers(op: str, target: str, tmp_path: Path) -> None:
    """By polynomials, from frequencies that are loaded in wide accesses."""
    text = f"{op}:hidden_size=128,pair=true,rope=neox,row_dims=2,angles=int32"
    found = opcodes(text, target, tmp_path)
    chunks = 4 if op == "rmsnorm" else 2  # of the row and of its weight
    assert sum(opcode.startswith("LDG.E.128") for opcode in found) == 2 * chunks + 8
    assert not any(opcode.startswith(("MUFU.SIN", "MUFU.COS")) for opcode in found)
    assert_no_local_memory(text, target, tmp_path)
