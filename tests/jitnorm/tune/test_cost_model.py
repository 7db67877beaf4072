"""What schedules cost is predicted from what alike ones cost alike kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product

import numpy as np
import pytest
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.row_classes import ROW_CLASSES
from jitnorm.kernels.target import Target

from jitnorm.fitted_forms import BY_RULE
from jitnorm.tune.cost_model import Choices, CostModel, Floats
from jitnorm.tune.samples import Sample, key_of, schedules_of

HOPPER = Target("sm_90a")
FORMS = [f"{chunks}{options}" for chunks, options in product((1, 2, 3), ("", "w", "u", "q", "wu", "wq", "uq", "wuq"))]
MEASURED = range(6, 60, 3)


def norm(groups: int, **fields: object) -> KernelConfig:
    return KernelConfig("rmsnorm", 512 * groups - 16, **fields)


def samples(
    cost: Callable[[str], float],
    row_class: str = "usual",
    groups: Iterable[int] = MEASURED,
    **fields: object,
) -> list[Sample]:
    """Measured norms of several lengths, with a cost of each form that fits."""
    found = []
    for config in (norm(each, **fields) for each in groups):
        schedules = schedules_of(config, FORMS, HOPPER)
        regrets = {each: cost(form) for form, each in zip(FORMS, schedules, strict=True) if each is not None}
        found.append(Sample("", "rmsnorm", config, row_class, "", regrets))
    return found


def predicted(model: CostModel, config: KernelConfig, *forms: str, row_class: str = "usual") -> Floats:
    """What forms cost a kernel."""
    choices = Choices.of([config], [schedules_of(config, forms, HOPPER)], HOPPER)
    return model.costs(choices, key_of(config), row_class)[0]


def cost_of_late_weights(form: str) -> float:
    return 0.0 if "w" in form else 0.2


def test_the_cost_of_an_option_is_recovered_at_lengths_that_were_not_measured() -> None:
    model = CostModel(samples(cost_of_late_weights), HOPPER)
    assert set(MEASURED).isdisjoint((10, 20, 40))
    for groups in (10, 20, 40):
        assert predicted(model, norm(groups), "1wq", "1q") == pytest.approx([0.0, 0.2], abs=0.02)


def test_a_kernel_without_samples_costs_what_alike_ones_do() -> None:
    """A norm with a residual and a float32 weight costs what one with a residual does, not one without."""
    plain = samples(lambda form: 0.2 - cost_of_late_weights(form))
    added = samples(cost_of_late_weights, residual=True)
    unknown = {residual: norm(10, weight="float32", residual=residual) for residual in (False, True)}
    for measured in ([*plain, *added], [*added, *plain]):
        model = CostModel(measured, HOPPER)
        assert {key_of(sample.config) for sample in measured}.isdisjoint(map(key_of, unknown.values()))
        assert predicted(model, unknown[False], "1wq", "1q") == pytest.approx([0.2, 0.0], abs=0.03)
        assert predicted(model, unknown[True], "1wq", "1q") == pytest.approx([0.0, 0.2], abs=0.03)


def test_classes_of_rows_have_costs_of_their_own() -> None:
    few, many = samples(cost_of_late_weights, "few"), samples(lambda form: 0.2 - cost_of_late_weights(form), "many")
    model = CostModel([*few, *many], HOPPER)
    found = {row_class: predicted(model, norm(20), "1wq", "1q", row_class=row_class) for row_class in ("few", "many")}
    assert found["few"] == pytest.approx([0.0, 0.2], abs=0.03)
    assert found["many"] == pytest.approx([0.2, 0.0], abs=0.03)


def test_costs_above_half_count_as_that() -> None:
    model = CostModel(samples(lambda form: 0.0 if "w" in form else 100.0), HOPPER)
    assert predicted(model, norm(20), "1q") == pytest.approx([0.49], abs=0.03)


def test_costs_are_finite_where_there_is_a_schedule_and_infinite_elsewhere() -> None:
    """Also the rules' schedule of a row so long that it is loaded anew in each pass, and in classes without samples."""
    model = CostModel(samples(cost_of_late_weights), HOPPER)
    for row_class in ROW_CLASSES:
        found = predicted(model, KernelConfig("rmsnorm", 262144), "1", BY_RULE, row_class=row_class)
        assert np.isfinite(found).tolist() == [False, True]


def test_without_samples_nothing_costs_anything() -> None:
    assert predicted(CostModel([], HOPPER), norm(9), "1", "2w", "1/8b2").tolist() == [0.0, 0.0, np.inf]


def test_the_choices_of_several_lengths_are_predicted_as_those_of_each() -> None:
    model = CostModel(samples(cost_of_late_weights), HOPPER)
    configs = [norm(9), norm(10), KernelConfig("rmsnorm", 5120)]
    grid = [schedules_of(each, FORMS, HOPPER) for each in configs]
    together = model.costs(Choices.of(configs, grid, HOPPER), key_of(configs[0]), "usual")
    assert together.tolist() == [predicted(model, each, *FORMS).tolist() for each in configs]


def test_models_of_the_same_samples_predict_the_same() -> None:
    measured = samples(cost_of_late_weights)
    one, other = (predicted(CostModel(measured, HOPPER), norm(20), *FORMS) for _ in range(2))
    assert one.tolist() == other.tolist()


def test_a_kernel_that_does_other_work_than_all_measured_ones_has_finite_costs() -> None:
    model = CostModel(samples(cost_of_late_weights), HOPPER)
    assert np.isfinite(predicted(model, KernelConfig("layernorm", 5120), "1wq", "1q")).all()
