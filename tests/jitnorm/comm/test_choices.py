"""How rows are summed according to measurements: which entry counts, where methods change, and that all ranks agree."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from expected import assert_same_bytes
from unoptimized import unoptimized

from jitnorm import FP8_TOKEN, NVFP4, comm, tuning
from jitnorm.comm import all_reduce
from jitnorm.comm.choices import (
    CPU,
    METHODS,
    Entry,
    agreed,
    of_device,
    one_shot_bytes,
    read_choices,
    steps_for,
    write_choices,
)
from jitnorm.comm.memory import Exchange
from jitnorm.comm.threads import on_threads
from jitnorm.tune.table import Table, write_table

__all__ = ["unoptimized"]

SIZE = 64
ROW = SIZE * 2


def entry(**others: Any) -> Entry:
    """One-shot is fastest for one row, two-shot for 4, the sum and its norm apart for 16."""
    times = {"one_shot": (1.0, 5.0, None), "two_shot": (3.0, 3.0, 9.0), "not_fused": (9.0, 7.0, 3.0)}
    own = Entry(CPU, 2, SIZE, 0, "", "2026-11-25", (ROW, 4 * ROW, 16 * ROW), times)
    return replace(own, **others)


@pytest.fixture(autouse=True)
def _places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unoptimized: None) -> None:
    """A user's table and a shipped one, neither of which is there yet."""
    monkeypatch.delenv("JITNORM_TUNING", raising=False)
    monkeypatch.setattr(tuning, "user_file", lambda name: tmp_path / "user" / f"{name}.json")
    monkeypatch.setattr(tuning, "_SHIPPED", tmp_path / "shipped")


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """The rank and method of each call."""
    found: list[tuple[int, str]] = []
    call = all_reduce.call

    def noted(workspace: comm.Workspace, how: str, *given: Any, is_fused: bool, **named: Any) -> Any:
        found.append((workspace.rank, how if is_fused else "not_fused"))
        return call(workspace, how, *given, is_fused=is_fused, **named)

    monkeypatch.setattr(all_reduce, "call", noted)
    return found


