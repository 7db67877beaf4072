"""The fastest schedule is chosen if it gains enough and loses nowhere, with few measurements of the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from jitnorm.tune.choose import Choice, Times, choose


def chosen(times: dict[str, Times]) -> Choice:
    return choose([each for each in times if each], lambda schedule: times[schedule])


def test_the_fastest_is_chosen() -> None:
    choice = chosen({"": (10.0, 20.0), "4x2": (9.0, 18.0), "2x4": (8.0, 16.0), "8x1": (11.0, 22.0)})
    assert (choice.schedule, choice.by_rule, choice.best) == ("2x4", (10.0, 20.0), (8.0, 16.0))
    assert abs(choice.gain - 0.2) < 1e-9
    assert set(choice.times) == {"", "4x2", "2x4", "8x1"}


def test_the_rules_schedule_stays_unless_another_gains_one_and_a_half_percent() -> None:
    assert chosen({"": (10.0,), "4x2": (9.9,)}).schedule == ""
    assert chosen({"": (10.0,), "4x2": (9.8,)}).schedule == "4x2"
    assert chosen({"": (10.0,)}).gain == 0


def test_what_loses_somewhere_is_not_chosen() -> None:
    choice = chosen({"": (10.0, 10.0), "4x2": (5.0, 10.4), "2x4": (9.5, 9.5)})
    assert choice.schedule == "2x4"
    assert chosen({"": (10.0, 10.0), "4x2": (9.6, 10.05)}).schedule == "4x2"


def test_half_of_the_mean_gain_may_be_lost_in_one_place() -> None:
    rule = (10.0, 10.0, 10.0)
    assert chosen({"": rule, "8x1": (9.4, 9.4, 10.12)}).schedule == "8x1"
    assert chosen({"": rule, "8x1": (9.7, 9.7, 10.2)}).schedule == ""
    assert chosen({"": rule, "8x1": (5.0, 5.0, 10.31)}).schedule == ""


def test_what_loses_somewhere_does_not_hide_what_gains_everywhere() -> None:
    choice = chosen({"": (10.0, 10.0), "4x2": (5.0, 11.0), "2x4": (9.0, 9.0)})
    assert choice.schedule == "2x4"


def counted(times: dict[str, Times]) -> tuple[Counter[str], Callable[[str], Times]]:
    counts: Counter[str] = Counter()

    def measure(schedule: str) -> Times:
        counts[schedule] += 1
        return times[schedule]

    return counts, measure


def test_only_what_is_near_the_fastest_is_measured_again() -> None:
    counts, measure = counted({"": (10.0,), "4x2": (9.0,), "2x4": (9.1,), "8x1": (9.9,)})
    choose(["4x2", "2x4", "8x1"], measure)
    assert counts == {"": 3, "4x2": 3, "2x4": 3, "8x1": 1}


def test_what_seems_to_lose_a_little_in_one_place_is_measured_again() -> None:
    rule = iter([(10.0, 10.0, 9.3), (10.0, 10.0, 10.0), (10.0, 10.0, 10.0)])
    choice = choose(["8x1"], lambda schedule: (9.3, 9.5, 9.5) if schedule else next(rule))
    assert choice.schedule == "8x1"


def test_nothing_is_measured_again_where_nothing_gains() -> None:
    counts, measure = counted({"": (10.0,), "4x2": (9.95,), "2x4": (12.0,)})
    choose(["4x2", "2x4"], measure)
    assert set(counts.values()) == {1}


def test_one_lucky_measurement_is_not_enough() -> None:
    lucky = iter([(5.0,), (10.0,), (10.0,)])
    assert choose(["4x2"], lambda schedule: next(lucky) if schedule else (10.0,)).schedule == ""
