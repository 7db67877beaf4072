"""Worker processes build missing kernels; those that die or hang do not stop the others."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fake_cxx import fake_cxx
from jitnorm.cache import Cache
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.target import Target
from processes import is_running, is_tied, wait_until

from jitnorm.warm.build import build, check
from jitnorm.warm.plan import Job, Outcome
from jitnorm.warm.workers import run

CPU = Target("cpu")
FATAL = 192  # the hidden size of the kernel that something happens to
JOBS = [Job(KernelConfig("rmsnorm", size), CPU) for size in (64, 128, FATAL, 256)]


def statuses(outcomes: list[Outcome]) -> dict[int, str]:
    return {outcome.job.config.hidden_size: outcome.status for outcome in outcomes}


def use_compiler(folder: Path, before: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a compiler that does something before it compiles the kernel with the fatal hidden size."""
    at_fatal = f'if grep -q "hidden_size={FATAL}," "$source"; then\n{before}\nfi'
    monkeypatch.setenv("CXX", str(fake_cxx(folder / "bin", at_fatal)))


def test_all_that_is_missing_is_built_and_then_found(cache: Cache) -> None:
    built = list(run(JOBS, 2))
    assert statuses(built) == dict.fromkeys((64, 128, FATAL, 256), "built")
    found = list(check(JOBS, cache, "auto"))
    assert {item.status for item in found if isinstance(item, Outcome)} == {"hit"}
    keys = {outcome.key: outcome.size for outcome in built}
    assert {entry.key: entry.payload_size for entry in cache.store.entries()} == keys


def test_what_another_process_has_built_meanwhile_is_a_hit(cache: Cache) -> None:
    build(JOBS[0], cache, "auto")
    assert statuses(list(run(JOBS[:2], 1))) == {64: "hit", 128: "built"}


def test_workers_build_although_the_server_must_not(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JITNORM_JIT", "deny")
    assert statuses(list(run(JOBS[:1], 1))) == {64: "built"}


def test_a_job_whose_worker_is_killed_is_tried_again_alone(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = tmp_path / "killed"
    use_compiler(tmp_path, f"[ -e {once} ] || {{ touch {once}; kill -9 $PPID; }}", monkeypatch)
    assert statuses(list(run(JOBS, 2))) == dict.fromkeys((64, 128, FATAL, 256), "built")
    assert once.exists(), "no worker was killed"


def test_a_job_that_kills_its_worker_each_time_is_reported_and_the_others_are_built(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_compiler(tmp_path, "kill -9 $PPID; exit 1", monkeypatch)
    outcomes = list(run(JOBS, 2))
    assert statuses(outcomes) == {64: "built", 128: "built", FATAL: "failed", 256: "built"}
    assert "ended by signal 9, twice" in outcomes[-1].error


def test_a_job_that_hangs_is_ended(cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_compiler(tmp_path, "exec sleep 1000", monkeypatch)
    outcomes = list(run(JOBS, 2, seconds=3.0))
    assert statuses(outcomes)[FATAL] == "failed"
    assert "took longer than 3 s and was killed, twice" in outcomes[-1].error


def test_a_job_that_cannot_be_compiled_is_reported_with_the_words_of_the_compiler(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_compiler(tmp_path, 'echo "no such register" >&2; exit 1', monkeypatch)
    failed = [outcome for outcome in run(JOBS, 2) if outcome.status == "failed"]
    assert [outcome.job for outcome in failed] == [JOBS[2]]
    assert "no such register" in failed[0].error


def test_closing_the_iterator_ends_the_workers_and_their_compilers(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = tmp_path / "pids"
    os.mkfifo(pids)
    use_compiler(tmp_path, f"echo $PPID $$ > {pids}; exec sleep 1000", monkeypatch)
    outcomes = run([JOBS[2], JOBS[0]], 2)
    assert next(outcomes).job == JOBS[0]
    started = [int(pid) for pid in pids.read_text().split()]
    wait_until(lambda: all(map(is_tied, started)))
    began = time.monotonic()
    outcomes.close()
    assert time.monotonic() - began < 5
    # The kernel kills a compiler once its worker has ended.
    wait_until(lambda: not any(map(is_running, started)), seconds=3)


PARENT = """
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.target import Target
from jitnorm.warm.plan import Job
from jitnorm.warm.workers import run
list(run([Job(KernelConfig("rmsnorm", {size}), Target("cpu"))], 1))
"""


def test_a_killed_parent_takes_its_workers_and_their_compilers_along(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = tmp_path / "pids"
    os.mkfifo(pids)
    use_compiler(tmp_path, f"echo $PPID $$ > {pids}; sleep 1000", monkeypatch)
    with subprocess.Popen([sys.executable, "-c", PARENT.format(size=FATAL)], cwd=tmp_path) as parent:
        try:
            started = [int(pid) for pid in pids.read_text().split()]
            wait_until(lambda: all(map(is_tied, started)))
        finally:
            parent.kill()
    wait_until(lambda: not any(map(is_running, started)), seconds=3)


def test_a_cache_that_cannot_store_is_a_failure_and_not_warm(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache.store, "publish", full)
    outcome = build(JOBS[0], cache, "auto")
    assert outcome.status == "failed"
    assert "cannot be stored" in outcome.error
