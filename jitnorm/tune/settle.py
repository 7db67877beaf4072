"""Settles which other forms replace those that jitnorm ships: the ones that gain where both were measured.

A fit as a whole gains less than it promises, since it chooses what a few samples, by chance, found fast. So cases at
other drawn lengths are measured with the schedules of both, and a form is replaced only where the other gains enough.
The forms that a kernel has in neighbouring classes of rows are candidates, too.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, product

import numpy as np

from jitnorm.fitted_forms import BY_RULE, Forms, form_at, has_whole_groups
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.registers import groups_of
from jitnorm.kernels.row_classes import ROW_CLASSES
from jitnorm.kernels.target import Target
from jitnorm.tune.cost_model import Floats
from jitnorm.tune.fit import GROUPS, NEAR, Evidence, Fitting
from jitnorm.tune.samples import Sample, forms_in

# What a candidate must gain, by the estimates.
_LEAST_GAIN = 0.015
# What it must gain in a case at the very length if that is of whole groups, of which shipped forms know many cases.
_LEAST_GAIN_OF_WHOLE_GROUPS = 0.02


@dataclass(frozen=True)
class Rows:
    """Properties of calls that forms depend on.

    Attributes:
        key: what the kernel has in common with those of other lengths.
        row_class: one of `ROW_CLASSES`.
        groups: groups of a row.
        is_whole: whether all of these are whole.
    """

    key: KernelConfig
    row_class: str
    groups: int
    is_whole: bool


def of_neighbours(forms: Forms) -> list[Forms]:
    """The forms of kernels if each class of rows had those of the class before it, and if it had those of the next.

    Example:
        >>> before, after = of_neighbours({("norm", "few"): "2:1w", ("norm", "some"): "2:2"})
        >>> before["norm", "some"], after["norm", "few"], after["norm", "some"]
        ('2:1w', '2:2', '2:2')
    """

    def of(key: str, row_class: str, distance: int) -> str:
        place = ROW_CLASSES.index(row_class) + distance
        beside = ROW_CLASSES[place] if 0 <= place < len(ROW_CLASSES) else row_class
        return forms.get((key, beside), forms[key, row_class])

    return [{each: of(*each, distance) for each in forms} for distance in (-1, 1)]


class Settling(Fitting):
    """A choice among a few forms for each kernel, class of rows and number of groups.

    Args:
        samples: of some classes of rows, with cases in which the schedules of these forms were measured.
        target: what they were measured on.
        kept: the forms that stay unless candidates gain.
        candidates: one or more alternatives, each of all kernels of the samples.

    Raises:
        ValueError: candidates lack a kernel.
    """

    def __init__(self, samples: Sequence[Sample], target: Target, kept: Forms, candidates: Sequence[Forms]) -> None:
        self._candidates = candidates
        super().__init__(samples, target, kept)
        for forms, key, row_class in product(candidates, dict.fromkeys(self._keys), ROW_CLASSES):
            if (str(key), row_class) not in forms:
                raise ValueError(f"candidates: {key} has no forms for {row_class} rows; fit them to these samples, too")
        self._gains = self._gains_of_whole_groups()

    def _considered_for(self, key: KernelConfig) -> list[str]:
        """The forms that a kernel has, and the candidates."""
        all_forms = chain.from_iterable(forms.items() for forms in (self._kept, *self._candidates))
        return forms_in([], [text for (config, _), text in all_forms if config == str(key)])

    def _chosen(self, evidence: Evidence, key: KernelConfig, row_class: str, predicted: Floats, end: str) -> list[str]:
        """The forms, kept unless candidates gain, with one for targets that have no clusters."""
        chosen = []
        for groups, costs in zip(GROUPS, predicted, strict=True):
            rows = Rows(key, row_class, groups, end == "whole")
            forms = self._settled(evidence, rows, costs)
            if not any(self._is_in_block[self._forms.index(form)] for form in forms.split("|")):
                forms += f"|{self._best_in_block(self._estimates(evidence, rows, costs))}"
            chosen.append(forms)
        return chosen

    def _unseen_choice(self, evidence: Evidence, place: int, predicted: Floats) -> int:
        """The place of the form that a sample gets without the samples of its kernel and length."""
        rows, size = self._rows_of(place), self._samples[place].config.hidden_size
        found = self._place(self._settled(evidence, rows, predicted, left_out=size), predicted)
        return self._forms.index(BY_RULE) if found is None else found

    def _rows_of(self, place: int) -> Rows:
        """The properties of a sample."""
        sample = self._samples[place]
        is_whole = has_whole_groups(sample.config.hidden_size)
        return Rows(self._keys[place], sample.row_class, groups_of(sample.config), is_whole)

    def _forms_at(self, rows: Rows) -> list[str]:
        """The kept form and the candidates, each followed by others for where it does not fit."""
        of_rows = [forms[str(rows.key), rows.row_class] for forms in self._candidates]
        kept = self._kept.get((str(rows.key), rows.row_class), of_rows[0])
        return [form_at(rows.groups, each, is_whole=rows.is_whole) for each in (kept, *of_rows)]

    def _settled(self, evidence: Evidence, rows: Rows, predicted: Floats, left_out: int = 0) -> str:
        """The kept form, or the candidate that gains most, if it gains enough; judged without the samples of a length.

        Each is followed by others for where it does not fit.
        """

        @cache
        def estimates() -> Floats:
            return self._estimates(evidence, rows, predicted, left_out)

        def gain(kept: int | None, candidate: int | None) -> float:
            """The gain of a candidate beyond what it must gain; negative if it cannot replace the kept form."""
            if candidate is None or candidate == kept:
                return -math.inf
            if rows.is_whole:
                gains = [] if left_out else self._gains[rows, candidate]
                return min(gains, default=-math.inf) - _LEAST_GAIN_OF_WHOLE_GROUPS
            if kept is None:
                return math.inf
            if not _are_compared(evidence, rows, kept, candidate, left_out):
                return -math.inf
            return float(estimates()[kept] - estimates()[candidate]) - _LEAST_GAIN

        forms = self._forms_at(rows)
        kept, *candidates = (self._place(each, predicted) for each in forms)
        gains = [gain(kept, each) for each in candidates]
        return forms[1 + gains.index(max(gains))] if max(gains) >= 0.0 else forms[0]

    @staticmethod
    def _estimates(evidence: Evidence, rows: Rows, predicted: Floats, left_out: int = 0) -> Floats:
        """The estimated cost of each form, without the samples of a length."""
        return evidence.estimates(evidence.weights(rows.key, rows.groups, rows.is_whole, left_out), predicted)

    def _gains_of_whole_groups(self) -> defaultdict[tuple[Rows, int], list[float]]:
        """The gains of candidates, by their places, in samples of whole groups."""
        found = defaultdict(list)
        for place, (sample, schedules) in enumerate(zip(self._samples, self._grid, strict=True)):
            rows = self._rows_of(place)
            if not rows.is_whole or rows.groups not in GROUPS:
                continue
            known = np.array([math.nan if each is None else sample.regrets.get(each, math.nan) for each in schedules])
            has_schedule = np.array([math.inf if each is None else 0.0 for each in schedules])
            kept, *candidates = (self._place(forms, has_schedule) for forms in self._forms_at(rows))
            for candidate in {each for each in candidates if each is not None}:
                if kept is not None and not math.isnan(gain := known[kept] - known[candidate]):
                    found[rows, candidate].append(gain)
        return found


def _are_compared(evidence: Evidence, rows: Rows, one: int, other: int, left_out: int) -> bool:
    """Whether two forms were measured side by side for the kernel near the length, not counting that length."""
    is_kernel = np.array([key == rows.key for key in evidence.keys], dtype=bool)[evidence.places]
    is_near = np.abs(np.log(evidence.groups / rows.groups)) <= NEAR
    are_known = evidence.is_known[:, one] * evidence.is_known[:, other] > 0
    return bool((is_kernel & is_near & are_known & (evidence.sizes != left_out)).any())
