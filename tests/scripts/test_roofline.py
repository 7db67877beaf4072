"""Properties of the model: it never beats a copy, and more work never takes less time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from roofline import BUSY_SHARE, GPUS, RATES, Gpu, copy_time, predict

Counts = dict[str, float]

per_element = st.fixed_dictionaries({name: st.floats(0, 100) for name in RATES})
gpus = st.sampled_from(sorted(GPUS.values(), key=lambda gpu: gpu.name))
elements = st.integers(1, 1 << 32)
microseconds = st.floats(1e-3, 1e6)


@given(per_element, elements, microseconds, gpus)
def test_no_op_is_faster_than_a_copy_of_its_bytes(counts: Counts, number: int, copy: float, gpu: Gpu) -> None:
    found = predict(counts, number, copy, gpu)
    assert found.time >= copy
    assert 0 < found.roofline <= 1
    assert (found.limit == "memory") == (found.roofline == 1)


@given(per_element, elements, microseconds, gpus, st.sampled_from(sorted(RATES)), st.floats(0, 100))
def test_more_instructions_never_take_less_time(
    counts: Counts, number: int, copy: float, gpu: Gpu, name: str, more: float
) -> None:
    grown = {**counts, name: counts[name] + more}
    assert predict(grown, number, copy, gpu).time >= predict(counts, number, copy, gpu).time


@given(per_element, elements, microseconds, gpus)
def test_twice_the_elements_take_twice_the_instructions(counts: Counts, number: int, copy: float, gpu: Gpu) -> None:
    once, twice = predict(counts, number, copy, gpu), predict(counts, 2 * number, copy, gpu)
    assert twice.instructions == pytest.approx(2 * once.instructions)


@pytest.mark.parametrize("name", RATES)
def test_an_op_of_one_pipe_takes_as_long_as_the_pipe(name: str) -> None:
    gpu = GPUS["H200"]
    a_second = RATES[name] * gpu.multiprocessors * gpu.hertz * BUSY_SHARE
    found = predict({name: 1.0}, a_second, 1.0, gpu)
    assert found.limit == name
    assert found.time == pytest.approx(1e6)


@given(st.floats(1, 1e12), gpus)
def test_a_copy_takes_longer_than_the_stated_bandwidth_allows(op_bytes: float, gpu: Gpu) -> None:
    assert copy_time(op_bytes, gpu) > op_bytes / gpu.bandwidth * 1e6
