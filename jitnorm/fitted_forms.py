"""Schedules for rows of any length: forms that were fitted to measurements at drawn lengths.

`scripts/fit_schedules.py` writes the forms of a target by tuning key, class of rows and number of groups of a row; the
last group may be partial.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import takewhile
from pathlib import Path

from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.numerics import CHUNK_SIZE, GROUP_CHUNKS
from jitnorm.kernels.registers import groups_of
from jitnorm.kernels.schedule_form import ScheduleForm
from jitnorm.kernels.target import Target
from jitnorm.likeness import nearest
from jitnorm.sealed import read_sealed

Forms = Mapping[tuple[str, str], str]
"""The forms of a target, by the text of a key, as `form_key` gives it, and class of rows.

A text has a form for each range of lengths, after the range's least number of groups: ``2:1wu 9:2w 33:rules``. Where
one does not fit, such as rows side by side, the next applies: ``2:1f128|3p2``. A semicolon may follow, and then the
forms for rows of whole groups, which leave no lane of the last group idle.
"""

# Stands for the rules' schedule.
BY_RULE = "rules"
# Groups of the longest rows that have forms.
MOST_GROUPS = 64
# A length that all kernels with a tuning key can have.
_ANY_LENGTH = 4096
_LINE = re.compile(r'^  {"config": "([^"]*)", "row_class": "([^"]*)", "forms": "([^"]*)"}', re.MULTILINE)


def form_key(key: KernelConfig) -> KernelConfig | None:
    """The key that a kernel shares with those of all other lengths; None if the other fields depend on the length.

    Example:
        >>> str(form_key(KernelConfig("rmsnorm", 5376))) == str(KernelConfig("rmsnorm", 4096))
        True
    """
    gate_columns = _ANY_LENGTH if key.gate_columns == key.hidden_size else key.gate_columns
    second_size = second_size_of(_ANY_LENGTH) if key.second_size else 0
    try:
        return replace(key, hidden_size=_ANY_LENGTH, gate_columns=gate_columns, second_size=second_size)
    except ValueError:
        return None


def second_size_of(hidden_size: int) -> int:
    """The length that stands for any of a pair's second rows: a quarter of the first ones', in whole chunks.

    Example:
        >>> second_size_of(4096), second_size_of(1040)
        (1024, 256)
    """
    return max(1, hidden_size // 4 // CHUNK_SIZE) * CHUNK_SIZE


def has_whole_groups(hidden_size: int) -> bool:
    """Whether rows of a length fill their last group.

    Example:
        >>> has_whole_groups(7168), has_whole_groups(2880)
        (True, False)
    """
    return hidden_size % (CHUNK_SIZE * GROUP_CHUNKS) == 0


def form_at(groups: int, forms: str, *, is_whole: bool = False) -> str:
    """The form for a number of groups, or several for where one does not fit; `is_whole`: the last group is whole, too.

    Example:
        >>> [form_at(groups, "2:1wu 9:2w 33:rules; 2:2w") for groups in (2, 8, 32, 64)]
        ['1wu', '1wu', '2w', 'rules']
        >>> form_at(64, "2:1wu 9:2w 33:rules; 2:2w", is_whole=True)
        '2w'
    """
    others, _, whole = forms.partition(";")
    ranges = (each.split(":") for each in (whole if is_whole and whole else others).split())
    *_, (_, form) = takewhile(lambda each: int(each[0]) <= groups, ranges)
    return form


def fitted_schedule(
    key: KernelConfig, config: KernelConfig, target: Target, row_class: str, forms: Forms
) -> str | None:
    """The schedule by the fitted form, as text, empty for the rules'; None if there is no form, or it does not fit.

    A kernel that was not measured has the forms of the most similar one (`jitnorm/likeness.py`).

    Args:
        key: the tuning key of the configuration.
        config: the configuration of a call's kernel.
        target: what it is built for.
        row_class: the class of the call's rows.
        forms: those of the target.
    """
    groups = groups_of(config)
    common = form_key(key) if forms and 1 < groups <= MOST_GROUPS else None
    text = _forms_for(common, row_class, forms) if common else None
    if text is None:
        return None
    for form in form_at(groups, text, is_whole=has_whole_groups(config.hidden_size)).split("|"):
        if form == BY_RULE:
            return ""
        if schedule := ScheduleForm.parse(form).schedule(config, target):
            return str(schedule)
    return None


def _forms_for(key: KernelConfig, row_class: str, forms: Forms) -> str | None:
    """The forms of a key, or of the most similar measured kernel; None if there is none."""
    found = forms.get((str(key), row_class))
    if found is None and (alike := nearest(key, _parsed_keys(frozenset(known for known, _ in forms), key.op))):
        found = forms.get((str(alike), row_class))
    return found


# Parsing the keys of other ops, too, would take 2 ms of a process's first call.
@lru_cache(maxsize=8)
def _parsed_keys(texts: frozenset[str], op: str) -> tuple[KernelConfig, ...]:
    return tuple(KernelConfig.parse(each) for each in sorted(texts) if each.startswith(f"{op}:"))


def read_forms(path: Path) -> Forms:
    """Read a file of forms.

    Raises:
        OSError: it cannot be read.
        ValueError: it is another kind of file, damaged, or written by a version that knows other forms.
    """
    found = {(key, row_class): forms for key, row_class, forms in _LINE.findall(read_sealed(path).decode())}
    if not found:
        raise ValueError("it has no forms of schedules; install jitnorm again")
    return found
