"""The compiled kernels: wide loads, native conversions, and whole rows in registers."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest
from compiled_kernels import (
    CUOBJDUMP,
    NVDISASM,
    assert_no_local_memory,
    assert_wide_loads,
    compiled,
    listing_of,
    local_memory_of,
    opcodes,
)
from inputs import in_turn
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.row_schedule import RowSchedule
from jitnorm.kernels.target import Target

from jitnorm.toolchains.nvrtc import Nvrtc

HIDDEN_SIZES = (64, 384, 2048, 4096, 7168, 8192, 16384, 32768, 65536)
QUANTS = ("none", "e2m1/16/e4m3", "e2m1/32/ue8m0")
# Rows of one warp, of a few warps, of as many as a block has.
FEW_SIZES = (384, 4096, 65536)
# Dtypes make no difference to the encodings, so beside others these take turns.
ROWS = [
    *(("input=bfloat16,weight=bfloat16", size, quant) for size in HIDDEN_SIZES for quant in QUANTS),
    *(
        (types, size, quant)
        for types in ("input=float16,weight=float16", "input=bfloat16,weight=float32")
        for size, quant in zip(FEW_SIZES, QUANTS, strict=True)
    ),
]

pytestmark = pytest.mark.skipif(
    NVDISASM is None or CUOBJDUMP is None,
    reason="nvdisasm or cuobjdump is missing: pip install nvidia-cuda-nvdisasm nvidia-cuda-cuobjdump",
)


RESIDENT = (
    "layernorm:hidden_size=4096,schedule=8x1wuqko3",
    "layernorm:hidden_size=2432,quant=e4m3/tensor/f32,schedule=5x1wuqkr2o3",
    "rmsnorm:hidden_size=4096,quant=e2m1/16/e4m3,schedule=4x2wuqko5",
)


@pytest.mark.parametrize("text", RESIDENT)
def test_resident_blocks_have_registers_for_parameters_and_the_next_rows(text: str, tmp_path: Path) -> None:
    """Loads for all rows, before the loop, and for each row, before it begins and within it."""
    config = KernelConfig.parse(text)
    schedule = RowSchedule.parse(config.schedule)
    parameters = schedule.chunks_per_lane * (8 if config.op == "layernorm" else 2)  # accesses of 16 bytes
    rows = schedule.chunks_per_lane * schedule.rows_at_once * 2
    loads = [each for each in opcodes(text, "sm_90a", tmp_path) if each.startswith("LDG.E.128")]
    assert len(loads) == parameters + 2 * rows
    assert_no_local_memory(text, "sm_90a", tmp_path)


FAMILY = (
    "residual=true",
    "residual=true,unit_bias=true",
    "residual=true,quant=e2m1/16/e4m3/linear/given",
    "residual=true,keep_norm=true,quant=e2m1/16/e4m3/linear+128x4",
    "residual=true,quant=e4m3/tensor/f32",
    "quant=e4m3/tensor/f32",
    "quant=e5m2/row/f32",
    "quant=e4m3/128/f32/column4",
    "quant=e4m3/32/ue8m0/128x4",
    "quant=e2m1/16/e4m3/128x4/row",
    "input=float32,quant=e2m1/16/e4m3",
)


@pytest.mark.parametrize(("options", "hidden_size"), [*product(FAMILY, [8192]), *in_turn(FAMILY, [65536, 262144])])
def test_on_hopper_every_op_loads_wide_and_spills_nothing(options: str, hidden_size: int, tmp_path: Path) -> None:
    text = f"rmsnorm:hidden_size={hidden_size},{options}"
    assert_wide_loads(text, "sm_90a")
    assert_no_local_memory(text, "sm_90a", tmp_path)


@pytest.mark.parametrize(("dtypes", "hidden_size", "quant"), ROWS)
def test_on_hopper_a_row_is_loaded_wide_and_stays_in_registers(
    dtypes: str, hidden_size: int, quant: str, tmp_path: Path
) -> None:
    text = f"rmsnorm:hidden_size={hidden_size},{dtypes},quant={quant}"
    assert_wide_loads(text, "sm_90a")
    assert_no_local_memory(text, "sm_90a", tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "rmsnorm:hidden_size=384,quant=e2m1/16/e4m3/128x4/given",
        "rmsnorm:hidden_size=768,quant=e2m1/16/e4m3/linear/row,activation=silu",
        "quantize:hidden_size=640,weight=none,gate_columns=640,activation=gelu,quant=e2m1/16/e4m3",
        "quantize:hidden_size=912,quant=e4m3/column/f32/linear/given",
    ],
)
def test_on_hopper_many_short_rows_stay_in_registers(text: str, tmp_path: Path) -> None:
    assert_wide_loads(f"{text},many_rows=true", "sm_90a")
    assert_no_local_memory(f"{text},many_rows=true", "sm_90a", tmp_path)


FAST_PATH = (
    "rmsnorm:hidden_size=7168,schedule=14x1wuql",
    "rmsnorm:hidden_size=8192,pdl=true,schedule=8x2wuqd",
    "rmsnorm:hidden_size=7168,unit_bias=true,residual=true,schedule=14x1wql",
    "rmsnorm:hidden_size=4096,quant=e2m1/16/e4m3/128x4/given,schedule=8x1wuql",
    "rmsnorm:hidden_size=7168,residual=true,quant=e4m3/row/f32,schedule=7x2wq",
    "rmsnorm:hidden_size=4096,pdl=true,residual=true,quant=e4m3/128/f32,schedule=8x1weql",
    "layernorm:hidden_size=4096,schedule=4x2wuql",
    "rmsnorm:hidden_size=8192,pdl=true,schedule=16x1wuqldh",
    "rmsnorm:hidden_size=7168,residual=true,pdl=true,schedule=14x1wqlh",
    "rmsnorm:hidden_size=27136,residual=true,pdl=true,schedule=27x2wqh",
    "layernorm:hidden_size=4096,schedule=4x2uqhr2",
)


@pytest.mark.parametrize("text", FAST_PATH)
def test_on_hopper_the_fast_path_of_few_rows_spills_nothing(text: str, tmp_path: Path) -> None:
    assert_no_local_memory(text, "sm_90a", tmp_path)


def test_on_hopper_few_short_rows_signal_dependents_as_soon_as_threads_have_met(tmp_path: Path) -> None:
    found = opcodes("rmsnorm:hidden_size=3584,pdl=true,schedule=7x1wuqld", "sm_90a", tmp_path)
    at_once, late = (place for place, opcode in enumerate(found) if opcode == "PREEXIT")
    barrier = next(place for place, opcode in enumerate(found) if opcode.startswith("BAR.SYNC"))
    assert at_once < barrier < late < next(place for place, opcode in enumerate(found) if opcode.startswith("MUFU"))


def test_on_hopper_few_longer_rows_signal_dependents_once_values_are_computed(tmp_path: Path) -> None:
    found = opcodes("rmsnorm:hidden_size=4096,pdl=true,schedule=8x1wuqld", "sm_90a", tmp_path)
    late = max(place for place, opcode in enumerate(found) if opcode == "PREEXIT")
    root = next(place for place, opcode in enumerate(found) if opcode.startswith("MUFU.RSQ"))
    assert root < late < max(place for place, opcode in enumerate(found) if opcode.startswith("STG"))


@pytest.mark.parametrize("schedule", ["8x1wuqd", "4x2wuqd"])
def test_on_hopper_many_rows_signal_dependents_once_stored(schedule: str, tmp_path: Path) -> None:
    found = opcodes(f"rmsnorm:hidden_size=4096,pdl=true,schedule={schedule}", "sm_90a", tmp_path)
    signal = max(place for place, opcode in enumerate(found) if opcode == "PREEXIT")
    assert max(place for place, opcode in enumerate(found) if opcode.startswith("STG")) < signal


@pytest.mark.parametrize(
    "text", ["rmsnorm:hidden_size=18432,pdl=true,schedule=40x1wuqlb8", "layernorm:hidden_size=18432,schedule=36x1qhb4"]
)
def test_on_hopper_blocks_of_a_cluster_send_sums_and_wait_for_no_memory(text: str, tmp_path: Path) -> None:
    found = opcodes(text, "sm_90a", tmp_path)
    loads = [place for place, opcode in enumerate(found) if opcode.startswith("LDG")]
    assert any(opcode.startswith("STAS") for opcode in found[loads[0] :])
    assert not any(opcode.startswith(("MEMBAR", "CCTL.IVALL", "UCGABAR")) for opcode in found[loads[0] :])


GRADIENTS = (
    *(f"layernorm:hidden_size={size},backward=true" for size in (4096, 8192, 12288, 13312, 16384)),
    "layernorm:hidden_size=12288,backward=true,residual=true",
    "rmsnorm:hidden_size=16384,backward=true,residual=true",
    "rmsnorm:hidden_size=16384,backward=true,bias=true",
    "rmsnorm:hidden_size=18304,backward=true,residual=true,pdl=true",
    "rmsnorm:hidden_size=32768,backward=true,pdl=true",
)


@pytest.mark.parametrize("text", GRADIENTS)
def test_on_hopper_gradients_copy_ahead_wide_and_spill_nothing(text: str, tmp_path: Path) -> None:
    assert re.search(r"\bcp\.async\.cg\.shared\.global \[[^]]+\], \[[^]]+\], 16,", compiled(text, "sm_90a")[0])
    assert_no_local_memory(text, "sm_90a", tmp_path)


def test_on_hopper_sums_of_segments_are_loaded_wide_and_spill_nothing(tmp_path: Path) -> None:
    text = "sum_rows:hidden_size=4096,input=float32,bias=true"
    assert_wide_loads(text, "sm_90a")
    assert_no_local_memory(text, "sm_90a", tmp_path)


# Blocks of three and six chunks, which share the magnitudes of these.
CROSSING = (
    ("rmsnorm:hidden_size=6144,residual=true,quant=e4m3/48/f32", "sm_90a"),
    ("layernorm:hidden_size=12288,many_rows=true,quant=e4m3/96/f32", "sm_100a"),
    ("quantize:hidden_size=72000,quant=int8/96/f32", "sm_80"),
)


@pytest.mark.parametrize(("text", "target_name"), CROSSING)
def test_rows_of_blocks_that_cross_warps_are_loaded_wide_and_spill_nothing(
    text: str, target_name: str, tmp_path: Path
) -> None:
    assert_wide_loads(text, target_name)
    assert_no_local_memory(text, target_name, tmp_path)


RANKS = (
    ("rmsnorm:hidden_size=7168,residual=true,all_reduce=one_shot,ranks=2,pdl=true", "sm_90a"),
    ("rmsnorm:hidden_size=8192,residual=true,quant=e2m1/16/e4m3/128x4/given,all_reduce=one_shot,ranks=4", "sm_100a"),
    ("rmsnorm:hidden_size=7168,residual=true,quant=e4m3/row/f32,all_reduce=two_shot,ranks=2", "sm_90a"),
    ("layernorm:hidden_size=4096,all_reduce=two_shot,ranks=8", "sm_80"),
    ("quantize:hidden_size=7168,all_reduce=two_shot,ranks=2,pdl=true", "sm_90a"),
    ("layernorm:hidden_size=4096,quant=e4m3/32/ue8m0,all_reduce=two_shot,ranks=2,rounds_sum=true", "sm_90a"),
    ("rmsnorm:hidden_size=384,residual=true,quant=e2m1/16/e4m3,all_reduce=two_shot,ranks=2,rounds_sum=true", "sm_90a"),
    ("rmsnorm:hidden_size=7168,residual=true,quant=e4m3/row/f32,all_reduce=one_shot_scatter,ranks=4", "sm_90a"),
    ("rmsnorm:hidden_size=8192,residual=true,quant=e2m1/16/e4m3/128x4,all_reduce=one_shot_scatter,ranks=4", "sm_100a"),
    ("rmsnorm:hidden_size=7168,residual=true,quant=e4m3/row/f32,all_reduce=reduce_scatter,ranks=8", "sm_90a"),
    ("rmsnorm:hidden_size=8192,residual=true,quant=e2m1/16/e4m3/128x4,all_reduce=reduce_scatter,ranks=4", "sm_100a"),
    ("layernorm:hidden_size=384,all_reduce=reduce_scatter,ranks=2,rounds_sum=true", "sm_80"),
    ("rmsnorm:hidden_size=7168,residual=true,quant=e4m3/row/f32,all_reduce=all_gather,ranks=8", "sm_90a"),
    ("rmsnorm:hidden_size=8192,keep_norm=true,quant=e2m1/16/e4m3/128x4,all_reduce=all_gather,ranks=4", "sm_100a"),
    ("layernorm:hidden_size=384,all_reduce=all_gather,ranks=2", "sm_80"),
)


@pytest.mark.parametrize(("text", "target_name"), RANKS)
def test_rows_of_all_ranks_are_moved_wide_and_spill_nothing(text: str, target_name: str, tmp_path: Path) -> None:
    assert_wide_loads(text, target_name)
    assert_no_local_memory(text, target_name, tmp_path)
    if "one_shot" in text:
        ptx = compiled(text, target_name)[0]
        assert "ld.relaxed.sys.global.v4.b32" in ptx
        assert "st.relaxed.sys.global.v4.b32" in ptx


EXPERTS = (
    ("quantize:hidden_size=7168,quant=e2m1/16/e4m3/128x4/given,experts=256,scale_per_matrix=true", "sm_90a"),
    ("quantize:hidden_size=2048,quant=e2m1/32/ue8m0/128x4,gate_columns=-1,experts=256", "sm_80"),
    ("quantize:hidden_size=256,quant=e4m3/32/ue8m0/128x4,experts=8", "sm_100a"),
    ("quantize:hidden_size=7168,quant=e2m1/16/e4m3/128x4/row,gathers=true", "sm_90a"),
    ("quantize:hidden_size=4096,quant=e2m1/16/e4m3/128x4/given,gathers=true,experts=64", "sm_100a"),
)


@pytest.mark.parametrize(("text", "target_name"), EXPERTS)
def test_rows_of_experts_are_loaded_wide_and_stay_in_registers(text: str, target_name: str, tmp_path: Path) -> None:
    assert_wide_loads(text, target_name)
    assert_no_local_memory(text, target_name, tmp_path)


@pytest.mark.parametrize(
    ("text", "target_name"),
    [
        ("rmsnorm:hidden_size=7168,residual=true,weights=3", "sm_80"),
        ("quantize:hidden_size=7168,streams=4,sinkhorn=20,prenorm=true", "sm_90a"),
        (
            "layernorm:hidden_size=3072,residual=true,gate_bias=true,modulated=true,modulation_bias=true,weight=none,"
            "quant=e2m1/16/e4m3/128x4/given,rounding=output",
            "sm_100a",
        ),
    ],
)
def test_rows_of_many_tensors_are_loaded_wide_and_stay_in_registers(
    text: str, target_name: str, tmp_path: Path
) -> None:
    assert any(opcode.startswith("LDG.E.128") for opcode in opcodes(text, target_name, tmp_path))
    assert_no_local_memory(text, target_name, tmp_path)


@pytest.mark.parametrize(
    ("text", "stores"),
    [
        ("dequantize:hidden_size=4096,quant=e2m1/16/e4m3/128x4/given", "v4.u32"),
        ("dequantize:hidden_size=4096,quant=e4m3/32/ue8m0,input=float32", "v4.u32"),
        ("shuffle:hidden_size=4096,input=bfloat16,shuffle_rows=32", "v4.u32"),
        ("interleave:hidden_size=64,input=uint8", "u32"),
        ("quantize:hidden_size=4096,quant=e2m1/16,axis=0", "u8"),
        ("quantize:hidden_size=7168,quant=e4m3/128x128/f32", "v4.u32"),
        ("quantize:hidden_size=200,input=float32,vector_bytes=8,quant=e4m3/128x128/f32_ue8m0", "v2.u32"),
    ],
)
def test_on_hopper_items_are_stored_wide_and_spill_nothing(text: str, stores: str, tmp_path: Path) -> None:
    assert_no_local_memory(text, "sm_90a", tmp_path)
    assert stores in re.findall(r"\bst\.global\.([\w.]*)", compiled(text, "sm_90a")[0])


@pytest.mark.parametrize(
    "text",
    [
        "dequantize:hidden_size=4096,quant=e4m3/row/f32",
        "dequantize:hidden_size=4096,quant=e2m1/16/e4m3",
        "mhc_post:hidden_size=4096,streams=4",
    ],
)
def test_items_of_rows_with_two_leading_dimensions_are_as_wide_as_with_one(text: str, tmp_path: Path) -> None:
    def accesses(text: str) -> list[str]:
        return sorted(each for each in opcodes(text, "sm_90a", tmp_path) if each.startswith(("LDG", "STG")))

    assert accesses(f"{text},row_dims=2") == accesses(text)


@pytest.mark.parametrize(("target_name", "quant"), in_turn(["sm_100a", "sm_120a", "sm_120f", "sm_100f"], QUANTS[1:]))
def test_on_blackwell_codes_come_from_the_native_conversion(target_name: str, quant: str, tmp_path: Path) -> None:
    text = f"rmsnorm:hidden_size=4096,quant={quant}"
    found = opcodes(text, target_name, tmp_path)
    assert any(opcode.startswith("F2FP") and "E2M1" in opcode for opcode in found)
    assert any(opcode.startswith("LDG") and re.search(r"\.(128|256)\b", opcode) for opcode in found)
    assert_no_local_memory(text, target_name, tmp_path)


def test_narrow_accesses_are_narrow() -> None:
    """A counterexample: the assertion on wide loads can fail."""
    with pytest.raises(AssertionError, match=r"ld\.global"):
        assert_wide_loads("rmsnorm:hidden_size=4096,vector_bytes=8", "sm_90a")


@pytest.mark.parametrize(
    "text", ["rmsnorm:hidden_size=4096,vector_bytes=2", "layernorm:hidden_size=4099,vector_bytes=2"]
)
def test_rows_at_any_address_are_loaded_wide(text: str, tmp_path: Path) -> None:
    assert_wide_loads(text, "sm_90a")
    assert_no_local_memory(text, "sm_90a", tmp_path)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a"])
@pytest.mark.parametrize(
    "text",
    [
        "rmsnorm:hidden_size=4096,vector_bytes=2,residual=true",
        "layernorm:hidden_size=4097,weight=float32,vector_bytes=2",
        "quantize:hidden_size=8188,input=float32,vector_bytes=4,quant=e4m3/row/f32",
        "rmsnorm:hidden_size=4096,vector_bytes=2,backward=true",
    ],
)
def test_rows_at_any_address_are_shifted_in_registers(text: str, target: str, tmp_path: Path) -> None:
    assert_no_local_memory(text, target, tmp_path)


def test_a_kernel_with_too_few_registers_spills(tmp_path: Path) -> None:
    """A counterexample: room for 8 blocks of 256 threads leaves 32 registers for each thread."""
    text = "rmsnorm:hidden_size=4096,schedule=8x1o8,residual=true,quant=e2m1/16/e4m3"
    assert local_memory_of(text, "sm_90a", tmp_path) != "STACK:0 LOCAL:0"


SQUARE_ROOT = """
extern "C" __global__ void root(const float* from, float* to) { to[threadIdx.x] = __fsqrt_rn(from[threadIdx.x]); }
"""
# As in fast_reciprocal_root of common/fast_path.h, for the numbers in its normal range and some more.
ROOT_STEPS = (
    r"MUFU\.RSQ (?P<r>\w+), (?P<a>\w+)",
    r"ISETP\.GT\.U32\.AND P0, PT, \w+, 0x727fffff, PT",
    r"FMUL\.FTZ (?P<near>\w+), (?P=a), (?P=r)",
    r"FMUL\.FTZ (?P<half>\w+), (?P=r), 0\.5",
    r"FFMA (?P<rest>\w+), -(?P=near), (?P=near), (?P=a)",
    r"FFMA \w+, (?P=rest), (?P=half), (?P=near)",
)


@pytest.mark.parametrize("target_name", ["sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a"])
def test_the_exact_square_root_of_a_number_in_the_normal_range_takes_the_same_steps_everywhere(
    target_name: str, tmp_path: Path
) -> None:
    listing = listing_of(Nvrtc().compile(SQUARE_ROOT, Target(target_name)), tmp_path)
    found = re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?\w+\s+)?((?:MUFU|FMUL|FFMA|ISETP)\S* .*?) ;", listing)
    first = next(i for i, instruction in enumerate(found) if instruction.startswith("MUFU.RSQ"))
    steps = " ; ".join(
        re.sub(r"\s+", " ", each).replace(".reuse", "") for each in found[first : first + len(ROOT_STEPS)]
    )
    assert re.fullmatch(" ; ".join(ROOT_STEPS), steps), steps


@pytest.mark.parametrize("quant", ["none", "e2m1/16/e4m3"])
@pytest.mark.parametrize("schedule", ["11x1wq", "6x2wq"])
def test_a_sum_with_a_norm_waits_for_no_weight(quant: str, schedule: str, tmp_path: Path) -> None:
    """That of the first norm is requested before the first sum is known, that of the second before the second."""
    chunks = RowSchedule.parse(schedule).chunks_per_lane

    def loads_by_barriers(schedule: str) -> list[int]:
        text = f"rmsnorm:hidden_size=5376,residual=true,sandwich=true,quant={quant},schedule={schedule}"
        assert_no_local_memory(text, "sm_90a", tmp_path)
        kinds = [opcode[:3] for opcode in opcodes(text, "sm_90a", tmp_path)]
        parts = " ".join(kinds).split("BAR")
        return [part.count("LDG") for part in parts]

    assert loads_by_barriers(schedule) == [6 * chunks, 2 * chunks, 0]  # the row and a weight, the other weight
    assert loads_by_barriers(schedule.replace("w", "")) == [4 * chunks, 2 * chunks, 2 * chunks]
