"""What a fleet does to a cache: many processes, killed processes, full disks, vanished folders."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from jitnorm.cache import Artifact, Store, load_or_build, make_key

StartWorker = Callable[..., "subprocess.Popen[str]"]
Rounds = Callable[[int], int]
WORKER = Path(__file__).with_name("worker.py")
KEYS = [make_key({"configuration": str(number)}) for number in range(8)]


def tell(worker: subprocess.Popen[str]) -> None:
    assert worker.stdin is not None
    worker.stdin.write("go\n")
    worker.stdin.flush()


def hear(worker: subprocess.Popen[str]) -> str:
    assert worker.stdout is not None
    return worker.stdout.readline().rstrip("\n")


def test_64_processes_that_need_8_configurations_of_an_empty_cache_build_8_times(
    store: Store, tmp_path: Path, start_worker: StartWorker
) -> None:
    log = tmp_path / "builds"
    worker = start_worker(
        "build_configurations", root=store.layout.root, keys=KEYS, log=log, build_seconds=0.2, processes=64
    )
    answers, errors = worker.communicate(timeout=90)
    assert worker.returncode == 0, errors
    assert answers.split() == [hashlib.sha256(b"x" * 10_000).hexdigest()] * 64
    assert len(log.read_text().splitlines()) == 8
    assert [entry.key for entry in store.entries()] == sorted(KEYS)


def test_builders_killed_at_random_moments_leave_nothing_partial_and_the_next_caller_is_right(
    store: Store, start_worker: StartWorker, rounds: Rounds
) -> None:
    count = rounds(60)
    worker = start_worker("kill_builders", root=store.layout.root, rounds=count, seed=count)
    output, errors = worker.communicate(timeout=240)
    assert worker.returncode == 0, errors
    killed_before, longest = output.split()
    # The moments must fall on both sides of the publishing, else nothing was tried.
    assert 0 < int(killed_before) < count
    assert float(longest) < 5


def test_every_damage_on_the_disk_is_found_and_built_anew(
    store: Store, key: str, artifact: Artifact, rounds: Rounds
) -> None:
    chance = random.Random(5)
    for _ in range(rounds(60)):
        load_or_build(store, key, lambda: artifact)
        path = store.layout.entry(key) / chance.choice(["payload", "manifest.json"])
        data = bytearray(path.read_bytes())
        position = chance.randrange(len(data))
        if chance.random() < 0.5:
            data[position] ^= 1 << chance.randrange(8)
        else:
            del data[position:]
        path.write_bytes(data)
        assert store.load(key) is None
        assert load_or_build(store, key, lambda: artifact) == artifact
        assert store.load(key) == artifact


def test_a_disk_of_2_megabytes_holds_what_fits_and_the_rest_is_used_from_memory(tmp_path: Path) -> None:
    mounted = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size=2m none "$1" && shift && exec "$@"', "sh"]
    if shutil.which("unshare") is None or subprocess.run([*mounted, tmp_path, "true"], capture_output=True).returncode:
        pytest.skip("file systems cannot be mounted here: no user namespaces")
    program = [sys.executable, WORKER, "fill_a_disk", f'{{"root": "{tmp_path}/cache", "count": 8, "size": 500000}}']
    done = subprocess.run([*mounted, tmp_path, *program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    stored, intact, unfinished = map(int, done.stdout.split())
    assert 2 <= stored == intact < 8
    assert unfinished == 0
    assert done.stderr.count("No space left") == 1


def test_a_cache_deleted_under_a_running_process_is_made_anew(store: Store, artifact: Artifact) -> None:
    for key in KEYS[:2]:
        load_or_build(store, key, lambda: artifact)
    shutil.rmtree(store.layout.root)
    assert load_or_build(store, KEYS[0], lambda: artifact) == artifact
    assert store.load(KEYS[0]) == artifact
    uses = [path.read_text() for path in store.layout.uses.iterdir()]
    assert len(uses) == 1  # the process says anew what it uses
    assert KEYS[0] in uses[0]


def test_a_cache_deleted_over_and_over_during_builds_harms_nobody(store: Store, artifact: Artifact) -> None:
    done = threading.Event()

    def delete() -> None:
        while not done.is_set():
            shutil.rmtree(store.layout.root, ignore_errors=True)

    with ThreadPoolExecutor(1) as pool:
        deleting = pool.submit(delete)
        try:
            for key in KEYS * 2:
                assert load_or_build(store, key, lambda: artifact, timeout=10) == artifact
        finally:
            done.set()
        deleting.result(timeout=10)
    assert load_or_build(store, KEYS[0], lambda: artifact) == artifact
    assert store.load(KEYS[0]) == artifact


def test_a_child_forked_after_a_load_loads_and_builds(store: Store, start_worker: StartWorker) -> None:
    worker = start_worker("fork_after_load", root=store.layout.root, key=KEYS[0], other=KEYS[1])
    lines = {hear(worker), hear(worker)}
    tell(worker)
    assert "child done" in lines, worker.communicate(timeout=30)[1]
    assert sorted(entry.key for entry in store.entries()) == sorted(KEYS[:2])


@pytest.mark.parametrize("keys", [KEYS[:1], KEYS], ids=["the same key", "different keys"])
def test_16_threads_build_each_key_once(store: Store, artifact: Artifact, keys: list[str]) -> None:
    start = threading.Barrier(16)
    built: list[str] = []

    def ask(number: int) -> Artifact:
        key = keys[number % len(keys)]

        def build() -> Artifact:
            built.append(key)
            time.sleep(0.02)  # long enough for the others to come
            return artifact

        start.wait(timeout=10)
        return load_or_build(store, key, build, timeout=60)

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(ask, range(16), timeout=60)) == [artifact] * 16
    assert sorted(built) == sorted(keys)


def test_times_in_the_future_do_not_matter(store: Store, artifact: Artifact) -> None:
    """The clock was ahead when the cache was filled, and has been set back since."""
    for key in KEYS:
        store.publish(key, artifact)
    ahead = time.time() + 400 * 86400
    for path in [*store.layout.root.rglob("*")]:
        os.utime(path, (ahead, ahead))
    assert all(load_or_build(store, key, lambda: pytest.fail("built")) == artifact for key in KEYS)
    assert all(abs(store.layout.entry(key).stat().st_mtime - time.time()) < 60 for key in KEYS)
    assert load_or_build(store, make_key({}), lambda: artifact) == artifact
