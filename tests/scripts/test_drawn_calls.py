"""scripts/drawn_calls.py measures calls that nobody chose, and compares what they write with another run's."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import drawn_calls
import pytest


def test_a_seed_draws_the_same_calls_of_all_kinds() -> None:
    calls = [list(map(str, islice(drawn_calls.draw(3), 300))) for _ in range(2)]
    assert calls[0] == calls[1] != list(map(str, islice(drawn_calls.draw(4), 300)))
    drawn = list(islice(drawn_calls.draw(3), 300))
    assert {call.address for call in drawn} == {0, 2, 4, 8, 16}
    assert all(bool(call.hidden_size % 16) == (call.address == 0) for call in drawn)
    assert len({call.op.op for call in drawn}) > 60


def test_no_op_has_a_name_that_is_wrong() -> None:
    with pytest.raises(ValueError, match="ops: is 'wibble', which no name of an op contains"):
        next(drawn_calls.draw(1, "wibble"))


def test_calls_are_measured_and_compared_with_those_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["5", "--count", "2", "--ops", "fused_add_rmsnorm", "--elements", "12", "13"]
    before = tmp_path / "before.json"
    assert drawn_calls.main([*small, "--json", str(before)]) == 0
    found: list[dict[str, Any]] = json.loads(before.read_text(encoding="utf-8"))
    assert len(found) == 2
    assert all(each["us"] > 0 and each["share"] > 0 for each in found)
    assert drawn_calls.main([*small, "--against", str(before)]) == 0
    assert "of the time before" in capsys.readouterr().out

    found[0]["digest"] += 1
    before.write_text(json.dumps(found), encoding="utf-8")
    assert drawn_calls.main([*small, "--against", str(before)]) == 1
    assert f"other bytes: {found[0]['call']}" in capsys.readouterr().out
