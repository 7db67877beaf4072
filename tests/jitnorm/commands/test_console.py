"""Human-readable quantities, at every boundary between two units."""

from __future__ import annotations

import pytest

from jitnorm.commands import console
from jitnorm.commands.console import age, duration, entries, kernels, size


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0004, "0.4 ms"), (0.01, "10 ms"), (0.5, "500 ms"), (1, "1.00 s"), (75.5, "75.50 s")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(-2, "0 s"), (59, "59 s"), (60, "1 min"), (3600, "1 h"), (86400 * 3, "3 d")]
)
def test_ages(seconds: float, text: str) -> None:
    assert age(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1 << 20, "1.0 MiB"), (5 << 29, "2.5 GiB")]
)
def test_sizes(count: int, text: str) -> None:
    assert size(count) == text


def test_a_pipe_gets_lines_now_and_then(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    moments = iter((0.0, 9.0, 10.0, 11.0, 20.5))
    monkeypatch.setattr(console, "monotonic", lambda: next(moments))
    with console.status() as show:
        for text in ("too soon", "first", "again", "second"):
            show(text)
    assert capsys.readouterr().err == "first\nsecond\n"


def test_numbers_of_things() -> None:
    assert [entries(count) for count in (0, 1, 2)] == ["0 entries", "1 entry", "2 entries"]
    assert [kernels(count) for count in (0, 1, 2)] == ["0 kernels", "1 kernel", "2 kernels"]
