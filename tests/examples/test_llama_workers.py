"""The demonstration's workers, played by programs that answer at once, slowly or not at all."""

from __future__ import annotations

import io
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import cast

import pytest

torch = pytest.importorskip("torch", reason="the example is for users of torch")

sys.path.append(str(Path(__file__).parents[2] / "examples"))

from llama import measure, schedule, workers  # noqa: E402
from llama.arms import ARMS  # noqa: E402
from llama.model import TINY  # noqa: E402

ROW = measure.Row("tiny", "decode", 1, 1, "bf16", 20.0, 700.0, 0.03)

WORKER = """
import json, pathlib, sys, time
log = pathlib.Path(sys.argv[0]).with_suffix(".log").open("a")
for line in sys.stdin:
    request = json.loads(line)
    answer, cell = {'held': 1 << 30}, request.get("prepare", request.get("measure"))
    begun = time.monotonic()
    DOES
    print(json.dumps({**request, "begun": begun, "ended": time.monotonic()}), file=log, flush=True)
    print(json.dumps(answer), flush=True)
"""


def crew(
    folder: Path, does: str, tasks: list[schedule.Task], count: int, free: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[workers.Crew, Path]:
    """Workers that do something instead of preparing and measuring, and the file that they write requests to."""
    (worker := folder / "worker").write_text(f"#!{sys.executable}\n{WORKER.replace('DOES', does)}", "utf-8")
    worker.chmod(0o755)
    monkeypatch.setattr(workers.sys, "executable", str(worker))
    cells = [measure.Cell(TINY, measure.Case("decode", 1, 8 + number), ARMS["bf16"]) for number in range(9)]
    return workers.Crew([], cells, schedule.Schedule(tasks, free), count, {}, print), worker.with_suffix(".log")


MEASURED = 'answer = {"row": ROW, "around": [1, 2]} if "measure" in request else answer'


def measuring(found: measure.Row) -> str:
    return MEASURED.replace("ROW", repr(asdict(found)))


@pytest.mark.parametrize(
    ("does", "reason"), [("time.sleep(60)", "out of time"), ("sys.exit(1)", "the process ended"), ("", "out of time")]
)
def test_workers_that_do_not_answer_do_no_harm(
    does: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, tasks = time.monotonic(), [schedule.Task(cell) for cell in (3, 4, 5)]
    does = does or 'time.sleep(60 * ("measure" in request))'
    found = crew(tmp_path, does, tasks, 2, 9, monkeypatch)[0].results(2.0)
    assert sorted(found) == [(3, reason), (4, reason), (5, reason)]
    assert time.monotonic() < begun + 30


def test_cells_are_prepared_together_as_far_as_memory_goes_and_measured_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = [schedule.Task(cell, seconds=cell, bytes=2 + cell % 2) for cell in range(8)]
    both, log = crew(tmp_path, f"time.sleep(0.1); {measuring(ROW)}", tasks, 4, 6, monkeypatch)
    assert list(both.results(60.0)) == [(cell, ROW) for cell in range(8)]
    requests = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    for request in requests:
        others = [each for each in requests if each["begun"] < request["begun"] < each["ended"]]
        if "measure" in request:
            assert others == []
        else:
            assert request["bytes"] + sum(each["bytes"] for each in others) <= 6
    assert capsys.readouterr().out.count(" s, in 1.0 of 0.0 GiB: tiny decode 1 bf16\n") == 8
    assert any(each["begun"] < request["begun"] < each["ended"] for request in requests for each in requests)


def test_what_is_prepared_in_time_is_measured_while_others_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow cell holds nothing up, and is measured in the end."""
    does = f"""if request.get("prepare") == 0:
        for step in range(30):
            time.sleep(0.1)
            print(json.dumps({{"slept": time.monotonic()}}), file=log, flush=True)
    {measuring(ROW)}
    time.sleep(0.5 * ("measure" in request))"""
    slow, log = crew(tmp_path, does, [schedule.Task(cell) for cell in range(3)], 2, 9, monkeypatch)
    monkeypatch.setattr(workers, "_FOR_PREPARATION", 0.1)
    assert list(slow.results(20.0)) == [(cell, ROW) for cell in (1, 2, 0)]
    lines = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    measured = [line for line in lines if "measure" in line]
    assert not any(
        each["begun"] < line["slept"] < each["ended"] for line in lines if "slept" in line for each in measured
    )


def test_a_cell_without_memory_gets_all_of_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    does = f"""{measuring(ROW)}
    if cell in (0, 1) and "prepare" in request and request["bytes"] < (9 if cell else 99):
        answer = {{"failed": "CUDA error: out of memory"}}"""
    scarce, log = crew(tmp_path, does, [schedule.Task(cell, bytes=3) for cell in range(3)], 3, 9, monkeypatch)
    assert sorted(scarce.results(60.0)) == [(0, "CUDA error: out of memory"), (1, ROW), (2, ROW)]
    asked = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    assert sorted((each["prepare"], each["bytes"]) for each in asked if "prepare" in each) == [
        (0, 3), (0, 9), (1, 3), (1, 9), (2, 3)
    ]  # fmt: skip


def test_what_a_worker_had_prepared_when_it_ended_is_prepared_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    does = f"sys.exit(1) if cell == 2 else None; {measuring(ROW)}; time.sleep(0.2 * (cell == 1))"
    ending, log = crew(tmp_path, does, [schedule.Task(cell) for cell in range(3)], 2, 9, monkeypatch)
    found = sorted(ending.results(60.0), key=lambda each: each[0])
    assert found == [(0, ROW), (1, ROW), (2, "the process ended")]
    requests = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    prepared = [each["prepare"] for each in requests if "prepare" in each]
    assert (len(prepared), set(prepared)) == (3, {0, 1})  # one of them twice


def test_a_worker_answers_what_it_is_asked() -> None:
    class Bench:
        device, around, limits = "cpu", {}, []

        held = 7

        def limit(self, size: int | None) -> None:
            self.limits.append(size)

        def prepare(self, cell: measure.Cell) -> None:
            if cell is bad:
                raise ValueError("no\nmore")

        def measure(self, cell: measure.Cell) -> measure.Row:
            assert self.around[cell.shape, cell.case] == measure.Around(3.0, None)
            return ROW

    good, bad = (measure.Cell(TINY, measure.Case("decode", 1, 8), ARMS[arm]) for arm in ("bf16", "fp8-jitnorm"))
    requests = [{"prepare": 0, "bytes": 5}, {"prepare": 1, "bytes": 6}, {"measure": 0, "around": [3.0, None]}]
    answers, bench = io.StringIO(), Bench()
    text = io.StringIO("".join(f"{json.dumps(each)}\n" for each in requests))
    workers.serve(cast(measure.Bench, bench), [good, bad], text, answers)
    prepared, failed, measured = map(json.loads, answers.getvalue().splitlines())
    assert (prepared, failed) == ({"held": 7}, {"failed": "ValueError: no"})
    assert (measure.Row(**measured["row"]), measured["around"]) == (ROW, [3.0, None])
    assert bench.limits == [5, 6, None]


def test_each_gpu_has_its_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert workers.environment_of(1, 4)["CUDA_VISIBLE_DEVICES"] == "1"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    assert workers.environment_of(1, 4)["CUDA_VISIBLE_DEVICES"] == "7"
