"""Fits forms of schedules to samples, so that they serve lengths that nobody measured.

What a form costs at a length is estimated by what it cost the samples, weighted by how near their lengths and how alike
their kernels are, and by what a model predicts. The form with the lowest estimate is chosen. A device with four times
as many samples as another counts twice as much.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from jitnorm.fitted_forms import BY_RULE, MOST_GROUPS, Forms, form_at, has_whole_groups
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.numerics import CHUNK_SIZE, GROUP_CHUNKS
from jitnorm.kernels.registers import groups_of
from jitnorm.kernels.row_classes import ROW_CLASSES
from jitnorm.kernels.schedule_form import ScheduleForm
from jitnorm.kernels.target import Target
from jitnorm.likeness import likeness
from jitnorm.sealed import write_sealed
from jitnorm.tune.cost_model import Choices, CostModel, Floats
from jitnorm.tune.samples import Sample, forms_in, key_of, schedules_of

# Where the ratio of lengths has this logarithm, a sample's weight has fallen to 1 / e.
NEAR = 0.25
# Factors of the weight of a sample: of the very kernel; with as many groups; with as many that are all whole; with
# whole groups where the kernel has a partial one, or the reverse.
_SAME_KERNEL, _SAME_GROUPS, _SAME_LENGTH, _OTHER_ENDS = 4.0, 8.0, 4.0, 0.25
# Each estimate includes `_PRIOR` samples of the cost that a model predicts, so that no form wins by having few
# samples; costs above `_MOST` count as that. At lengths that they were not fitted to, forms lose 1.9 %; in cases where
# both choices were measured, 0.3 % more with six samples of 0.2 instead, 0.5 % more by the model alone.
_PRIOR, _MOST = 3.0, 0.5
_LEAST_WEIGHT = 1e-300  # no sample weighs less
# Forms are considered for a kernel if they were fast for one as alike as this: with one difference in its work or in
# its widths, or two in its format.
_ALIKE = 0.02
# Another form for the next length must gain this much.
_LEAST_GAIN = 0.002
# A form that was fitted to other samples counts as if so many of these, each of which lost so much, were among the
# present ones: few, since both forms are measured before another replaces it (`settle.py`).
_KEPT_SAMPLES, _KEPT_COST = 5.0, 0.015
# What a form must gain to replace one that was fitted to other samples: for rows of at least so many groups; for
# shorter ones, of which the shipped forms know many samples.
_GAIN_OVER_KEPT, _GAIN_OF_SHORT_ROWS, _LONG_GROUPS = 0.005, 0.01, 17
# Forms are judged by models each of which was fitted without one of so many parts of the lengths.
_FOLDS = 5
GROUPS = range(2, MOST_GROUPS + 1)
# The last group of a row is half full, so that rows fit side by side; full but for a block, so that few do; or whole.
_ENDS = ("half", "odd", "whole")


@dataclass(frozen=True)
class Evidence:
    """The samples of a class of rows, as arrays with one row for each.

    Attributes:
        keys: what their kernels have in common with those of other lengths, each once.
        places: the place of each sample's key among these.
        sizes: elements of a row.
        groups: groups of a row.
        is_whole: whether all of these are whole.
        costs: regrets by form; 0 where unknown.
        is_known: 1 where the cost is known, else 0.
        shares: how much each sample counts in a mean, by its device.
    """

    keys: Sequence[KernelConfig]
    places: NDArray[np.int64]
    sizes: NDArray[np.int64]
    groups: NDArray[np.int64]
    is_whole: NDArray[np.bool_]
    costs: Floats
    is_known: Floats
    shares: Floats

    @classmethod
    def of(cls, samples: Sequence[Sample], grid: Sequence[Sequence[str | None]], forms: int) -> Evidence:
        """The evidence of any number of samples, with the schedule of each of so many forms for each."""
        of_device = Counter(sample.device for sample in samples)
        regrets = np.array([
            [np.nan if each is None else sample.regrets.get(each, np.nan) for each in of_sample]
            for sample, of_sample in zip(samples, grid, strict=True)
        ], dtype=np.float64).reshape(len(samples), forms)  # fmt: skip
        keys = [key_of(sample.config) for sample in samples]
        distinct = list(dict.fromkeys(keys))
        place_of = {key: place for place, key in enumerate(distinct)}
        return cls(
            distinct,
            np.array([place_of[key] for key in keys], dtype=np.int64),
            np.array([sample.config.hidden_size for sample in samples], dtype=np.int64),
            np.array([groups_of(sample.config) for sample in samples], dtype=np.int64),
            np.array([has_whole_groups(sample.config.hidden_size) for sample in samples], dtype=np.bool_),
            np.minimum(np.nan_to_num(regrets), _MOST),
            (~np.isnan(regrets)).astype(float),
            np.array(
                [math.sqrt(max(of_device.values()) / of_device[each.device]) for each in samples], dtype=np.float64
            ),
        )

    def weights(self, key: KernelConfig, groups: int, is_whole: bool, left_out: int = 0) -> Floats:
        """How much each sample counts for a kernel, whatever its device.

        Args:
            key: what the kernel has in common with those of other lengths.
            groups: groups of its row.
            is_whole: whether all of these are whole.
            left_out: samples of that kernel with this length do not count.
        """
        near = np.exp(-(((np.log(self.groups) - math.log(groups)) / NEAR) ** 2))
        near *= np.where(self.is_whole == is_whole, 1.0, _OTHER_ENDS)
        same = self.groups == groups
        near *= np.where(same & self.is_whole & is_whole, _SAME_LENGTH, 1.0) * np.where(same, _SAME_GROUPS, 1.0)
        alike = np.array([_SAME_KERNEL if key == each else likeness(key, each) for each in self.keys], dtype=np.float64)
        is_other = np.array([each != key for each in self.keys], dtype=bool)
        return np.array(near * alike[self.places] * (is_other[self.places] | (self.sizes != left_out)))

    def estimates(self, weights: Floats, predicted: Floats, kept: int | None = None) -> Floats:
        """The estimated cost of each form for a kernel, from the predicted ones; infinite where these are.

        A sample of a rare device counts more in the mean cost, but is no more evidence.

        Args:
            weights: how much each sample counts.
            predicted: the cost of each form as predicted by a model.
            kept: the place of the form that was fitted to other samples, if any was.
        """
        shared, count = weights * self.shares, weights @ self.is_known
        mean = shared @ self.costs / np.maximum(shared @ self.is_known, _LEAST_WEIGHT)
        costs, count = count * mean + _PRIOR * predicted, count + _PRIOR
        if kept is not None:
            costs[kept] += _KEPT_SAMPLES * _KEPT_COST
            count[kept] += _KEPT_SAMPLES
        return np.array(costs / count)


@dataclass(frozen=True)
class FittedForms:
    """The forms of the kernels that share a key, in calls of a class of rows.

    Attributes:
        config: the text of the key; see `form_key`.
        row_class: one of `ROW_CLASSES`.
        forms: their text; see `jitnorm.fitted_forms.Forms`.
    """

    config: str
    row_class: str
    forms: str


def write_forms(head: Mapping[str, object], fitted: Iterable[FittedForms], path: Path) -> None:
    """Write a file of forms, and in `head` what they were fitted to."""
    write_sealed(head, map(asdict, fitted), path)


class Fitting:
    """Forms fitted to samples.

    Args:
        samples: of some classes of rows.
        target: what they were measured on.
        kept: forms fitted before, to samples that are not among these.
    """

    def __init__(self, samples: Sequence[Sample], target: Target, kept: Forms = MappingProxyType({})) -> None:
        self._samples, self._target, self._kept = samples, target, kept
        self._keys = [key_of(sample.config) for sample in samples]
        self._considered = {key: self._considered_for(key) for key in dict.fromkeys(self._keys)}
        self._forms = list(dict.fromkeys(form for forms in self._considered.values() for form in forms))
        distinct = dict.fromkeys(sample.config for sample in samples)  # classes of rows have kernels in common
        of_config = {config: schedules_of(config, self._forms, target) for config in distinct}
        self._grid = [of_config[sample.config] for sample in samples]
        self._is_in_block = np.array([
            form == BY_RULE or ScheduleForm.parse(form).options.blocks_per_row == 1 for form in self._forms
        ])  # fmt: skip

    def fitted(self) -> Iterator[FittedForms]:
        """The forms for each of the kernels and classes of rows; where either has no samples, those that are kept."""
        kernels = {
            key: replace(sample.config, many_rows=False) for key, sample in zip(self._keys, self._samples, strict=True)
        }
        model = CostModel(self._samples, self._target)
        choices = {key: self._choices(key, config) for key, config in kernels.items()}
        for row_class in ROW_CLASSES:
            places = self._of_class(row_class)
            evidence = self._evidence(places)
            for key in kernels:
                kept = self._kept.get((str(key), row_class))
                if kept and not places:  # what a model predicts from other classes alone replaces nothing
                    yield FittedForms(str(key), row_class, kept)
                    continue
                predicted = np.split(model.costs(choices[key], key, row_class), len(_ENDS))
                ends = zip(_ENDS, predicted, strict=True)
                half, odd, whole = (self._chosen(evidence, key, row_class, costs, end) for end, costs in ends)
                others, of_whole = _ranges(self._with_others(half, odd, predicted[_ENDS.index("odd")])), _ranges(whole)
                yield FittedForms(str(key), row_class, others if others == of_whole else f"{others}; {of_whole}")
        measured = set(map(str, kernels))
        for (config, row_class), forms in self._kept.items():
            if config not in measured:
                yield FittedForms(config, row_class, forms)

    def unseen(self) -> list[float]:
        """The regret of each sample by forms fitted to all but those of its kernel and length; NaN if not measured."""
        predicted = self._unseen_costs()
        found = [math.nan] * len(self._samples)
        for row_class in ROW_CLASSES:
            places = self._of_class(row_class)
            evidence = self._evidence(places)
            for place in places:
                chosen = self._grid[place][self._unseen_choice(evidence, place, predicted[place])]
                assert chosen is not None
                found[place] = self._samples[place].regrets.get(chosen, math.nan)
        return found

    def _unseen_choice(self, evidence: Evidence, place: int, predicted: Floats) -> int:
        """The place of the form that a sample gets without the samples of its kernel and length."""
        sample, key = self._samples[place], self._keys[place]
        size, groups = sample.config.hidden_size, groups_of(sample.config)
        is_whole = has_whole_groups(size)
        kept = self._kept_form(key, sample.row_class, groups, is_whole, predicted)
        weights = evidence.weights(key, groups, is_whole, left_out=size)
        return _best(evidence.estimates(weights, predicted, kept), kept, _gain(groups))

    def _unseen_costs(self) -> list[Floats]:
        """Cost of each form for each sample, predicted by a model without the samples of its kernel and length."""
        lengths = [(key, each.config.hidden_size) for key, each in zip(self._keys, self._samples, strict=True)]
        fold_of = {length: place % _FOLDS for place, length in enumerate(dict.fromkeys(lengths))}
        models = {
            fold: CostModel(
                [sample for sample, of in zip(self._samples, lengths, strict=True) if fold_of[of] != fold], self._target
            )
            for fold in set(fold_of.values())
        }
        found = []
        for sample, schedules, length in zip(self._samples, self._grid, lengths, strict=True):
            considered = [
                each if form in self._considered[length[0]] else None
                for each, form in zip(schedules, self._forms, strict=True)
            ]
            choices = Choices.of([sample.config], [considered], self._target)
            found.append(models[fold_of[length]].costs(choices, length[0], sample.row_class)[0])
        return found

    def _considered_for(self, key: KernelConfig) -> list[str]:
        """The forms that may be the best of a kernel: those of alike kernels, and those that it was given before."""
        alike = {other: likeness(key, other) > _ALIKE for other in set(self._keys)}
        samples = [sample for sample, other in zip(self._samples, self._keys, strict=True) if alike[other]]
        return forms_in(samples, [text for (config, _), text in self._kept.items() if config == str(key)])

    def _choices(self, key: KernelConfig, config: KernelConfig) -> Choices:
        """A kernel's schedules by all forms, at all numbers of groups with the first end, then with the others."""
        considered = [form for form in self._forms if form in self._considered[key]]
        places = [self._forms.index(form) for form in considered]
        configs = [_with_groups(config, groups, end) for end in _ENDS for groups in GROUPS]

        def schedules_at(config: KernelConfig) -> list[str | None]:
            found: list[str | None] = [None] * len(self._forms)
            for place, schedule in zip(places, schedules_of(config, considered, self._target), strict=True):
                found[place] = schedule
            return found

        return Choices.of(configs, map(schedules_at, configs), self._target)

    def _of_class(self, row_class: str) -> list[int]:
        return [place for place, sample in enumerate(self._samples) if sample.row_class == row_class]

    def _evidence(self, places: Sequence[int]) -> Evidence:
        samples, grid = [self._samples[place] for place in places], [self._grid[place] for place in places]
        return Evidence.of(samples, grid, len(self._forms))

    def _chosen(
        self,
        evidence: Evidence,
        key: KernelConfig,
        row_class: str,
        predicted: Floats,
        end: str,
    ) -> list[str]:
        """The forms with the least estimates, each kept as long as no other gains much."""
        is_whole, best, chosen = end == "whole", None, []
        for groups, costs in zip(GROUPS, predicted, strict=True):
            kept = self._kept_form(key, row_class, groups, is_whole, costs)
            estimates = evidence.estimates(evidence.weights(key, groups, is_whole), costs, kept)
            usual, least_gain = (best, _LEAST_GAIN) if kept is None else (kept, _gain(groups))
            best = _best(estimates, usual, least_gain)
            form = self._forms[best]
            chosen.append(form if self._is_in_block[best] else f"{form}|{self._best_in_block(estimates)}")
        return chosen

    def _best_in_block(self, estimates: Floats) -> str:
        """The best form for targets that have no clusters."""
        return self._forms[int(np.where(self._is_in_block, estimates, math.inf).argmin())]

    def _kept_form(
        self, key: KernelConfig, row_class: str, groups: int, is_whole: bool, predicted: Floats
    ) -> int | None:
        """The place of the form fitted to other samples; None if none was or has a schedule."""
        kept = self._kept.get((str(key), row_class))
        return self._place(form_at(groups, kept, is_whole=is_whole), predicted) if kept else None

    def _place(self, forms: str, predicted: Floats) -> int | None:
        """The place of the first of several forms that has a schedule, so that its predicted cost is finite."""
        places = map(self._forms.index, forms.split("|"))
        return next((place for place in places if math.isfinite(predicted[place])), None)

    def _with_others(self, forms: Sequence[str], others: Sequence[str], predicted: Floats) -> Iterator[str]:
        """The forms, each with another if it has no schedule, so that its predicted cost is infinite."""
        for each, other, costs in zip(forms, others, predicted, strict=True):
            form, *rest = each.split("|")
            has_schedule = math.isfinite(costs[self._forms.index(form)])
            yield each if has_schedule else "|".join(dict.fromkeys((form, *other.split("|"), *rest)))


