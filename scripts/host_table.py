"""Measures the host time of every public function, including those of `jitnorm.compat`, and prints it as Markdown.

    python scripts/host_table.py [NAME...]    all by default, or those whose name contains one of these

Runs on the GPU if there is one, else on the CPU target. A row has the microseconds of a call; of its handles, which are
the kernels of its launches, called with the same arguments; of `torch.empty_like` for the outputs that the call
allocates; and the difference. The last line says how many calls are within the bars: 1.5 us over their handles, or 1 us
if they allocate. A public function has two rows if it allocates outputs that can also be passed in. Each
time is the best of batches of a millisecond; the batches take turns, so that other processes disturb them little.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import torch

import jitnorm
from jitnorm.bench.calls import New, call_of
from jitnorm.bench.tensors import Tensors
from jitnorm.catalogue import OPS
from jitnorm.catalogue.op import Op
from jitnorm.dispatch import Dispatcher
from jitnorm.interop import torch as torch_interop
from jitnorm.interop.base import FastPath

Call = Callable[[], Any]
_BATCHES, _BATCH_US = 40, 1000
_SIZE = 256
# Microseconds over handles, and over `torch.empty_like` too for calls that allocate.
_GIVEN_BAR, _ALLOCATING_BAR = 1.5, 1.0
# Quantization for ops without a default.
_ENCODINGS = ("e4m3/row/f32", "e2m1/16/e4m3")


@dataclass
class Launch:
    """A launch of a call.

    Attributes:
        kernel: the kernel that it runs.
        arguments: the arguments of the kernel.
        allocated: the outputs that the call allocated.
    """

    kernel: Call
    arguments: tuple[Any, ...]
    allocated: list[torch.Tensor]


_dispatchers: list[Dispatcher] = []
_launches: list[Launch] = []
_is_recording = False


def know_dispatchers() -> None:
    """Keep each dispatcher of torch's calls in `_dispatchers`, and give it a fast path that can record its launches."""
    fast_path, usual_call = torch_interop.fast_path, torch_interop.usual_call

    def recording(torch: Any, framework: Any, dispatcher: Dispatcher) -> FastPath:
        usual = fast_path(torch, framework, dispatcher)

        def call(named: dict[str, Any], stream: Any) -> bool:
            missing = [name for name in dispatcher.outputs.names if named[name] is None]
            made = usual(named, stream)
            if _is_recording:
                assert made, f"{dispatcher.op.name} does not take the usual path"
                arguments = dispatcher.in_order(named)
                allocated = [named[name] for name in missing]
                _launches.append(Launch(dispatcher.kernel_of(*arguments)[0], arguments, allocated))
            return made

        return call

    def direct(torch: Any, framework: Any, dispatcher: Dispatcher, *rest: Any) -> Call:
        _dispatchers.append(dispatcher)
        return usual_call(torch, framework, dispatcher, *rest)

    vars(torch_interop).update(fast_path=recording, usual_call=direct)


def launches_of(call: Call) -> list[Launch]:
    """The launches of a call that has been made twice."""
    global _is_recording
    _launches.clear()
    for dispatcher in _dispatchers.copy():
        dispatcher.calls.clear()  # so that the next call takes the fast path above, and then creates its function anew
    _is_recording = True
    call()
    _is_recording = False
    call()
    assert _launches, "the call does not take the usual path"
    return _launches.copy()


def best_of(calls: list[Call]) -> list[float]:
    """Microseconds of each of several calls."""
    counts = [max(1, round(_BATCH_US / batch_time(call, 3))) for call in calls]
    best = [float("inf")] * len(calls)
    for _ in range(_BATCHES):
        for i, call in enumerate(calls):
            best[i] = min(best[i], batch_time(call, counts[i]))
    return best


def batch_time(call: Call, count: int) -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count * 1e6


def measured(name: str, call: Call) -> bool:
    """Measure and print a row of the table; return whether the call is within its bar."""
    call(), call()
    launches = launches_of(call)
    allocated = [tensor for launch in launches for tensor in launch.allocated]

    def run_handles() -> None:
        for launch in launches:
            launch.kernel(*launch.arguments)

    def allocate() -> None:
        for tensor in allocated:
            torch.empty_like(tensor)

    whole, handles, empty = best_of([call, run_handles, allocate])
    empty = empty if allocated else 0.0
    over = whole - handles - empty
    print(f"| `{name}` | {whole:.1f} | {handles:.1f} | {empty:.1f} | {over:.1f} |", flush=True)
    return over <= (_ALLOCATING_BAR if allocated else _GIVEN_BAR)


def public_calls(device: str) -> Iterator[tuple[str, Call]]:
    new = Tensors(device).of
    for op in OPS.values():
        calls = [_call_of(op, new, outputs=outputs) for outputs in (True, False)]
        if calls[0] is not None:
            yield op.name, _as_written(calls[0])
        if calls[1] is not None and (calls[0] is None or calls[0].keywords.keys() != calls[1].keywords.keys()):
            yield f"{op.name}, allocating", _as_written(calls[1])


def _call_of(op: Op, new: New, *, outputs: bool) -> partial[Any] | None:
    """A call of an op with the first encoding that it accepts."""
    takes_any = op.name == "dequantize" or "spec" in signature(getattr(jitnorm, op.function or op.name)).parameters
    encodings = [{"quant": text} for text in _ENCODINGS] if takes_any else [{}]
    for encoding in encodings:
        try:
            return call_of(op, {"hidden_size": _SIZE, **encoding}, new, 1, outputs=outputs)
        except ValueError:
            continue
    return None


def _as_written(call: Call) -> Call:
    """The call as code writes it: by position, by name what takes no position. A `partial` adds 0.1 us for names."""
    if not isinstance(call, partial):
        return call
    bound = signature(call.func).bind(*call.args, **call.keywords)
    given = [f"_{place}" for place in range(len(bound.args))] + [f"{name}={name}" for name in bound.kwargs]
    scope = {f"_{place}": argument for place, argument in enumerate(bound.args)} | bound.kwargs | {"_call": call.func}
    exec(f"def call():\n    return _call({', '.join(given)})", scope)
    made: Call = scope["call"]
    return made


def main() -> None:
    sys.path.insert(0, str(Path(__file__).parent))  # which PYTHONSAFEPATH=1 leaves out
    from host_calls import compat_calls

    device = "cuda" if torch.cuda.is_available() else "cpu"
    know_dispatchers()
    print("| call | us | handles | `empty_like` | difference |\n|---|---|---|---|---|")
    others = [(name, _as_written(call)) for name, call in compat_calls(device).items()]
    calls = [*public_calls(device), *others]
    chosen = [each for each in calls if len(sys.argv) == 1 or any(part in each[0] for part in sys.argv[1:])]
    within = [measured(*each) for each in chosen]
    print(f"\n{sum(within)} of {len(within)} calls are within the bars.")


if __name__ == "__main__":
    main()
