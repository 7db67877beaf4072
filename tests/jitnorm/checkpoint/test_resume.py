"""Everything is checked before anything is written, nothing is half written, and interrupted runs resume."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from checkpoints import HIDDEN, QUANTIZED, SHARDS, contents, weights, write_checkpoint
from jitnorm.cache.flock import locked_alone

from jitnorm.checkpoint import convert, pipeline
from jitnorm.checkpoint.convert import Progress, quantize_checkpoint
from jitnorm.checkpoint.layouts import layout_of
from jitnorm.checkpoint.output import WORK


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "in")


def steps(source: Path, out: Path, format: str = "mxfp4", **options: Any) -> Iterator[Progress]:
    return quantize_checkpoint(source, out, layout_of(format), **options)


def finish(source: Path, out: Path, **options: Any) -> Progress:
    return list(steps(source, out, **options))[-1]


def at_each_end(source: Path, out: Path) -> Iterator[None]:
    """A run at its beginning and after each complete shard."""
    known = -1
    for _ in steps(source, out):
        found = sum((out / name).exists() for name in SHARDS)
        if found > known:
            known = found
            yield


@pytest.mark.parametrize("shards", [0, 1, 2])
def test_a_run_that_stopped_goes_on_where_it_was(tmp_path: Path, source: Path, shards: int) -> None:
    stopped = at_each_end(source, tmp_path / "out")
    for _ in range(shards + 1):
        next(stopped)
    stopped.close()  # type: ignore[attr-defined]
    if shards:
        assert not (tmp_path / "out" / "config.json").exists(), "it could be loaded, though it is not whole"
    last = finish(source, tmp_path / "out")
    assert last.resumed == shards
    assert bool(last.to_scan) == (shards == 0), "scales that are known are not found again"
    finish(source, tmp_path / "whole")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


KILLED = """
import os, signal, sys
from pathlib import Path
from jitnorm.checkpoint import output
from jitnorm.commands.quantize_app import quantize
finish = output.Output.finish
def die(self, name):
    if name == sys.argv[3]:
        os.kill(os.getpid(), signal.SIGKILL)
    finish(self, name)
