"""Makes random calls and compares each with the reference; a failing one is reduced and printed as a test.

    scripts/fuzz_calls SEED CALLS [--device cuda] [--kernels N]

Compiling takes most of the time, so that a run draws some kernels and makes many calls of each. The exit status is 1 if
a call failed.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter

from fuzz.case import Case, Config, draw_case, draw_config
from fuzz.check import check
from fuzz.reduce import as_test, reduced

FRAMEWORKS = {"cpu": ("numpy", "torch", "tvm_ffi"), "cuda": ("cuda",)}
_ENOUGH = 5


def main() -> int:
    """Make the calls that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seed", type=int)
    parser.add_argument("calls", type=int)
    parser.add_argument("--device", choices=FRAMEWORKS, default="cpu")
    parser.add_argument("--kernels", type=int, default=24, metavar="N", help="configurations to draw; default: 24")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no call after so long")
    chosen = parser.parse_args()
    failures = fuzz(chosen.seed, chosen.calls, chosen.kernels, FRAMEWORKS[chosen.device], chosen.seconds)
    for test in failures:
        print(f"\n{test}")
    return bool(failures)


def fuzz(
    seed: int, calls: int, kernels: int, frameworks: tuple[str, ...], seconds: float = 1e9, echo: bool = True
) -> list[str]:
    """Make calls; return a test for each kernel that gave wrong bytes."""
    chance = random.Random(seed)
    configs = [draw_config(chance) for _ in range(kernels)]
    failures: dict[Config, str] = {}
    made: Counter[str] = Counter()
    began = time.monotonic()
    for number in range(calls):
        config = configs[number * kernels // calls]
        case = draw_case(config, frameworks, chance)
        if time.monotonic() - began > seconds or len(failures) >= _ENOUGH:
            break
        made[config.op] += 1
        if config not in failures and (problem := _problem_of(case)):
            failures[config] = as_test(reduced(case, lambda each: bool(_problem_of(each))), problem)
    if echo:
        print(f"{made.total()} calls of {kernels} configurations in {time.monotonic() - began:.0f} s: ", end="")
        print(f"{len(failures)} failures; {', '.join(f'{op} {count}' for op, count in sorted(made.items()))}")
    return list(failures.values())


def _problem_of(case: Case) -> str:
    try:
        check(case)
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""


if __name__ == "__main__":
    sys.exit(main())
