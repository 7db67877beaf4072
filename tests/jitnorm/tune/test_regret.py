"""What calls at drawn lengths lose to the fastest schedule."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from itertools import islice

import pytest
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.row_classes import ROW_CLASSES, class_of, classes_of
from jitnorm.kernels.target import Target

from jitnorm.tune import regret
from jitnorm.tune.cases import OPS, Case
from jitnorm.tune.regret import Regret, cases_of, chosen, configs_of, draw, regrets, shuffled, with_neighbours

HOPPER = Target("sm_90a")


@dataclass
class ByText:
    """A meter by which all schedules but one take 1.9 times its time; one cannot run, and one is delayed if first."""

    case: Case
    fast: str
    broken: str = "none"
    delayed: str = "none"
    measured: list[str] = field(default_factory=list)

    def time(self, config: KernelConfig) -> tuple[float, ...]:
        self.measured.append(config.schedule)
        if config.schedule == self.broken:
            raise RuntimeError("too many registers")
        delay = 1e4 if self.measured == [self.delayed] else 0.0
        return tuple(delay + rows * (1.0 if config.schedule == self.fast else 1.9) for rows in self.case.rows)

    def copy(self) -> tuple[float, ...]:
        raise NotImplementedError

    def is_same(self, one: KernelConfig, other: KernelConfig) -> bool:
        raise NotImplementedError


def measured(case: Case, meter: ByText) -> tuple[list[Regret], list[str]]:
    """What is found for a case, and what is left out."""
    left_out: list[str] = []
    return list(regrets([case], HOPPER, lambda case: meter, left_out.append)), left_out


def usual_case() -> Case:
    """RMSNorm of usual rows."""
    return next(each for each in cases_of("rmsnorm", 5392, HOPPER) if each.row_class == "usual")


def test_a_seed_draws_the_same_lengths_for_every_op_in_turns() -> None:
    drawn = list(islice(draw(OPS, 3), 6 * len(OPS)))
    assert drawn == list(islice(draw(OPS, 3), 6 * len(OPS))) != list(islice(draw(OPS, 4), 6 * len(OPS)))
    assert [op for op, _ in drawn] == [*OPS] * 6


def test_given_lengths_come_once_for_every_op_that_takes_them() -> None:
    found = list(shuffled(["rmsnorm", "add mxfp4"], [2880, 5008, 7168], 3))
    assert sorted(size for op, size in found if op == "rmsnorm") == [2880, 5008, 7168]
    assert sorted(size for op, size in found if op == "add mxfp4") == [2880, 7168]  # in blocks of 32


def test_lengths_are_spread_over_the_whole_range_evenly_and_in_proportion() -> None:
    numbers = draw(OPS, 5)
    for share_of_long in (0.5, 0.17):
        of_round = sorted(size for _, size in islice(numbers, len(OPS)))
        assert 512 < of_round[0] < 2048
        assert 29000 < of_round[-1] <= 32768
        assert sum(size > 16384 for size in of_round) / len(OPS) == pytest.approx(share_of_long, abs=0.06)


def test_lengths_are_multiples_of_a_step_and_of_the_blocks_of_an_op() -> None:
    assert {size % 512 for _, size in islice(draw(OPS, 3, 512), 2 * len(OPS))} == {0}
    drawn = list(islice(draw(OPS, 3), 2 * len(OPS)))
    assert {size % 16 for _, size in drawn} == {0}
    assert {size % 128 for op, size in drawn if "128" in op} == {0}


def test_every_drawn_length_has_cases_of_its_classes() -> None:
    for op, size in islice(draw(OPS, 6), 2 * len(OPS)):
        cases = cases_of(op, size, HOPPER)
        assert {case.op for case in cases} == {op}
        assert tuple(case.row_class for case in cases) == classes_of(cases[0].config.hidden_size)
        for case in cases:
            assert {class_of(rows, case.config.hidden_size) for rows in case.rows} == {case.row_class}


@pytest.mark.parametrize(
    ("size", "rows"),
    [(640, (8192, 16384, 52428, 209715)), (1536, (16384, 21845, 87381)), (2064, (65027,)), (16384, (8192,))],
)
def test_many_rows_are_2_to_the_27_elements_and_of_short_ones_also_fewer(size: int, rows: tuple[int, ...]) -> None:
    (case,) = (each for each in cases_of("rmsnorm", size, HOPPER) if each.row_class == "many")
    assert case.rows == rows


@pytest.mark.parametrize(("op", "size"), [("rmsnorm", 5392), ("silu nvfp4", 17024)])
def test_what_calls_get_is_measured_too(op: str, size: int) -> None:
    for case in cases_of(op, size, HOPPER):
        found = [config.schedule for config in configs_of(case, HOPPER)]
        assert {"", chosen(case, HOPPER), *case.schedules} == set(found)
        assert len(found) == len(set(found))


def test_neighbours_have_the_schedules_of_the_classes_beside_their_own_between_tuned_rows() -> None:
    cases = {case.row_class: case for case in cases_of("rmsnorm", 5392, HOPPER)}
    for each in with_neighbours([*cases.values()], HOPPER):
        place, tuned = ROW_CLASSES.index(each.row_class), cases[each.row_class]
        beside = {chosen(cases[row_class], HOPPER) for row_class in ROW_CLASSES[max(0, place - 1) : place + 2]}
        assert {*each.schedules} == beside - {""}
        assert {class_of(rows, 5392) for rows in each.rows} == {each.row_class}
        assert each.row_class in ("fewest", "many") or set(each.rows) - set(tuned.rows)


def test_many_rows_are_compared_where_they_are_tuned_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regret, "chosen", lambda case, target: "1x4" if case.row_class == "many" else "2x2")
    cases = [case for case in cases_of("rmsnorm", 2048, HOPPER) if case.row_class == "many"]
    (found,) = with_neighbours(cases, HOPPER)
    assert found.rows == (16384, 20480, 65536)


def test_cases_whose_neighbours_have_the_same_schedule_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = cases_of("rmsnorm", 5392, HOPPER)
    assert with_neighbours(cases, HOPPER)
    monkeypatch.setattr(regret, "chosen", lambda case, target: "11x1wq")
    assert with_neighbours(cases, HOPPER) == []


def test_regret_is_the_time_beyond_that_of_the_fastest() -> None:
    case = usual_case()
    other = next(each for each in case.schedules if each != chosen(case, HOPPER))
    ((worse,), _) = measured(case, ByText(case, other))
    assert worse.fastest == other
    assert (worse.of(worse.schedule), worse.of("")) == pytest.approx((0.9, 0.9))
    ((best,), _) = measured(case, ByText(case, chosen(case, HOPPER)))
    assert (best.fastest, best.of(best.schedule)) == (chosen(case, HOPPER), 0.0)


def test_what_is_near_the_fastest_is_measured_again() -> None:
    case = cases_of("rmsnorm", 5392, HOPPER)[0]
    fast = case.schedules[-1]
    meter = ByText(case, fast)
    measured(case, meter)
    again = {each for each in meter.measured if meter.measured.count(each) == 2}
    assert again == {"", chosen(case, HOPPER), fast}


def test_a_time_that_waited_for_the_host_is_measured_again() -> None:
    case = usual_case()
    meter = ByText(case, case.schedules[-1], delayed="")
    ((found,), _) = measured(case, meter)
    assert meter.measured[0] == ""
    assert found.of("") == pytest.approx(0.9)


def test_what_cannot_run_is_left_out_with_the_reason() -> None:
    case = usual_case()
    broken = next(each for each in case.schedules if each != chosen(case, HOPPER))
    ((found,), left_out) = measured(case, ByText(case, case.schedules[-1], broken))
    assert broken not in found.times
    assert left_out == [f"{replace(case.config, schedule=broken)}: too many registers"]
    assert measured(case, ByText(case, broken, broken=""))[0] == []


def test_a_line_of_json_has_all_times() -> None:
    case = usual_case()
    ((found,), _) = measured(case, ByText(case, case.schedules[0]))
    line = json.loads(str(found))
    assert (line["op"], line["row_class"], tuple(line["rows"])) == ("rmsnorm", "usual", case.rows)
    assert KernelConfig.parse(line["config"]) == case.config
    assert line["times"].keys() == {config.schedule for config in configs_of(case, HOPPER)}
    assert line["times"][case.schedules[0]] == list(map(float, case.rows))
