"""Puts calls across ranks under stress: random ones, skew, a rank that dies, ranks that disagree.

    scripts/comm_stress [TRIAL ...] [--device cuda] [--ranks N] [--seconds S] [--seed N]

Trials are bits, skew, killed and disagree; all by default. Ranks are processes, each with a GPU. Prints a line for each
trial; the exit status is 1 if something was wrong.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from jitnorm.kernels.all_reduce_rules import SCATTERED
from numpy.typing import NDArray

from comm.cases import FORMS, MAX_HIDDEN, MAX_ROWS, Case, Config, call, differences, draw_case, draw_config, expected
from comm.devices import Device
from jitnorm.comm import CommError
from jitnorm.tune.processes import Exchange, Outcome, run_ranks

_DEADLINE = 20.0
"""Of calls that should succeed: compiling takes ranks different times."""
_SHORT = 2.0
_MARGIN = 60.0
"""What a trial may take beyond its time, before its ranks are killed: they start, and compile."""
PLAIN = Config(
    "none", "rmsnorm", 1024, has_residual=True, unit_bias=False, keep_norm=False, method="auto", round_sum=False
)
_WRONG = 3
_WAYS = (*((method, method == "not_fused") for method in FORMS), ("two_shot", True))


@dataclass(frozen=True)
class Options:
    """Options of the command line."""

    device: str
    memory: str
    ranks: int
    seconds: float
    seed: int
    cases: int
    kernels: int
    iterations: int


@dataclass(frozen=True)
class Prepared:
    """A call with its rank's tensors on the device, and the results that it must give."""

    case: Case
    tensors: dict[str, Any]
    wanted: dict[str, NDArray[Any]]

    @classmethod
    def of(cls, case: Case, device: Device, ranks: int) -> Prepared:
        tensors = case.inputs(ranks)
        wanted = expected(case, tensors, device.rank, ranks)
        own = case.tensors_of(tensors, device.rank, ranks)
        return cls(case, {name: device.put(value) for name, value in own.items()}, wanted)

    def call(self, workspace: Any) -> dict[str, Any]:
        return call(self.case, self.tensors, workspace)

    def check(self, device: Device, workspace: Any) -> list[str]:
        found = self.call(workspace)
        device.synchronize()
        workspace.check()
        got = self.own_part({name: device.get(tensor) for name, tensor in found.items()}, device, workspace)
        wanted = self.own_part(self.wanted, device, workspace)
        return [f"{self.case}: {problem}" for problem in differences(got, wanted)]

    def own_part(self, found: dict[str, Any], device: Device, workspace: Any) -> dict[str, Any]:
        """The results without the rows of other ranks."""
        if self.case.config.method != "sharded":
            return found
        return {**found, "residual_out": found["residual_out"][self.case.rows_of(device.rank, workspace.ranks)]}