output.Output.finish = die
quantize(Path(sys.argv[1]), Path(sys.argv[2]), "mxfp4")
"""


def test_a_run_that_was_killed_goes_on(tmp_path: Path, source: Path) -> None:
    out = tmp_path / "out"
    ended = subprocess.run([sys.executable, "-c", KILLED, source, out, SHARDS[1]], capture_output=True, check=False)
    assert ended.returncode == -9, ended.stderr.decode()
    assert sorted(path.name for path in out.iterdir()) == [WORK, SHARDS[0]]
    assert any((out / WORK).glob("*.part"))
    assert finish(source, out).resumed == 1
    finish(source, tmp_path / "whole")
    assert contents(out) == contents(tmp_path / "whole")


def no_space(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_weight_that_has_no_code_is_refused_before_anything_is_written(tmp_path: Path, value: float) -> None:
    bad = weights()
    bad[f"{QUANTIZED[5]}.weight"][3, 5] = ml_dtypes.bfloat16(value)
    source = write_checkpoint(tmp_path / "bad", bad)
    with pytest.raises(ValueError, match=f"in: {QUANTIZED[5]}.weight: a value is NaN or infinite"):
        finish(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_full_disk_is_refused_before_anything_is_written(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_space(monkeypatch)
    with pytest.raises(OSError, match=r"out: needs .* bytes, but the disk of .* has 1000"):
        finish(source, tmp_path / "deep" / "out")
    assert not (tmp_path / "deep").exists()


def test_names_that_collide_and_rows_that_do_not_divide_are_refused(tmp_path: Path) -> None:
    module = QUANTIZED[0]
    taken = {**weights(), f"{module}.weight_scale": np.zeros(1, np.float32)}
    with pytest.raises(ValueError, match=f"{module}.weight_scale and .* would both become"):
        finish(write_checkpoint(tmp_path / "taken", taken), tmp_path / "out")
    odd = {**weights(), "a.weight": np.zeros((4, HIDDEN + 16), np.float32)}
    with pytest.raises(ValueError, match=r"a.weight has the shape \(4, 272\); .* multiple of 32; .*--ignore 'a'"):
        finish(write_checkpoint(tmp_path / "odd", odd), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def other_options(source: Path, out: Path) -> Any:
    next(run := steps(source, out, "fp8"))
    while not (out / SHARDS[0]).exists():
        next(run)
    run.close()  # type: ignore[attr-defined]


TAKEN: list[tuple[Callable[[Path, Path], Any], str]] = [
    (lambda _, out: (out.mkdir(), (out / "mine").write_text("")), "is not empty"),
    (lambda _, out: out.write_text(""), "is no folder"),
    (finish, "is not empty"),
    (other_options, "holds an interrupted run with other input or options"),
]


@pytest.mark.parametrize(("take", "why"), TAKEN)
def test_a_folder_that_holds_something_else_is_left_alone(
    tmp_path: Path, source: Path, take: Callable[[Path, Path], Any], why: str
) -> None:
    out = tmp_path / "out"
    take(source, out)
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=f"out: .* {why}"):
        finish(source, out)
    assert contents(tmp_path) == before


def test_a_checkpoint_is_not_written_into_itself(source: Path) -> None:
    for out in (source, source / "within"):
        with pytest.raises(ValueError, match="is in the checkpoint's folder"):
            finish(source, out)


def test_two_runs_do_not_write_to_the_same_folder(tmp_path: Path, source: Path) -> None:
    (tmp_path / "out" / WORK).mkdir(parents=True)
    with (
        locked_alone(tmp_path / "out" / WORK / "lock"),
        pytest.raises(RuntimeError, match="another process is writing"),
    ):
        finish(source, tmp_path / "out")
    finish(source, tmp_path / "out")


def test_a_file_that_becomes_shorter_ends_the_run(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline.os, "preadv", lambda *_: 0)
    with pytest.raises(OSError, match="has become shorter"):
        finish(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_errors_of_threads_reach_the_caller(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("jitnorm.checkpoint.shard.write_at", fail)
    with pytest.raises(OSError, match="No space left"):
        finish(source, tmp_path / "out")
    assert not any((tmp_path / "out" / name).exists() for name in (*SHARDS, convert.CONFIG, convert.INDEX))


MEASURED = """
import json, resource, sys
from pathlib import Path
from jitnorm.checkpoint.convert import quantize_checkpoint
from jitnorm.checkpoint.layouts import layout_of
from jitnorm.checkpoint.stored import StoredTensor, arranged

def peak(folder, rows):
    folder.mkdir()
    begin, _ = arranged([StoredTensor("a.weight", "BF16", (rows, 2048)), StoredTensor("b", "U8", (rows << 8,))], {})
    with (folder / "model.safetensors").open("wb") as file:
        file.write(begin)
        file.truncate(len(begin) + rows * (2 * 2048 + 256))  # zeros, which take no disk
    (folder / "config.json").write_text("{}")
    for _ in quantize_checkpoint(folder, folder.with_suffix(".out"), layout_of("mxfp4"), threads=2):
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10

folder = Path(sys.argv[1])
print(json.dumps([peak(folder / "small", 64), peak(folder / "large", 48 << 10)]))
"""


def test_memory_does_not_grow_with_the_checkpoint(tmp_path: Path) -> None:
    """A weight of 200 MB needs only the memory of the blocks in progress."""
    ended = subprocess.run([sys.executable, "-c", MEASURED, tmp_path], capture_output=True, check=False, text=True)
    assert ended.returncode == 0, ended.stderr
    small, large = map(int, ended.stdout.strip("[]\n").split(","))
    blocks = 2 + 4  # of threads, and of those that wait
    assert large - small < 2 * blocks * pipeline.BLOCK_BYTES
