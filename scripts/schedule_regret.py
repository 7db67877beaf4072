"""Measures how much longer calls at random lengths take than with the fastest schedule that tuning finds.

    python scripts/schedule_regret.py [SEED]    0 by default

Needs a GPU, torch and NVRTC. Each op of `jitnorm tune` is called at one length per class of rows, drawn from 1024 to
32768.
"""

from __future__ import annotations

import sys

from jitnorm.commands.tune import target_here
from jitnorm.commands.warm import Progress, warm
from jitnorm.tune.cases import OPS
from jitnorm.tune.meter import DeviceMeter
from jitnorm.tune.regret import Regret, configs_of, draw, regrets
from jitnorm.warm.plan import Job


def row_text(found: Regret) -> str:
    """One measurement, as a line of a table."""
    case = found.case
    return (
        f"{case.op:18} {case.row_class:6} {case.config.hidden_size:6} {found.schedule or '(rules)':12} "
        f"{found.fastest or '(rules)':12} {found.by_choice:7.1%} {found.by_rule:7.1%}"
    )


def main(seed: int) -> None:
    target = target_here()
    cases = draw(OPS, seed, target)
    configs = dict.fromkeys(config for case in cases for config in configs_of(case, target))
    for _ in warm(Progress([Job(config, target) for config in configs]), backend="nvrtc", workers=None):
        pass
    print(f"{'op':18} {'class':6} {'H':>6} {'schedule':12} {'fastest':12} {'regret':>7} {'rules':>7}")
    found = []
    for each in regrets(cases, target, lambda case: DeviceMeter(case, target, "nvrtc")):
        found.append(each)
        print(row_text(each), flush=True)
    for name, values in (("schedule", [f.by_choice for f in found]), ("rules", [f.by_rule for f in found])):
        print(f"{name}: {sum(values) / len(values):.1%} on average, {max(values):.1%} at most, of {len(values)} calls")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