def bits(exchange: Exchange, options: Options) -> tuple[str, list[str]]:
    """Check that random calls give the bytes that the CPU computes from NumPy's sum."""
    device, chance = Device(options.device, exchange, options.memory), random.Random(options.seed)
    workspaces = {
        dtype: device.workspace(MAX_ROWS, MAX_HIDDEN, dtype, _DEADLINE, MAX_ROWS)
        for dtype in ("bfloat16", "float16", "float32")
    }
    end, done, wrong = time.monotonic() + options.seconds, 0, []
    while done < options.cases and not device.agree(time.monotonic() > end or len(wrong) >= _WRONG):
        config, dtype = draw_config(chance), chance.choice([*workspaces])
        for _ in range(min(options.cases - done, max(1, options.cases // options.kernels))):
            case = draw_case(chance, config, dtype)
            wrong += Prepared.of(case, device, options.ranks).check(device, workspaces[dtype])
            done += 1
    return f"{done} random calls", wrong


def skew(exchange: Exchange, options: Options) -> tuple[str, list[str]]:
    """Make calls without a pause, while ranks sleep at random."""
    device, chance = Device(options.device, exchange, options.memory), random.Random(options.seed)
    workspace = device.workspace(MAX_ROWS, PLAIN.hidden_size, "bfloat16", _DEADLINE)
    prepared = [
        Prepared.of(Case(config, "bfloat16", rows, "normal", rows), device, options.ranks)
        for config in (replace(PLAIN, method=method, round_sum=is_round) for method, is_round in _WAYS)
        for rows in (1, 2, 3, 5, 8, 16)
    ]
    own = random.Random(options.seed * 8 + exchange.rank)
    loop = _graphs if device.is_gpu else _loop
    batch = loop(device, workspace, prepared, chance, own)
    end, done, wrong = time.monotonic() + options.seconds, 0, []
    while done < options.iterations and not device.agree(time.monotonic() > end or bool(wrong)):
        calls, problems = batch()
        done += calls
        wrong += problems
        workspace.check()
    return f"{done} calls back to back", wrong


Batch = Callable[[], tuple[int, list[str]]]


def _loop(device: Device, workspace: Any, prepared: list[Prepared], chance: random.Random, own: random.Random) -> Batch:
    def batch() -> tuple[int, list[str]]:
        wrong = []
        for _ in range(100):
            if own.random() < 0.1:
                time.sleep(own.expovariate(1e4))
            wrong += chance.choice(prepared).check(device, workspace)
        return 100, wrong

    return batch


def _graphs(
    device: Device, workspace: Any, prepared: list[Prepared], chance: random.Random, own: random.Random
) -> Batch:
    """Graphs of a hundred calls with sleeping kernels in between, and of a comparison of their results."""
    import torch

    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    wanted = [
        {name: device.put(array) for name, array in each.own_part(each.wanted, device, workspace).items()}
        for each in prepared
    ]

    def work() -> None:
        for _ in range(100):
            if own.random() < 0.3:
                torch.cuda._sleep(int(own.expovariate(1 / 2e4)))
            number = chance.randrange(len(prepared))
            each = prepared[number]
            for name, tensor in each.own_part(each.call(workspace), device, workspace).items():
                wrong.add_((tensor.view(torch.int16) != wanted[number][name].view(torch.int16)).sum())

    for each in prepared:
        each.call(workspace)  # compiles
    torch.cuda.synchronize()
    graphs = []
    for _ in range(20):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        graphs.append(graph)

    def batch() -> tuple[int, list[str]]:
        for _ in range(100):
            chance.choice(graphs).replay()
        torch.cuda.synchronize()
        count = int(wrong)
        return 10000, [f"{count} elements differ"] if count else []

    return batch


def killed(exchange: Exchange, options: Options) -> tuple[str, list[str]]:
    """Kill the last rank in the middle of calls; the others must get an error that names it."""
    device, last = Device(options.device, exchange, options.memory), exchange.ranks - 1
    workspace = device.workspace(MAX_ROWS, PLAIN.hidden_size, "bfloat16", _SHORT)
    prepared = Prepared.of(Case(PLAIN, "bfloat16", 4, "normal", options.seed), device, options.ranks)
    prepared.check(device, workspace)  # compiles
    exchange(b"")
    if exchange.rank == last:
        after = random.Random(options.seed).uniform(0, 0.2)
        threading.Timer(after, os.kill, (os.getpid(), signal.SIGKILL)).start()
    start = latest = time.monotonic()
    try:
        while time.monotonic() - start < _MARGIN / 2:
            latest = time.monotonic()
            prepared.check(device, workspace)
    except CommError as error:
        took = time.monotonic() - latest
        problems = [] if last in error.late and took < _SHORT + 1 else [f"{error}, after {took:.1f} s"]
        return f"rank {exchange.rank} heard after {took:.2f} s", problems + _refusal(prepared, workspace)
    return "", ["no rank failed"]


def _refusal(prepared: Prepared, workspace: Any) -> list[str]:
    try:
        prepared.call(workspace)
    except CommError:
        return []
    return ["a call after the failure was not refused"]


def disagree(exchange: Exchange, options: Options) -> tuple[str, list[str]]:
    """Have rank 0 make a different call; all ranks must get an error, and continue after a reset."""
    device = Device(options.device, exchange, options.memory)
    workspace = device.workspace(MAX_ROWS, 2048, "bfloat16", _SHORT)
    good = Case(PLAIN, "bfloat16", 4, "normal", options.seed)
    others = (
        replace(good, rows=5),
        replace(good, config=replace(PLAIN, hidden_size=2048)),
        replace(good, config=replace(PLAIN, spec="fp8")),
        replace(good, config=replace(PLAIN, has_residual=False)),
        *(replace(good, config=replace(PLAIN, method=form)) for form in ("two_shot", *SCATTERED, "all_gather")),
    )
    right, wrong = Prepared.of(good, device, options.ranks), problems_when_alike(device, workspace, good, others)
    for other in others:
        prepared = Prepared.of(other, device, options.ranks) if exchange.rank == 0 else right
        exchange(b"")
        try:
            prepared.check(device, workspace)
            wrong.append(f"{other} raised nothing")
        except CommError as error:
            if not (error.disagreeing or error.late):
                wrong.append(f"{error} names no rank")
        workspace.reset()
        wrong += right.check(device, workspace)
    return f"{len(others)} disagreements", wrong


def problems_when_alike(device: Device, workspace: Any, good: Case, others: tuple[Case, ...]) -> list[str]:
    """Problems when all ranks make each of these calls, which compiles them."""
    ranks = workspace.ranks
    return [
        problem for case in (good, *others) for problem in Prepared.of(case, device, ranks).check(device, workspace)
    ]


TRIALS = {"bits": bits, "skew": skew, "killed": killed, "disagree": disagree}


def run(name: str, options: Options) -> tuple[str, list[str]]:
    """Run a trial; return what it did, and what was wrong on any rank."""
    outcomes = run_ranks(options.ranks, TRIALS[name], options, seconds=options.seconds + _MARGIN)
    if name == "killed":
        *outcomes, last = outcomes
        if last.error != "died":
            return "", [f"the rank that was to die: {last}"]
    return _summary(outcomes)


def _summary(outcomes: list[Outcome]) -> tuple[str, list[str]]:
    wrong = [f"rank {rank}: {outcome.error}" for rank, outcome in enumerate(outcomes) if outcome.error]
    ended = [(rank, *outcome.value) for rank, outcome in enumerate(outcomes) if not outcome.error]
    wrong += [f"rank {rank}: {problem}" for rank, _, problems in ended for problem in problems]
    return ended[0][1] if ended else "", wrong


def main() -> int:
    """Run the trials that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trials", nargs="*", choices=[*TRIALS, []], metavar="TRIAL")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--memory", choices=("torch", "ipc"), default="torch", help="how GPUs share memory")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=300, help="of a trial, at most, beside starting")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=10_000, help="calls of bits")
    parser.add_argument("--kernels", type=int, default=30, help="among how many kernels these are divided")
    parser.add_argument("--iterations", type=int, default=1_000_000, help="calls of skew")
    given = vars(parser.parse_args())
    names, failed = given.pop("trials") or [*TRIALS], False
    for name in names:
        start = time.monotonic()
        done, wrong = run(name, Options(**given))
        print(f"{name}: {'FAILED' if wrong else 'ok'}: {done}, {time.monotonic() - start:.0f} s", flush=True)
        print("".join(f"  {problem}\n" for problem in wrong), end="", flush=True)
        failed = failed or bool(wrong)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