def _ranges(forms: Iterable[str]) -> str:
    """The text of the forms of all numbers of groups."""
    runs = (next(run) for _, run in groupby(zip(GROUPS, forms, strict=True), key=lambda each: each[1]))
    return " ".join(f"{groups}:{form}" for groups, form in runs)


def _best(estimates: Floats, usual: int | None, least_gain: float) -> int:
    """The place of the least estimate, or a usual one unless the least gains much."""
    least = int(estimates.argmin())
    return least if usual is None or estimates[usual] > estimates[least] + least_gain else usual


def _gain(groups: int) -> float:
    """The least gain of a form that replaces a kept one."""
    return _GAIN_OVER_KEPT if groups >= _LONG_GROUPS else _GAIN_OF_SHORT_ROWS


def _with_groups(config: KernelConfig, groups: int, end: str) -> KernelConfig:
    """The configuration at another length, with one of `_ENDS`."""
    missing = {"half": CHUNK_SIZE * GROUP_CHUNKS // 2, "odd": math.lcm(CHUNK_SIZE, config.block_size), "whole": 0}
    size = groups * CHUNK_SIZE * GROUP_CHUNKS - missing[end]
    gate_columns = size if config.gate_columns == config.hidden_size else config.gate_columns
    return replace(config, hidden_size=size, gate_columns=gate_columns)
