from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.cute.recipe import cute_recipe
from jitnorm.kernels.cute.schedule import cute_schedule, for_many_rows
from jitnorm.kernels.launch_recipe import launch_recipe
from jitnorm.kernels.target import TARGET_NAMES, Target

HOPPER = Target("sm_90a")


def test_rows_in_registers_are_launched_as_those_of_cuda_cxx() -> None:
    config = KernelConfig("rmsnorm", 4096)
    ours, others = cute_recipe(config, HOPPER), launch_recipe(config, HOPPER)
    assert ours.pop("entry") != others.pop("entry")
    assert ours == others


@pytest.mark.parametrize(
    ("text", "target", "is_pipelined"),
    [
        ("rmsnorm:hidden_size=4096", "sm_90a", False),
        ("rmsnorm:hidden_size=16384,residual=true", "sm_90a", False),
        ("rmsnorm:hidden_size=16384,residual=true,many_rows=true", "sm_90a", True),
        ("rmsnorm:hidden_size=16384,residual=true,many_rows=true", "sm_120a", True),
        ("rmsnorm:hidden_size=16384,residual=true,many_rows=true", "sm_80", False),
        ("rmsnorm:hidden_size=16384,residual=true,many_rows=true,vector_bytes=8", "sm_90a", False),
        ("rmsnorm:hidden_size=8192,residual=true,many_rows=true", "sm_90a", False),
        ("rmsnorm:hidden_size=16384,many_rows=true", "sm_90a", False),
        ("rmsnorm:hidden_size=131072", "sm_90a", True),
        ("rmsnorm:hidden_size=131072", "sm_80", False),
    ],
)
def test_long_rows_and_very_many_are_pipelined_where_that_pays_and_blocks_can_copy(
    text: str, target: str, is_pipelined: bool
) -> None:
    _, pipeline = cute_schedule(KernelConfig.parse(text), Target(target))
    assert (pipeline is not None) == is_pipelined


@settings(deadline=None)
@given(
    hidden_size=st.integers(1, 262144),
    dtype=st.sampled_from(["bfloat16", "float32"]),
    residual=st.booleans(),
    many_rows=st.booleans(),
    target=st.sampled_from(TARGET_NAMES[1:]),
)
def test_a_row_has_room_in_registers_and_in_shared_memory(
    hidden_size: int, dtype: str, residual: bool, many_rows: bool, target: str
) -> None:
    config = KernelConfig("rmsnorm", hidden_size, dtype, residual=residual, many_rows=many_rows)
    schedule, pipeline = cute_schedule(config, Target(target))
    assert schedule.threads <= 512
    assert schedule.threads_per_row * schedule.chunks_per_lane * 16 >= hidden_size
    if pipeline is None:
        return
    assert pipeline.stages >= 2
    assert schedule.holds_row
    assert schedule.chunks_per_lane * 16 * (4 if residual or dtype == "float32" else 2) <= 256
    most = 99 << 10 if target in ("sm_120a", "sm_121a", "sm_120f") else 227 << 10
    statics = 10 << 10  # sums, at most
    assert pipeline.shared_bytes + statics <= most
    recipe = cute_recipe(config, Target(target))
    assert recipe["shared_bytes"] == pipeline.shared_bytes
    assert recipe["cluster"] == schedule.blocks_per_row


def test_very_many_rows_get_kernels_of_their_own_where_these_are_divided_otherwise() -> None:
    for hidden_size, has_own in ((2048, False), (4096, False), (32768, True), (131072, False)):
        assert for_many_rows(KernelConfig("rmsnorm", hidden_size, residual=True), HOPPER).many_rows == has_own
    assert not for_many_rows(KernelConfig("rmsnorm", 32768, residual=True), Target("sm_80")).many_rows
