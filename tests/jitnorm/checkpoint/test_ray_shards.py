"""A Ray cluster writes the same bytes: tasks can be pickled, and their errors name the file."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from checkpoints import SHARDS, contents, write_checkpoint

from jitnorm.checkpoint.convert import quantize_checkpoint
from jitnorm.checkpoint.layouts import layout_of


class _RayError(Exception):
    pass


class _Cluster:
    """A stand-in for Ray that runs tasks when their results are requested, last first, on copies of their arguments."""

    exceptions = SimpleNamespace(RayError=_RayError)

    def __init__(self) -> None:
        self.options: list[dict[str, Any]] = []
        self.cancelled: list[Any] = []

    def is_initialized(self) -> bool:
        return True

    def remote(self, **options: Any) -> Callable[[Callable[..., Any]], Any]:
        self.options.append(options)

        def task(work: Callable[..., Any]) -> Any:
            return SimpleNamespace(remote=lambda *arguments: _Reference(pickle.dumps((work, arguments))))

        return task

    def wait(self, references: list[Any], num_returns: int) -> tuple[list[Any], list[Any]]:
        return references[-num_returns:], references[:-num_returns]

    def get(self, reference: _Reference) -> Any:
        work, arguments = pickle.loads(reference.pickled)
        return pickle.loads(pickle.dumps(work(*arguments)))

    def cancel(self, reference: Any, *, force: bool) -> None:
        self.cancelled.append(reference)


class _Reference:
    def __init__(self, pickled: bytes) -> None:
        self.pickled = pickled


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> _Cluster:
    made = _Cluster()
    monkeypatch.setitem(sys.modules, "ray", made)
    return made


def test_a_cluster_writes_the_same_bytes(tmp_path: Path, cluster: _Cluster) -> None:
    source, layout = write_checkpoint(tmp_path / "in"), layout_of("nvfp4")
    found = list(quantize_checkpoint(source, tmp_path / "out", layout, threads=3, ray="auto"))
    assert len(found) == 1 + 2 * len(SHARDS)
    assert found[-1].written == found[-1].to_write
    assert [each["num_cpus"] for each in cluster.options] == [3, 3]
    for _ in quantize_checkpoint(source, tmp_path / "here", layout):
        pass
    assert contents(tmp_path / "out") == contents(tmp_path / "here")


def test_a_node_without_the_folder_ends_the_run(
    tmp_path: Path, cluster: _Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise _RayError("no such file")

    monkeypatch.setattr(cluster, "get", fail)
    with pytest.raises(RuntimeError, match=f"ray: {SHARDS[2]}: no such file; nodes must share both folders"):
        for _ in quantize_checkpoint(write_checkpoint(tmp_path / "in"), tmp_path / "out", layout_of("nvfp4"), ray=""):
            pass
    assert len(cluster.cancelled) == len(SHARDS) - 1
    assert not (tmp_path / "out").exists()
