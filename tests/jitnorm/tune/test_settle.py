"""Forms that were measured beside those that jitnorm ships replace them where they gain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.row_classes import ROW_CLASSES
from jitnorm.kernels.target import Target

from jitnorm.fitted_forms import BY_RULE, Forms, form_at
from jitnorm.tune import fit
from jitnorm.tune.cost_model import CostModel
from jitnorm.tune.samples import Sample, schedules_of
from jitnorm.tune.settle import Settling, of_neighbours

HOPPER = Target("sm_90a")
NORM = KernelConfig("rmsnorm", 4096)
KEPT = {(str(NORM), row_class): "2:1w" for row_class in ROW_CLASSES}
CANDIDATES = [{(str(NORM), row_class): "2:2" for row_class in ROW_CLASSES}]


@pytest.fixture(autouse=True)
def _nothing_is_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Growing trees would take most of the time."""
    monkeypatch.setattr(fit, "CostModel", lambda samples, target: CostModel([], target))


def sample(size: int, regrets: Mapping[str, float]) -> Sample:
    """A measured RMSNorm of usual rows: what forms cost it."""
    config = KernelConfig("rmsnorm", size)
    of_forms = zip(schedules_of(config, [*regrets], HOPPER), regrets.values(), strict=True)
    found = {each: regret for each, regret in of_forms if each is not None}
    return Sample("", "rmsnorm", config, "usual", "", found)


def settled(samples: list[Sample], kept: Forms = KEPT, candidates: Sequence[Forms] = CANDIDATES) -> str:
    """The forms of usual rows."""
    found = Settling(samples, HOPPER, kept, candidates).fitted()
    (forms,) = (each.forms for each in found if each.row_class == "usual")
    return forms


def test_the_candidate_replaces_the_shipped_form_where_it_gains() -> None:
    lost = [sample(512 * groups - 16, {"1w": 0.0, "2": 0.1}) for groups in (6, 7, 8)]
    won = [sample(512 * groups - 16, {"1w": 0.1, "2": 0.0}) for groups in (30, 34, 38)]
    found = settled([*lost, *won])
    assert [form_at(groups, found) for groups in (7, 34)] == ["1w", "2"]


def test_of_several_candidates_the_one_that_gains_most_replaces_it() -> None:
    samples = [sample(512 * groups - 16, {"1w": 0.2, "2": 0.1, "3": 0.0}) for groups in (6, 7, 8)]
    whole = [sample(4096, {"1w": 0.2, "2": 0.1, "3": 0.0})]
    others = [dict.fromkeys(KEPT, form) for form in ("2:2", "2:3")]
    for candidates in (others, others[::-1]):
        assert form_at(7, settled(samples, candidates=candidates)) == "3"
        assert form_at(8, settled(whole, candidates=candidates), is_whole=True) == "3"


def test_the_forms_of_neighbouring_classes_are_candidates() -> None:
    kept = {**KEPT, (str(NORM), "several"): "2:2", (str(NORM), "many"): "2:3"}
    for better in ("2", "3"):
        samples = [sample(512 * groups - 16, {"1w": 0.2, "2": 0.1, "3": 0.1, better: 0.0}) for groups in (6, 7, 8)]
        assert form_at(7, settled(samples, kept, of_neighbours(kept))) == better


def test_a_small_gain_replaces_nothing() -> None:
    assert settled([sample(512 * groups - 16, {"1w": 0.01, "2": 0.0}) for groups in (6, 7, 8)]) == "2:1w"


def test_a_form_in_clusters_alone_is_followed_by_the_best_of_the_others() -> None:
    samples = [
        sample(512 * groups - 16, {"1wb4": 0.0, "2": 0.2, "3": 0.1, BY_RULE: 0.3}) for groups in (28, 30, 31, 32)
    ]
    kept = dict.fromkeys(KEPT, "2:3 20:1wb4")
    assert [form_at(groups, settled(samples, kept)) for groups in (10, 30)] == ["3", "1wb4|3"]


def test_a_form_is_not_replaced_by_one_that_was_not_measured_beside_it_for_the_kernel_near_the_length() -> None:
    """Estimates alone would have it replaced: it loses, and nothing is known of the candidate, or only far away."""
    lost = [sample(512 * groups - 16, {"1w": 0.1, "3": 0.0}) for groups in (6, 7, 8)]
    assert settled(lost) == "2:1w"
    apart = [sample(512 * groups - 16, {"2": 0.0}) for groups in (6, 7, 8)]
    assert settled([*lost, *apart]) == "2:1w"
    far = [sample(512 * groups - 16, {"1w": 0.1, "2": 0.0}) for groups in (30, 34)]
    assert [form_at(groups, settled([*lost, *far])) for groups in (7, 32)] == ["1w", "2"]


def test_forms_of_neither_are_not_considered() -> None:
    assert "3" not in settled([sample(512 * groups - 16, {"1w": 0.1, "2": 0.1, "3": 0.0}) for groups in (6, 7, 8)])


@pytest.mark.parametrize(("gain", "form"), [(0.01, "1w"), (0.1, "2")])
def test_rows_of_whole_groups_change_only_where_a_case_at_their_very_length_gains(gain: float, form: str) -> None:
    others = [sample(512 * groups, {"1w": 0.3, "2": 0.0}) for groups in (6, 7, 9, 10)]
    found = settled([*others, sample(4096, {"1w": gain, "2": 0.0})])
    assert [form_at(groups, found, is_whole=True) for groups in (7, 8, 11)] == ["2", form, "1w"]


def test_of_cases_at_a_length_of_whole_groups_none_may_lose() -> None:
    found = settled([sample(4096, {"1w": 0.1, "2": 0.0}), sample(4096, {"1w": 0.0, "2": 0.01})])
    assert form_at(8, found, is_whole=True) == "1w"


def test_a_kernel_that_had_no_forms_has_the_candidates() -> None:
    assert settled([sample(4080, {"1w": 0.0, "2": 0.1})], kept={}) == "2:2"


def test_candidates_must_be_of_all_measured_kernels() -> None:
    other = replace(sample(4080, {"1w": 0.0}), config=KernelConfig("rmsnorm", 4080, residual=True))
    with pytest.raises(
        ValueError, match=r"candidates: rmsnorm.*residual=true.* has no forms for fewest rows; fit them"
    ):
        Settling([other], HOPPER, KEPT, CANDIDATES)


def test_it_is_judged_without_the_cases_at_the_length() -> None:
    """Alone, each would choose its own fastest; by the other, it gets the slower one."""
    found = [sample(4080, {"1w": 0.0, "2": 0.2}), sample(4592, {"1w": 0.2, "2": 0.0})]
    assert Settling(found, HOPPER, KEPT, CANDIDATES).unseen() == [0.2, 0.2]
