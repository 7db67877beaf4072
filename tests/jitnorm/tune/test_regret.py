"""What calls at drawn lengths lose to the fastest schedule."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.row_classes import ROW_CLASSES, class_of
from jitnorm.kernels.target import Target

from jitnorm.tune.cases import OPS, Case
from jitnorm.tune.regret import chosen, configs_of, draw, regrets

HOPPER = Target("sm_90a")


@dataclass(frozen=True)
class ByText:
    """A meter by which one schedule takes half the time of all others."""

    case: Case
    fast: str

    def time(self, config: KernelConfig) -> tuple[float, ...]:
        return tuple(rows * (1.0 if config.schedule == self.fast else 2.0) for rows in self.case.rows)

    def copy(self) -> tuple[float, ...]:
        raise NotImplementedError

    def is_same(self, one: KernelConfig, other: KernelConfig) -> bool:
        raise NotImplementedError


def test_a_seed_draws_the_same_lengths_for_every_op_and_class() -> None:
    cases = draw(OPS, 3, HOPPER)
    assert cases == draw(OPS, 3, HOPPER) != draw(OPS, 4, HOPPER)
    assert {case.op for case in cases} == set(OPS)
    assert {case.row_class for case in cases} == set(ROW_CLASSES)
    for case in cases:
        assert {class_of(rows, case.config.hidden_size) for rows in case.rows} == {case.row_class}


@pytest.mark.parametrize("op", ["rmsnorm", "silu nvfp4"])
def test_what_calls_get_is_measured_too(op: str) -> None:
    for case in draw([op], 5, HOPPER):
        found = [config.schedule for config in configs_of(case, HOPPER)]
        assert {"", chosen(case, HOPPER), *case.schedules} == set(found)
        assert len(found) == len(set(found))


def test_regret_is_the_time_beyond_that_of_the_fastest() -> None:
    (case, *_) = draw(["rmsnorm"], 0, HOPPER)
    other = next(each for each in case.schedules if each != chosen(case, HOPPER))
    (worse,) = regrets([case], HOPPER, lambda case: ByText(case, other))
    assert worse.fastest == other
    assert (worse.by_choice, worse.by_rule) == pytest.approx((1.0, 1.0))
    (best,) = regrets([case], HOPPER, lambda case: ByText(case, chosen(case, HOPPER)))
    assert (best.fastest, best.by_choice) == (chosen(case, HOPPER), 0.0)