def test_methods_change_where_their_times_cross() -> None:
    assert entry().steps(METHODS) == (
        (ROW + 3 * ROW // 2, "one_shot"),
        (4 * ROW + 12 * ROW * 4 // 10, "two_shot"),
        (1 << 62, "not_fused"),
    )
    assert [method for _, method in entry().steps(["two_shot"])] == ["two_shot"]
    assert entry().steps([]) == ()


def test_a_method_is_chosen_only_as_far_as_it_was_measured() -> None:
    times = {"one_shot": (1.0, 1.0, None), "two_shot": (None, 2.0, 2.0), "not_fused": (None, None, None)}
    assert entry(times=times).steps(METHODS) == ((4 * ROW, "one_shot"), (1 << 62, "two_shot"))
    times["two_shot"] = (None, 0.5, 2.0)
    assert entry(times=times).steps(METHODS) == ((4 * ROW - 1, "one_shot"), (1 << 62, "two_shot"))
    assert entry(times=times).steps(["not_fused"]) == ()
    assert entry(times=times).steps(["one_shot"]) == ((4 * ROW, "one_shot"),)


def test_of_equal_times_the_first_method_is_taken() -> None:
    times: dict[str, Any] = dict.fromkeys(METHODS, (2.0, 2.0, 2.0))
    assert entry(times=times).steps(METHODS) == ((16 * ROW, "one_shot"),)


def test_the_nearest_entry_counts_that_of_the_same_codes_first() -> None:
    entries = []
    for hidden_size, bits, fastest in ((1024, 0, 0), (8192, 0, 1), (8192, 8, 2)):
        times = {method: (1.0 if METHODS[fastest] == method else 2.0,) for method in METHODS}
        entries.append(entry(hidden_size=hidden_size, code_bits=bits, bytes=(1,), times=times))
    choices = tuple(entries)

    def fastest_of(hidden_size: int, bits: int) -> str:
        ((_, method),) = steps_for(choices, hidden_size, bits, METHODS)
        return method

    assert (fastest_of(1500, 0), fastest_of(4096, 0), fastest_of(1024, 8)) == ("one_shot", "two_shot", "not_fused")
    assert fastest_of(1024, 4) == "one_shot", "without entries of such codes, the nearest length counts"
    assert steps_for((), 1024, 0, METHODS) == ()


def test_one_shot_is_by_default_for_what_it_is_fastest_for() -> None:
    small, large = ROW, 1 << 20
    assert one_shot_bytes((entry(),), small) == one_shot_bytes((entry(),), large) == 2 * ROW + ROW // 2
    always: dict[str, Any] = dict.fromkeys(METHODS, (2.0, 2.0, 2.0))
    assert one_shot_bytes((entry(times=always),), small) == 16 * ROW
    assert one_shot_bytes((entry(times=always),), large) == large, "nothing says that its lead ends"
    never = {**always, "one_shot": (3.0, 3.0, 3.0)}
    assert one_shot_bytes((entry(times=never), entry(code_bits=8)), large) == 2 * ROW + ROW // 2
    assert one_shot_bytes((entry(times=never),), small) == one_shot_bytes((), small) == small


def test_calls_follow_the_table_with_the_same_bits(used: list[tuple[int, str]]) -> None:
    write_choices([entry()], tuning.user_file("ranks"))
    x = np.random.default_rng(0).standard_normal((16, SIZE)).astype(np.float16)

    def work(rank: int, exchange: Exchange) -> None:
        own = comm.Workspace.from_exchange(rank, 2, exchange, max_rows=16, hidden_size=SIZE, dtype="float16")
        assert own.layout.rows == 2
        for rows in (1, 2, 3, 4, 8, 9, 16):
            out = comm.all_reduce_norm_quantize(x[:rows], x[0], own, residual=x[:rows]).out
            again = comm.all_reduce_norm_quantize(x[:rows], x[0], own, residual=x[:rows], method="two_shot").out
            assert_same_bytes(out, again)
        comm.all_reduce_norm_quantize(x, x[0], own, round_sum=False)

    on_threads(2, work)
    by_table = ["one_shot"] * 2 + ["two_shot"] * 3 + ["not_fused"] * 2
    for rank in range(2):
        assert [method for each, method in used if each == rank][::2] == [*by_table, "two_shot"]


def test_without_an_entry_a_rule_decides(used: list[tuple[int, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    write_choices([entry()], tuning.user_file("ranks"))
    write_choices([entry(ranks=3), entry(device="NVIDIA H200")], tuning.shipped_file("ranks"))
    monkeypatch.setenv("JITNORM_TUNING", "shipped")
    x = np.ones((16, SIZE), np.float16)

    def work(rank: int, exchange: Exchange) -> None:
        sizes: dict[str, Any] = {"max_rows": 16, "hidden_size": SIZE, "dtype": "float16", "one_shot_rows": 4}
        own = comm.Workspace.from_exchange(rank, 2, exchange, **sizes)
        for rows in (4, 5):
            comm.all_reduce_norm_quantize(x[:rows], x[0], own)

    on_threads(2, work)
    assert sorted(used) == [(0, "one_shot"), (0, "two_shot"), (1, "one_shot"), (1, "two_shot")]


def test_where_there_is_no_room_for_the_fastest_the_next_is_taken(used: list[tuple[int, str]]) -> None:
    write_choices([entry()], tuning.user_file("ranks"))
    x = np.ones((16, SIZE), np.float16)

    def work(rank: int, exchange: Exchange) -> None:
        sizes: dict[str, Any] = {"max_rows": 16, "hidden_size": SIZE, "dtype": "float16"}
        few = comm.Workspace.from_exchange(rank, 2, exchange, one_shot_rows=1, **sizes)
        comm.all_reduce_norm_quantize(x[:2], x[0], few)
        all_rows = comm.Workspace.from_exchange(rank, 2, exchange, one_shot_rows=16, **sizes)
        comm.all_reduce_norm_quantize(x, x[0], all_rows)

    on_threads(2, work)
    assert [method for rank, method in used if rank == 0] == ["two_shot", "one_shot"]


def test_ranks_follow_the_table_of_rank_0_even_if_their_own_differ() -> None:
    """What a rank chose by its own, the others would wait for in vain."""
    gpus = ("NVIDIA H200", "NVIDIA H100 80GB HBM3")
    of_gpus = [entry(device=gpu, code_bits=bits) for gpu, bits in zip(gpus, (0, 8), strict=True)]
    write_choices(of_gpus, tuning.user_file("ranks"))
    assert on_threads(2, lambda rank, exchange: agreed(exchange, rank, 2, gpus[rank])) == [(of_gpus[0],)] * 2


def test_entries_of_the_user_come_before_those_of_jitnorm(monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = [entry(driver="1"), entry(driver="1", code_bits=8), entry(driver="1", ranks=4)]
    write_choices(shipped, tuning.shipped_file("ranks"))
    write_choices([entry(driver="2", code_bits=8)], tuning.user_file("ranks"))
    assert {(each.code_bits, each.driver) for each in of_device(CPU, 2)} == {(0, "1"), (8, "2")}
    monkeypatch.setenv("JITNORM_TUNING", "shipped")
    assert {(each.code_bits, each.driver) for each in of_device(CPU, 2)} == {(0, "1"), (8, "1")}
    monkeypatch.setenv("JITNORM_TUNING", "off")
    assert of_device(CPU, 2) == ()


def test_a_damaged_table_is_ignored_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    path = tuning.user_file("ranks")
    write_choices([entry()], path)
    assert read_choices(path) == (entry(),)
    path.write_bytes(path.read_bytes().replace(b"1.0", b"0.1"))
    with caplog.at_level(logging.WARNING):
        assert of_device(CPU, 2) == ()
    assert "does not match its digest" in caplog.text


def test_a_table_of_schedules_is_not_one_of_choices(tmp_path: Path) -> None:
    write_table(Table("cpu", "", "", ""), tmp_path / "cpu.json")
    with pytest.raises(ValueError, match="not a table of sums over ranks"):
        read_choices(tmp_path / "cpu.json")


@pytest.mark.parametrize(
    "wrong", [{"bytes": ()}, {"bytes": (3, 2, 1)}, {"bytes": (1, 2)}, {"times": {"one_shot": (1.0, 1.0, 1.0)}}], ids=str
)
def test_an_entry_has_a_time_of_each_method_for_each_size(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"bytes: are|times: are"):
        entry(**wrong)


def test_methods_of_encoded_norms_have_entries_of_their_own(used: list[tuple[int, str]]) -> None:
    slow: dict[str, Any] = {"one_shot": (9.0,), "two_shot": (9.0,), "not_fused": (1.0,)}
    write_choices([entry(), entry(code_bits=8, bytes=(ROW,), times=slow)], tuning.user_file("ranks"))
    x = np.ones((1, SIZE), np.float16)

    def work(rank: int, exchange: Exchange) -> None:
        own = comm.Workspace.from_exchange(rank, 2, exchange, max_rows=16, hidden_size=SIZE, dtype="float16")
        for spec in (None, FP8_TOKEN, NVFP4):
            comm.all_reduce_norm_quantize(x, x[0], own, spec=spec)

    on_threads(2, work)
    assert [method for rank, method in used if rank == 1][:2] == ["one_shot", "not_fused"]
