"""The protocols of jitnorm.comm hold in every run of their model, and the model detects faulty variants."""

from __future__ import annotations

from typing import Protocol as Interface

import protocol_machine
import pytest
from protocol_machine import Explorer, ViolationError
from protocols import OneShot, PassedSums, TwoShot

AGAIN = (1, 1, 1, 1)
"""One row in as many calls as it takes until the first buffer is used again."""


class Described(Interface):
    def protocol(self) -> protocol_machine.Protocol: ...


@pytest.mark.parametrize(
    "protocol",
    [
        pytest.param(OneShot(2, (1, 1, 1, 1, 1), words=2), id="torn rows"),
        pytest.param(OneShot(2, (2, 1, 2, 1, 2)), id="fewer and more rows"),
        pytest.param(OneShot(2, (1, 3, 1, 2, 3), clears_before_it_waits=False), id="clearing last"),
        pytest.param(OneShot(2, (3, 2, 3), resident=1), id="fewer blocks resident than rows"),
        pytest.param(OneShot(2, (2, 0, 1, 2, 0, 0, 1)), id="two-shot calls between"),
        pytest.param(OneShot(3, AGAIN), id="3 ranks", marks=pytest.mark.exhaustive),
        pytest.param(OneShot(2, AGAIN, scatters=True), id="rows scattered, none to one rank"),
        pytest.param(OneShot(2, (2, 1, 2, 2), scatters=True), id="rows scattered"),
        pytest.param(OneShot(3, (1, 1), scatters=True), id="rows scattered among 3 ranks"),
        pytest.param(TwoShot(2, 4), id="two-shot"),
        pytest.param(TwoShot(2, 4, gathers=False), id="reduce-scatter"),
        pytest.param(TwoShot(3, 2, gathers=False), id="reduce-scatter of 3 ranks"),
        pytest.param(TwoShot(2, 4, reads=False), id="all-gather"),
        pytest.param(TwoShot(3, 2, reads=False), id="all-gather of 3 ranks", marks=pytest.mark.exhaustive),
        pytest.param(TwoShot(3, 2), id="two-shot of 3 ranks", marks=pytest.mark.exhaustive),
        pytest.param(PassedSums(2, (2, 1, 2)), id="sums passed on, also by ranks without rows"),
        pytest.param(PassedSums(2, (4, 2), resident=2), id="sums passed on by fewer blocks than rows"),
        pytest.param(PassedSums(2, (2, 2, 2), words=2), id="torn sums"),
        pytest.param(PassedSums(3, (1, 1)), id="sums passed on of 3 ranks"),
    ],
)
def test_every_rank_reads_what_was_sent_for_this_call_and_none_waits_forever(protocol: Described) -> None:
    """Every run explores all protocols with 2 ranks, and with 3 ranks those that take least."""
    assert Explorer(protocol.protocol()).explore() > 10


@pytest.mark.parametrize(
    "protocol",
    [
        pytest.param(OneShot(2, (2, 1, 1, 2)), id="rows"),
        pytest.param(OneShot(3, (1,)), id="3 ranks"),
        pytest.param(OneShot(2, (1, 1, 1, 1, None, 1, 1)), id="reset"),
        pytest.param(OneShot(2, (2, 1, 1), scatters=True), id="rows scattered"),
        pytest.param(TwoShot(2, 3), id="two-shot"),
        pytest.param(TwoShot(2, 3, gathers=False), id="reduce-scatter"),
        pytest.param(TwoShot(2, 3, reads=False), id="all-gather"),
        pytest.param(PassedSums(2, (2, 1, 2)), id="sums passed on"),
    ],
)
def test_after_a_failure_no_rank_waits_forever_or_reads_anything_else(protocol: Described) -> None:
    """A rank may die at any moment, and any wait may expire, including a wait for a rank that is merely slow."""
    assert Explorer(protocol.protocol(), deaths=1, expiry=True).explore() > 10


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        pytest.param(OneShot(2, AGAIN, buffers=2), "which holds", id="two buffers"),
        pytest.param(OneShot(2, AGAIN, clears=False), "finds", id="no clearing"),
        pytest.param(OneShot(2, (2, 1, 1, 2), clears_rows_of_this_call=True), "finds", id="clearing too few rows"),
        pytest.param(OneShot(2, AGAIN, starts_early=True), "which holds", id="start before the clearing is over"),
        pytest.param(OneShot(2, AGAIN, scatters=True, awaits_marks=False), "which holds", id="marks not awaited"),
        pytest.param(OneShot(2, (1, 0, 1, 1), clears_in_two_shot=False), "finds", id="no clearing in two-shot"),
        pytest.param(OneShot(2, (2,), resident=1, in_order=False), "wait forever", id="blocks in any order"),
        pytest.param(TwoShot(2, 2, flags_first=True), "Load.* finds", id="flag before data"),
        pytest.param(TwoShot(2, 2, orders_flags=False), "Load.* finds", id="flag not released"),
        pytest.param(TwoShot(2, 2, awaits_inputs=False), "Load.* finds", id="input not awaited"),
        pytest.param(TwoShot(2, 2, awaits_end=False), "Load.* finds", id="end not awaited"),
        pytest.param(TwoShot(2, 2, gathers=False, awaits_end=False), "Load.* finds", id="input changed too early"),
        pytest.param(TwoShot(2, 2, gathers=False, awaits_inputs=False), "Load.* finds", id="scattered too early"),
        pytest.param(TwoShot(2, 2, reads=False, awaits_inputs=False), "Load.* finds", id="output still read"),
        pytest.param(TwoShot(2, 2, reads=False, flags_first=True), "Load.* finds", id="gathered after the flag"),
        pytest.param(TwoShot(2, 2, reads=False, awaits_end=False), "Load.* finds", id="gathered rows not awaited"),
        pytest.param(PassedSums(2, (2,), awaits_inputs=False), "Load.* finds", id="sums of input not awaited"),
        pytest.param(PassedSums(2, (2, 2), clears=False), "Take.* finds", id="sums not cleared"),
        pytest.param(PassedSums(2, (2, 2), starts_early=True), "finds", id="start before the last kernel is over"),
        pytest.param(PassedSums(2, (2,), resident=1, own_first=False), "wait forever", id="own sums last"),
    ],
)
def test_a_wrong_protocol_is_found_out(wrong: Described, found: str) -> None:
    with pytest.raises(ViolationError, match=found):
        Explorer(wrong.protocol()).explore()


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(OneShot(2, AGAIN, survives_failure=True), id="going on after a failure"),
        pytest.param(OneShot(2, (1, 1, None, 1, 1), meets_before_reset=False), id="reset while peers run"),
    ],
)
def test_a_wrong_way_to_fail_is_found_out(wrong: Described) -> None:
    with pytest.raises(ViolationError, match=r"finds|before that was read"):
        Explorer(wrong.protocol(), expiry=True).explore()


def test_without_deadlines_a_rank_that_dies_leaves_the_others_waiting() -> None:
    with pytest.raises(ViolationError, match="wait forever"):
        Explorer(OneShot(2, (1,)).protocol(), deaths=1).explore()
