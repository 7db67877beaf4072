"""A Ray cluster builds missing kernels; when a worker dies, nothing is lost and nothing finished is repeated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_cxx import fake_cxx
from jitnorm.cache import Cache, Store
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.target import Target

from jitnorm.store import user_cache, user_store
from jitnorm.warm.build import check
from jitnorm.warm.plan import Job, Outcome
from jitnorm.warm.ray_workers import run_on_ray

SIZES = range(8, 8 * 13, 8)
JOBS = [Job(KernelConfig("rmsnorm", size), Target(name)) for size in SIZES for name in ("cpu", "sm_90a")]
# The worker that first compiles this size dies of it.
DEADLY = SIZES[7]


@pytest.fixture
def ray() -> Any:
    return pytest.importorskip("ray", reason="warming on a cluster needs jitnorm[ray]")


@pytest.fixture
def compilations(tmp_path: Path) -> Path:
    return tmp_path / "compilations"


@pytest.fixture
def cluster(ray: Any, tmp_path: Path, compilations: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two workers on a node with a separate cache, whose C++ compiler leaves a line for each compilation.

    It kills the worker that first asks it for the deadly size.
    """
    for name in ("JITNORM_REMOTE_CACHE", "JITNORM_REMOTE_MODE"):
        monkeypatch.delenv(name, raising=False)
    count = f'grep -o "hidden_size=[0-9]*" "$source" | head -1 >> {compilations}'
    kill = f'grep -qw "hidden_size={DEADLY}" "$source" && mkdir {tmp_path}/killed 2>/dev/null && kill -9 $PPID'
    compiler = fake_cxx(tmp_path / "bin", f"{count}\n{kill}")
    # What the node is started with, its workers inherit.
    monkeypatch.setenv("JITNORM_CACHE_DIR", str(tmp_path / "node"))
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    monkeypatch.setenv("JITNORM_CACHE_DIR", str(tmp_path / "driver"))
    yield
    ray.shutdown()


@pytest.mark.exhaustive
def test_a_cluster_warms_two_targets_although_a_worker_is_killed(
    cluster: None, tmp_path: Path, compilations: Path
) -> None:
    """Every run kills workers that are processes, in test_workers.py; below, a cluster builds for two targets."""
    cache = Cache(Store(tmp_path / "driver"))
    outcomes = list(run_on_ray(JOBS, cache, "auto"))

    assert (tmp_path / "killed").exists()
    assert sorted(str(outcome.job) for outcome in outcomes) == sorted(map(str, JOBS)), "lost, or done twice"
    assert {outcome.status for outcome in outcomes} == {"built"}
    # Only what the killed worker was building is built again.
    assert sorted(compilations.read_text().split()) == sorted(f"hidden_size={size}" for size in [*SIZES, DEADLY])

    # What the nodes have built is here now, and whole.
    found: list[Any] = list(check(JOBS, cache, "auto"))
    assert {item.status for item in found if isinstance(item, Outcome)} == {"hit"}
    assert len(found) == len(JOBS)


def test_nodes_leave_what_they_build_in_a_remote_cache_that_they_may_write_to(
    cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "remote").mkdir()
    monkeypatch.setenv("JITNORM_REMOTE_CACHE", f"file://{tmp_path}/remote")
    monkeypatch.setenv("JITNORM_REMOTE_MODE", "readwrite")
    user_cache.cache_clear()
    user_store.cache_clear()
    cache = user_cache()
    assert [outcome.status for outcome in run_on_ray(JOBS[:4], cache, "auto")] == ["built"] * 4
    assert cache.remote
    assert sorted(cache.remote.keys()) == sorted(entry.key for entry in cache.store.entries())
    assert len(cache.remote.keys()) == 4
    user_cache.cache_clear()
    user_store.cache_clear()


def test_without_a_cluster_the_error_says_so(ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)

    def refuse(**_: object) -> None:
        raise ConnectionError("could not find any running Ray instance")

    monkeypatch.setattr(ray, "init", refuse)
    with pytest.raises(RuntimeError, match="ray: no cluster at 'auto'"):
        next(run_on_ray(JOBS, Cache(Store(tmp_path)), "auto"))
