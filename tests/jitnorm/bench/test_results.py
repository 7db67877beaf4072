"""Results survive their files, and the committed ones can be read."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench_results import results
from hypothesis import HealthCheck, given, settings

from jitnorm.bench.results import Results, read, to_json, write
from jitnorm.bench.variants import VARIANTS

COMMITTED = sorted((Path(__file__).parents[3] / "docs" / "benchmarks").glob("*-????-??-??.json"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(results())
def test_what_is_written_is_read(tmp_path: Path, found: Results) -> None:
    path = tmp_path / "results.json"
    write(found, path)
    assert read(path) == found
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_committed_results_name_what_they_were_measured_with(path: Path) -> None:
    found = read(path)
    assert path.stem.endswith(found.setup.date)
    assert found.setup.driver
    assert {"jitnorm", "torch", "cuda"} <= set(found.setup.versions)
    assert {row.by for row in found.rows} - {"jitnorm", *VARIANTS} <= set(found.setup.versions)
    assert to_json(found) == path.read_text(encoding="utf-8")


def test_roofline_and_throughput_are_those_of_the_times() -> None:
    row = read(COMMITTED[0]).rows[0]
    assert row.roofline == row.copy / row.time
    assert row.throughput == pytest.approx(row.op_bytes / (row.time * 1e-6) / 1e12)


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"rows": []}', '{"rows": [{"op": "rmsnorm"}]}', '{"rows": 3}', "\xff"]
)
def test_another_file_is_an_error_that_names_it(tmp_path: Path, content: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(ValueError, match=r"cannot read .*other\.json: .*a file from jitnorm bench --json"):
        read(path)
    with pytest.raises(ValueError, match="cannot read /nowhere"):
        read(Path("/nowhere"))
