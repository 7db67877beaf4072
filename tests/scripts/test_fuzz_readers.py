"""What reads files of others withstands changed ones: briefly here, for longer by scripts/fuzz_readers."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pytest
from readers.coverage import Coverage
from readers.readers import READERS, Reader
from readers.run import fuzz


@pytest.mark.parametrize("name", READERS)
def test_no_input_breaks_a_reader(name: str, tmp_path: Path) -> None:
    if name in ("signatures", "revocations"):
        pytest.importorskip("cryptography")
    outcome = fuzz(READERS[name](tmp_path), random.Random(8), 0.3)
    assert outcome.failure == ""
    assert outcome.inputs > 5


class Maze(Reader):
    """Fails for an input that begins with "key", which is found one letter after another."""

    def corpus(self) -> list[bytes]:
        return [b"...."]

    def read(self, data: bytes) -> None:
        if data[:1] != b"k":
            return
        if data[1:2] != b"e":
            return
        assert data[2:3] != b"y"


def test_what_breaks_a_reader_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def change_a_letter(data: bytes, others: object, chance: random.Random) -> bytes:
        at = chance.randrange(len(data))
        return data[:at] + bytes([chance.choice(b"abcdefghijklmnopqrstuvwxyz")]) + data[at + 1 :]

    monkeypatch.setattr("readers.run.mutated", change_a_letter)
    monkeypatch.setattr("readers.run._CODE", Path(__file__).parent)
    outcome = fuzz(Maze(tmp_path), random.Random(0), 20)
    assert "AssertionError" in outcome.failure
    assert "input: b'key" in outcome.failure


def test_coverage_grows_by_new_branches_alone() -> None:
    def branch(number: int) -> int:
        if number:
            return 1
        return 2

    coverage = Coverage(Path(__file__).parent)
    assert coverage.extended_by(partial(branch, 0))
    assert not coverage.extended_by(partial(branch, 0))
    assert coverage.extended_by(partial(branch, 1))
    size = coverage.size
    assert not coverage.extended_by(partial(branch, 1))
    assert coverage.size == size
