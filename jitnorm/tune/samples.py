"""Samples: cases that `scripts/schedule_regret.py` measured, and the schedules that forms give them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from statistics import geometric_mean, median

from jitnorm.fitted_forms import BY_RULE, form_key
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.registers import groups_of
from jitnorm.kernels.row_schedule import RowSchedule
from jitnorm.kernels.schedule import row_schedule
from jitnorm.kernels.schedule_form import ScheduleForm
from jitnorm.kernels.target import Target
from jitnorm.tuning import tuning_key

# Options that a form has only where they are possible.
_WHERE_POSSIBLE = ("splits_chunks", "skips_chunks", "copies_parameters", "stays_resident")
_parsed = lru_cache(maxsize=None)(ScheduleForm.parse)
# A time that is so many times the median of all schedules was disturbed: even with spilled registers, no schedule takes
# as long.
_DISTURBED = 4.0
# A form is worth considering if it was nearly the fastest in so many samples: of 7541 forms that searches tried in 2231
# cases, 1301. In fewer samples, one in a hundred suffices.
_NEARLY, _LEAST_SAMPLES, _SHARE = 0.02, 4, 100


@dataclass(frozen=True)
class Sample:
    """A measured case.

    Attributes:
        device: the GPU's name; for calls so short that the start of the next kernel and the place of inputs matter,
            also whether the program had used few streams, and whether other kernels had pushed inputs out of the
            caches.
        op: its name in `jitnorm bench`.
        config: the configuration of the kernel that the rules choose.
        row_class: the class of its calls.
        chosen: the schedule that calls got when it was measured.
        regrets: how much longer calls take than by the fastest schedule, by schedule; empty for the rules'.
    """

    device: str
    op: str
    config: KernelConfig
    row_class: str
    chosen: str
    regrets: Mapping[str, float]

    @classmethod
    def of_line(cls, line: str, machine: Mapping[str, str]) -> Sample:
        """The sample of a line that `schedule_regret.py` wrote about a machine, without disturbed measurements."""
        found = json.loads(line)
        usual = [median(of_row) for of_row in zip(*found["times"].values(), strict=True)]
        means = {
            schedule: geometric_mean(times)
            for schedule, times in found["times"].items()
            if all(time < _DISTURBED * of_row for time, of_row in zip(times, usual, strict=True))
        }
        least = min(means.values())
        regrets = {schedule: mean / least - 1 for schedule, mean in means.items()}
        config, row_class, device = KernelConfig.parse(found["config"]), found["row_class"], machine["device"]
        if row_class != "many":
            device += "".join(f", {machine[each]} {each}" for each in ("streams", "inputs") if each in machine)
        return cls(device, found["op"], config, row_class, found["schedule"], regrets)


def key_of(config: KernelConfig) -> KernelConfig:
    """Properties that a kernel shares with those of other lengths, as `form_key` gives them; not None."""
    key = form_key(tuning_key(config))
    assert key is not None
    return key


def read_samples(paths: Iterable[Path]) -> list[Sample]:
    """The samples in files of `schedule_regret.py`, whose first lines describe the machine, of rows that have forms."""
    found: list[Sample] = []
    for path in paths:
        head, *lines = path.read_text(encoding="utf-8").splitlines()
        machine = json.loads(head)
        samples = (Sample.of_line(line, machine) for line in lines)
        found.extend(sample for sample in samples if groups_of(sample.config) > 1)
    return found


def forms_in(samples: Sequence[Sample], kept: Iterable[str] = ()) -> list[str]:
    """The forms that were often nearly the fastest, and those of `kept` texts, as text, and last the rules'."""
    counts = Counter(form for sample in samples for form in _nearly_fastest(sample))
    least = min(_LEAST_SAMPLES, len(samples) / _SHARE)
    found = {form for form, count in counts.items() if count >= least}
    ranges = chain.from_iterable(text.replace(";", "").split() for text in kept)
    found.update(form for each in ranges for form in each.partition(":")[2].split("|"))
    return [*sorted(found - {BY_RULE}), BY_RULE]


def _nearly_fastest(sample: Sample) -> set[str]:
    """The forms of the fastest schedule of a sample, and of others that are nearly as fast."""
    nearly = (schedule for schedule, regret in sample.regrets.items() if schedule and regret <= _NEARLY)
    return {str(ScheduleForm.of(RowSchedule.parse(each), sample.config)) for each in nearly}


def schedules_of(config: KernelConfig, forms: Sequence[str], target: Target) -> list[str | None]:
    """The schedule of each form for a configuration, as text, empty for the rules'; None where none fits.

    Also None where a form has an option that the schedule cannot have: it then is the schedule of another form.

    Example:
        >>> schedules_of(KernelConfig("rmsnorm", 4608), ["1", "2w", "1/8b2", BY_RULE], Target("sm_90a"))
        ['9x1', '', None, '']
    """
    by_rule = row_schedule(config, target)

    def of(form: str) -> str | None:
        found = by_rule if form == BY_RULE else _parsed(form).schedule(config, target)
        if found is None or (form != BY_RULE and _lacks_option(found, _parsed(form).options)):
            return None
        return "" if found == by_rule else str(found)

    return list(map(of, forms))


def _lacks_option(schedule: RowSchedule, options: RowSchedule) -> bool:
    """Whether a schedule lacks an option that a form has only where it is possible."""
    return any(getattr(options, each) > getattr(schedule, each) for each in _WHERE_POSSIBLE)
