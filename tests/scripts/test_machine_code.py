"""Which instructions of a listing count: one way through it, by the rule of scripts/machine_code.py."""

from __future__ import annotations

import pytest
from machine_code import Instruction, count, executed


def listing(text: str) -> str:
    """The output of nvdisasm for instructions and labels, one per line."""
    lines = [line.strip() for line in text.strip().splitlines()]
    return "\n".join(
        line if line.endswith(":") else f"        /*{16 * number:04x}*/                   {line} ;"
        for number, line in enumerate(lines)
    )


def opcodes(text: str, trips: int | None = None) -> list[str]:
    return [instruction.opcode for instruction in executed(listing(text), trips)]


def test_straight_code_counts_up_to_its_exit() -> None:
    text = """
        .text.kernel:
        LDG.E.128 R4, desc[UR6][R2.64]
        FMUL R4, R4, R5
        STG.E.64 desc[UR6][R2.64], R4
        EXIT
        .L_x_0:
        BRA `(.L_x_0)
    """
    assert opcodes(text) == ["LDG.E.128", "FMUL", "STG.E.64", "EXIT"]


def test_a_predicated_instruction_counts_and_a_predicated_exit_is_passed() -> None:
    assert opcodes("@P0 EXIT\n@!P1 FADD R0, R1, R2\nEXIT") == ["EXIT", "FADD", "EXIT"]


SLOW_PATH = """
    FCHK P0, R2, 3
    @!P0 BRA `(.L_x_1)
    MOV R40, 0x1340
    CALL.REL.NOINC `($__internal_0_$division)
    {after}
    .L_x_1:
    FMUL R4, R4, R5
    EXIT
    $__internal_0_$division:
    FFMA R1, R2, R3, R4
    RET.REL.NODEC R8 `(kernel)
"""


@pytest.mark.parametrize("after", ["MOV R7, R2", "BRA `(.L_x_1)"])
def test_what_calls_a_subroutine_does_not_count(after: str) -> None:
    assert opcodes(SLOW_PATH.format(after=after)) == ["FCHK", "BRA", "FMUL", "EXIT"]


def test_a_call_does_not_count_even_where_it_is_the_shorter_way() -> None:
    text = """
        @P0 BRA `(.L_x_16)
        CALL.REL.NOINC `($__internal_0_$reciprocal)
        BRA `(.L_x_17)
        .L_x_16:
        MUFU.RCP R13, R2
        FFMA R40, R13, R2, -1
        FFMA R13, R13, R40, R13
        .L_x_17:
        EXIT
    """
    assert opcodes(text) == ["BRA", "MUFU.RCP", "FFMA", "FFMA", "EXIT"]


def test_of_two_ways_with_the_same_accesses_the_shorter_counts() -> None:
    text = """
        @!P0 BRA !P1, `(.L_x_22)
        FMNMX R0, R1, R2, PT
        FMNMX R0, R0, R3, PT
        BRA `(.L_x_23)
        .L_x_22:
        FADD R0, R1, R2
        .L_x_23:
        STG.E desc[UR6][R2.64], R0
        EXIT
    """
    assert opcodes(text) == ["BRA", "FADD", "STG.E", "EXIT"]


def test_of_two_ways_the_one_with_fewer_choices_counts_though_a_third_is_shorter() -> None:
    """Blocks of ordinary values are told apart first, those of zeros among the others."""
    text = """
        @P0 BRA `(.L_x_1)
        FADD R0, R1, R2
        FADD R0, R0, R3
        BRA `(.L_x_2)
        .L_x_1:
        @P1 BRA `(.L_x_2)
        FMNMX R0, R1, R2, PT
        .L_x_2:
        STG.E desc[UR6][R2.64], R0
        EXIT
    """
    assert opcodes(text) == ["BRA", "FADD", "FADD", "BRA", "STG.E", "EXIT"]


def test_what_some_lanes_store_counts_and_what_they_need_not_do_does_not() -> None:
    text = """
        @P0 BRA `(.L_x_1)
        STG.E.U8 desc[UR6][R2.64], R0
        .L_x_1:
        @P1 BRA `(.L_x_2)
        STS [R7], RZ
        .L_x_2:
        EXIT
    """
    assert opcodes(text) == ["BRA", "STG.E.U8", "BRA", "EXIT"]


def test_a_branch_back_that_closes_no_loop_is_followed() -> None:
    text = """
        BRA `(.L_x_2)
        .L_x_1:
        FADD R0, R1, R2
        EXIT
        .L_x_2:
        FMUL R0, R1, R2
        BRA `(.L_x_1)
    """
    assert opcodes(text) == ["BRA", "FMUL", "BRA", "FADD", "EXIT"]


LOOP = """
    MOV R0, RZ
    .L_x_4:
    FADD R1, R1, R2
    {inner}
    IADD3 R0, R0, 0x1, RZ
    @P0 BRA `(.L_x_4)
    FMUL R1, R1, R2
    EXIT
"""


@pytest.mark.parametrize("inner", ["NOP", "@P1 BRA `(.L_x_5)\n.L_x_5:"])
def test_a_loop_counts_as_often_as_it_runs(inner: str) -> None:
    found = opcodes(LOOP.format(inner=inner), trips=3)
    assert [found.count(opcode) for opcode in ("MOV", "FADD", "IADD3", "FMUL", "EXIT")] == [1, 3, 3, 1, 1]


def test_a_loop_of_unknown_length_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown number of times"):
        opcodes(LOOP.format(inner="NOP"))


def test_a_loop_beside_the_way_is_passed_by() -> None:
    text = """
        @P0 BRA `(.L_x_1)
        .L_x_4:
        STS [R7], RZ
        @P1 BRA `(.L_x_4)
        .L_x_1:
        EXIT
    """
    assert opcodes(text) == ["BRA", "EXIT"]


def test_code_that_never_exits_is_refused() -> None:
    with pytest.raises(ValueError, match="no path leads"):
        opcodes(".L_x_0:\nBRA `(.L_x_0)")


def test_each_instruction_takes_an_issue_slot_and_one_pipe_at_most() -> None:
    opcodes = ("FFMA", "IMAD.MOV.U32", "LOP3.LUT", "FMNMX3.NAN", "MUFU.RCP", "F2FP.SATFINITE.E2M1", "BSSY", "S2R")
    assert count(map(Instruction, opcodes)) == {"issue": 8, "fma": 2, "alu": 2, "xu": 2}


def test_an_instruction_for_pairs_of_floats_takes_an_issue_slot_for_two_results() -> None:
    assert count(map(Instruction, ("FMUL2", "FADD2", "FFMA2", "FHFMA.BF16"))) == {"issue": 4, "fma": 7}


def test_wide_accesses_count_by_the_words_that_they_move() -> None:
    accesses = ("LDG.E.128.CONSTANT", "LDG.E.ENL2.256", "STG.E.64", "STG.E.U8", "SHFL.BFLY", "LDS")
    assert count(map(Instruction, accesses))["lsu"] == 4 + 8 + 2 + 1 + 1 + 1
