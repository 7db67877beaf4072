"""CostModel: what schedules that were not measured cost, learnt from those that were.

Of the measured schedules at lengths that they were not fitted to, gradient-boosted trees choose ones that lose 2.6 %; a
ridge regression of 17000 pairs of options chose ones that lose 3.5 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.numerics import CHUNK_SIZE, GROUP_CHUNKS
from jitnorm.kernels.registers import groups_of, held_bytes
from jitnorm.kernels.row_classes import ROW_CLASSES
from jitnorm.kernels.row_schedule import RowSchedule
from jitnorm.kernels.schedule import row_schedule
from jitnorm.kernels.target import Target
from jitnorm.likeness import nearest
from jitnorm.tune.cases import rows_of
from jitnorm.tune.samples import Sample, key_of

Floats = NDArray[np.float64]

# The trees predict the logarithm of a time over the fastest one; greater ones count as this.
_MOST = 0.4
_parsed = lru_cache(maxsize=None)(RowSchedule.parse)


@dataclass(frozen=True)
class Choices:
    """The schedules to choose from for kernels of one key, each distinct one once for as many groups.

    Attributes:
        groups: groups of a row.
        threads: threads of a row.
        features: of the kernel and the schedule, apart from the key and the rows.
        places: the place of each kernel's schedules among these, one row for each kernel; -1 for None.
    """

    groups: NDArray[np.int64]
    threads: NDArray[np.int64]
    features: Floats
    places: NDArray[np.int64]

    @classmethod
    def of(cls, configs: Sequence[KernelConfig], grid: Iterable[Sequence[str | None]], target: Target) -> Choices:
        """The choices of each configuration, equally many; a schedule is empty for the rules', None for no choice."""
        distinct: dict[tuple[int, str], tuple[KernelConfig, RowSchedule]] = {}
        place_of: dict[tuple[int, str], int] = {}
        places: list[list[int]] = []
        for config, texts in zip(configs, grid, strict=True):
            groups, by_rule = groups_of(config), row_schedule(config, target)
            of_rules = f"rules: {by_rule}"
            places.append([])
            for text in texts:
                choice = groups, text or of_rules
                if text is not None and choice not in distinct:
                    place_of[choice] = len(distinct)
                    distinct[choice] = config, _parsed(text) if text else by_rule
                places[-1].append(-1 if text is None else place_of[choice])
        return cls(
            np.array([groups for groups, _ in distinct], dtype=np.int64),
            np.array([schedule.threads_per_row for _, schedule in distinct.values()], dtype=np.int64),
            np.array([_features(config, schedule) for config, schedule in distinct.values()], dtype=np.float64),
            np.array(places, dtype=np.int64),
        )


class CostModel:
    """Predicts what schedules cost. Needs scikit-learn; without samples, nothing costs anything.

    Args:
        samples: of any classes of rows.
        target: what they were measured on.
    """

    def __init__(self, samples: Sequence[Sample], target: Target) -> None:
        keys = [key_of(sample.config) for sample in samples]
        self._code_of = {key: code for code, key in enumerate(dict.fromkeys(keys))}
        self._trees: Any = None
        if samples:
            pairs = zip(samples, keys, strict=True)
            features = np.concatenate([self._of_sample(sample, key, target) for sample, key in pairs])
            regrets = np.concatenate([list(sample.regrets.values()) for sample in samples])
            trees = _new_trees(features.shape[1])
            with _one_thread():
                self._trees = trees.fit(features, np.minimum(np.log1p(regrets), _MOST))

    def costs(self, choices: Choices, key: KernelConfig, row_class: str) -> Floats:
        """The predicted regrets of the choices, one row for each kernel; infinite for None.

        Args:
            choices: of kernels of this key.
            key: see `key_of`; one without samples counts as the nearest one with some, if there is any.
            row_class: one of `ROW_CLASSES`.
        """
        found = np.zeros(len(choices.features))
        if self._trees is not None and found.size:
            with _one_thread():
                found = np.expm1(self._trees.predict(self._in_calls(choices, key, row_class)))
        return np.array(np.append(found, np.inf)[choices.places])

    def _of_sample(self, sample: Sample, key: KernelConfig, target: Target) -> Floats:
        """The features of a sample's schedules."""
        choices = Choices.of([sample.config], [[*sample.regrets]], target)
        return np.array(self._in_calls(choices, key, sample.row_class)[choices.places[0]])

    def _in_calls(self, choices: Choices, key: KernelConfig, row_class: str) -> Floats:
        """The features of choices, then those of the rows, last the class and the kernel's place among the keys."""
        rows_at = {groups: _most_rows(row_class, groups) for groups in set(choices.groups.tolist())}
        rows = np.array([rows_at[groups] for groups in choices.groups.tolist()])
        known = key if key in self._code_of else nearest(key, self._code_of)
        codes = ROW_CLASSES.index(row_class), math.nan if known is None else self._code_of[known]
        categories = [np.full(len(rows), code, dtype=np.float64) for code in codes]
        return np.column_stack([choices.features, rows, rows * choices.threads, *categories])


def _features(config: KernelConfig, schedule: RowSchedule) -> tuple[float, ...]:
    """Properties of a kernel and a schedule that the cost may depend on, apart from the key and the rows."""
    groups, quant, chunks = groups_of(config), config.quant, schedule.chunks_per_lane
    held = chunks * schedule.rows_at_once * held_bytes(config)
    idle = schedule.warps_per_row * chunks - groups
    return (
        groups,
        held_bytes(config),
        config.residual,
        config.gate != "",
        config.activation != "",
        config.streams,
        config.weight == "float32",
        0 if quant is None else 1 if quant.element == "e2m1" else 2,
        quant is not None and quant.has_blocks,
        chunks,
        schedule.warps_per_row // schedule.blocks_per_row,
        schedule.blocks_per_row,
        schedule.threads,
        schedule.resident_blocks * schedule.threads,
        schedule.resident_blocks,
        schedule.rows_at_once,
        schedule.rows_per_block,
        schedule.lanes_per_row,
        idle,
        idle / groups,
        held,
        held * (1 + schedule.keeps_unpacked),
        schedule.prefetches_weight,
        schedule.stores_sum_early,
        schedule.keeps_unpacked,
        schedule.takes_fast_path,
        schedule.favours_latency,
        schedule.signals_late,
        schedule.loads_ahead,
        schedule.splits_chunks,
        schedule.copies_parameters,
        schedule.stays_resident,
        schedule.tabulates,
        schedule.activates_early,
        schedule.skips_chunks,
        schedule.holds_row,
    )


def _most_rows(row_class: str, groups: int) -> int:
    """The most rows that represent a class, at a length; 0 if no call belongs to it."""
    return max(rows_of(row_class, groups * CHUNK_SIZE * GROUP_CHUNKS), default=0)


def _one_thread() -> AbstractContextManager[object]:
    """Limit OpenMP to one thread: others spin at each of its many barriers, which took minutes beside other work."""
    from threadpoolctl import threadpool_limits

    limits: AbstractContextManager[object] = threadpool_limits(1, user_api="openmp")
    return limits


def _new_trees(features: int) -> Any:
    """The regression by so many features, the last two of which are categories; each run has the same result."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    return HistGradientBoostingRegressor(
        learning_rate=0.06,
        max_iter=900,
        max_leaf_nodes=48,
        min_samples_leaf=12,
        l2_regularization=1.0,
        categorical_features=[features - 2, features - 1],
        random_state=0,
    )
