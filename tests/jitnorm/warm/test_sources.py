"""All sources become one list of jobs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from jitnorm.cache import CacheTrustError, Store
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.target import Target

from jitnorm.warm.plan import Job
from jitnorm.warm.sources import Sources, read_choices

CPU, SM90A = Target("cpu"), Target("sm_90a")
TEXT = "rmsnorm:hidden_size=64"


def record(path: Path, *misses: tuple[str, str]) -> Path:
    path.write_text("".join(json.dumps({"config": c, "target": t, "time": 1.0}) + "\n" for c, t in misses))
    return path


def test_sources_add_up_and_each_kernel_is_there_once(tmp_path: Path) -> None:
    sources = Sources(
        configs=[TEXT],
        ops=["rmsnorm"],
        choices={"hidden_size": [64, 128]},
        records=[record(tmp_path / "misses", (TEXT, "cpu"))],
    )
    assert {job.config.hidden_size for job in sources.jobs([CPU])} == {64, 128}
    assert len(sources.jobs([CPU])) == 2


def test_a_record_names_its_targets_unless_told_which(tmp_path: Path) -> None:
    sources = Sources(records=[record(tmp_path / "misses", (TEXT, "cpu"), (TEXT, "sm_90a"))])
    config = KernelConfig.parse(TEXT)
    assert sources.name_targets
    assert sources.jobs([]) == [Job(config, CPU), Job(config, SM90A)]
    assert sources.jobs([SM90A]) == [Job(config, SM90A)]


def test_a_torn_last_line_of_a_record_is_passed_over(tmp_path: Path) -> None:
    path = record(tmp_path / "misses", (TEXT, "cpu"))
    path.write_text(path.read_text() + '{"config": "rms')
    assert len(Sources(records=[path]).jobs([])) == 1


def test_a_record_that_has_grown_is_not_read(tmp_path: Path) -> None:
    path = record(tmp_path / "misses", (TEXT, "cpu"))
    os.truncate(path, 1 << 40)
    with pytest.raises(ValueError, match=f"cannot read {path}: .*bytes"):
        Sources(records=[path]).jobs([])


@pytest.mark.parametrize("place", ["", "v1", "v1/misses.jsonl"])
def test_a_record_in_the_cache_that_others_can_write_is_refused(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Store(tmp_path / "cache")
    monkeypatch.setenv("JITNORM_CACHE_DIR", str(cache.layout.root))
    monkeypatch.setattr("jitnorm.store.user_store", lambda: cache)
    cache.layout.version.mkdir(parents=True)
    path = record(cache.layout.misses, (TEXT, "cpu"))
    path.chmod(0o600)
    assert len(Sources(records=[path]).jobs([])) == 1
    (cache.layout.root / place).chmod(0o777)
    with pytest.raises(CacheTrustError, match="others can write to it"):
        Sources(records=[path]).jobs([])


@pytest.mark.parametrize("line", ["nonsense", "[]", '{"config": "rmsnorm"}', '{"config": "x:y", "target": "cpu"}'])
def test_a_line_that_cannot_be_read_is_named(tmp_path: Path, line: str) -> None:
    path = record(tmp_path / "misses", (TEXT, "cpu"))
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(ValueError, match="line 2"):
        Sources(records=[path]).jobs([])


def test_nothing_at_all_and_choices_without_an_op_are_refused() -> None:
    with pytest.raises(ValueError, match="no source is given; use --preset"):
        Sources().require_some()
    with pytest.raises(ValueError, match="hidden_size: is given without an --op"):
        Sources(configs=[TEXT], choices={"hidden_size": 64}).require_some()


@pytest.mark.parametrize("item", ["residual", "residual=true"])
def test_a_choice_is_written_once_with_its_value(item: str) -> None:
    with pytest.raises(ValueError, match="set: cannot read"):
        read_choices({}, ["residual=false", item])
