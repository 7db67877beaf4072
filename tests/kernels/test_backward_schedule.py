"""The division of rows among threads and segments by the kernels of gradients."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jitnorm.kernels import backward
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.numerics import CHUNK_SIZE
from jitnorm.kernels.target import TARGET_NAMES, Target

GPUS = [Target(name) for name in TARGET_NAMES if name != "cpu"]
CONFIGS = st.builds(
    lambda norm, hidden_size, dtype: KernelConfig(
        norm[0], hidden_size, input=dtype, weight="float32", backward=True, bias=norm[1]
    ),
    st.sampled_from([("rmsnorm", False), ("rmsnorm", True), ("layernorm", False)]),
    st.integers(1, 4096) | st.integers(1, 16384).map(lambda chunks: CHUNK_SIZE * chunks),
    st.sampled_from(["float16", "bfloat16", "float32"]),
)


@given(CONFIGS, st.sampled_from(GPUS))
def test_every_chunk_has_a_thread(config: KernelConfig, target: Target) -> None:
    schedule = backward.backward_schedule(config, target)
    threads = schedule.threads * schedule.blocks_per_row // schedule.rows_per_block
    assert CHUNK_SIZE * threads * schedule.chunks_per_lane >= config.hidden_size


@given(CONFIGS, st.sampled_from(GPUS))
def test_rows_on_their_way_fit_the_shared_memory_of_every_gpu(config: KernelConfig, target: Target) -> None:
    assert backward.staged_bytes(config, target) <= target.shared_bytes


@given(CONFIGS, st.sampled_from(GPUS))
def test_sums_find_as_many_rows_as_the_kernel_of_the_gradients_writes(config: KernelConfig, target: Target) -> None:
    sums = KernelConfig(
        "sum_rows", config.hidden_size, input="float32", weight=config.weight, bias=config.has_bias,
        sums_of=config.input,
    )  # fmt: skip
    written, blocks = backward.clusters(config, target)
    folded = backward.segments_of_cluster(config, target)
    assert written.evaluate(rows=1 << 30) == backward.summed_rows(sums, target)
    assert backward.summed_rows(sums, target) * folded == backward.most_segments(config.hidden_size)
    if folded > 1:
        assert blocks == folded
        assert backward.shared_sum_bytes(config, target) > 0


@pytest.mark.parametrize(("hidden_size", "rows"), [(64, 64), (128, 32), (1024, 4), (1040, 1), (4096, 1)])
def test_short_rows_are_packed(hidden_size: int, rows: int) -> None:
    assert backward.rows_of_pack(hidden_size) == rows


@pytest.mark.parametrize(("hidden_size", "rows"), [(5632, 2), (5648, 1)])
def test_up_to_eleven_warps_work_on_pairs_of_rows(hidden_size: int, rows: int) -> None:
    config = KernelConfig("rmsnorm", hidden_size, backward=True)
    assert backward.backward_schedule(config, Target("sm_90a")).rows_at_once == rows
