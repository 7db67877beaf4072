"""What the demonstration's cells need, and when they begin, by models of memory and time."""

from __future__ import annotations

import heapq
import sys
import weakref
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the example is for users of torch")
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

sys.path.append(str(Path(__file__).parents[2] / "examples"))

from llama import measure, memory, model, schedule, traffic  # noqa: E402
from llama.arms import ARMS, default_arms  # noqa: E402
from llama.model import LLAMA, QWEN3, SHAPES, Shape  # noqa: E402

CASES = [
    measure.Case(phase, batch, length)
    for phase, length in (("prefill", 256), ("decode", 1024))
    for batch in (1, 32, 256)
]


class Held(TorchDispatchMode):
    """The bytes of tensors that are alive, and their highest number."""

    def __init__(self) -> None:
        super().__init__()
        self.most, self._storages = 0, dict[int, int]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for tensor in torch.utils._pytree.tree_leaves(found):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                if storage._cdata not in self._storages:
                    self._storages[storage._cdata] = storage.nbytes()
                    weakref.finalize(storage, self._storages.pop, storage._cdata)
        self.most = max(self.most, sum(self._storages.values()))
        return found


@pytest.mark.parametrize("shape", [LLAMA, QWEN3], ids=lambda shape: shape.name)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.phase}-{case.batch}")
def test_the_memory_of_a_cell_is_known_beforehand(
    shape: Shape, case: measure.Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass in bfloat16 over tensors that are not there; attention of these would be another than a GPU's."""
    monkeypatch.setattr(model, "attention", lambda q, cache: torch.empty_like(q).flatten(1))
    cell, held = measure.Cell(shape, case, ARMS["bf16"]), Held()
    with torch.no_grad(), held, suppress(RuntimeError):  # in the end, such tensors have no error
        measure.Bench(2, "meta", "eager").prepare(cell)
    needed = memory.bytes_to_prepare(cell, 2)
    assert held.most < needed < 1.5 * held.most
    copied = 2 * sum(count // 2 for count in traffic.elementwise_bytes(shape, case.tokens).values())
    assert memory.bytes_to_measure(cell, 2) > max(needed, copied)


@pytest.mark.parametrize(("gpu", "models"), [(80, ["llama"]), (80, ["qwen3"]), (141, ["llama", "qwen3"])])
def test_all_cells_are_prepared_within_the_memory_and_the_time_of_a_gpu(gpu: int, models: list[str]) -> None:
    """16 workers on as many processors, by the clock of a model."""
    cells = [
        measure.Cell(SHAPES[name], case, ARMS[arm])
        for name in models
        for case in CASES
        for arm in (*default_arms("cpu"), "fp8-torchao")
    ]
    needs = [memory.bytes_to_prepare(cell, 2) for cell in cells]
    tasks = [schedule.Task(number, cells[number].arm.seconds, needs[number]) for number in range(len(cells))]
    free = gpu * 10**9 - 16 * memory.PROCESS - memory.SPARE
    plan, running, clock, prepared = schedule.Schedule(tasks, free), list[tuple[float, int]](), 0.0, list[int]()
    while plan.waiting or running:
        while len(running) < 16 and (task := plan.begin()):
            heapq.heappush(running, (clock + task.seconds, task.cell))
        assert sum(needs[cell] for _, cell in running) <= free
        clock, cell = heapq.heappop(running)
        plan.end(cell)
        prepared.append(cell)
    assert sorted(prepared) == list(range(len(cells)))
    assert clock < 200
    assert all(plan.has_room_to_measure(replace(task, measuring=memory.bytes_to_measure(cell, 2)))
               for task, cell in zip(tasks, cells, strict=True))  # fmt: skip


def test_a_cell_that_never_fits_has_the_gpu_alone() -> None:
    plan = schedule.Schedule([schedule.Task(0, 9, 20), schedule.Task(1, 5, 4), schedule.Task(2, 1, 3)], 10)
    first = plan.begin()
    assert (first, plan.begin()) == (schedule.Task(0, 9, 20), None)
    assert first is not None
    plan.end(first.cell)
    assert [plan.begin(), plan.begin(), plan.left] == [schedule.Task(1, 5, 4), schedule.Task(2, 1, 3), 3]
    assert not plan.has_room_to_measure(schedule.Task(3, measuring=4))
    assert plan.has_room_to_measure(schedule.Task(3, measuring=3))
